"""Which replica has computed the beginning of a prompt before: its keys and values may still be in memory there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from specgrove.core.request import GenerateRequest

TEXT_BLOCK, TOKEN_BLOCK = 64, 16
"""Characters and token ids of a block; a prefix is remembered block by block."""
CHARS_PER_TOKEN = 4
LONGEST_BLOCKS = 1024
"""Blocks of a prompt that are looked at; what comes later decides nothing."""
MOST_BLOCKS = 1 << 16
"""Blocks that are remembered, the most recently used ones."""


class PrefixMemory:
    """Prefixes of the prompts that were sent to each replica; the least recently used are forgotten. Guesses only."""

    def __init__(self, *, most_blocks: int = MOST_BLOCKS) -> None:
        self._most = most_blocks
        self._replica: OrderedDict[int, str] = OrderedDict()

    def held(self, request: GenerateRequest) -> dict[str, float]:
        """Share of the prompt, from its start, that each replica was sent before; replicas with none are left out."""
        found: dict[str, float] = {}
        blocks = list(_blocks(request))
        for number, block in enumerate(blocks, start=1):
            replica = self._replica.get(block)
            if replica is None:
                break
            self._replica.move_to_end(block)
            found[replica] = number / len(blocks)
        return found

    def remember(self, request: GenerateRequest, replica: str) -> None:
        """The replica computes this prompt now."""
        for block in _blocks(request):
            self._replica[block] = replica
            self._replica.move_to_end(block)
        while len(self._replica) > self._most:
            self._replica.popitem(last=False)


def prompt_tokens(request: GenerateRequest) -> int:
    """About how many tokens the prompt has."""
    if request.tokens is not None:
        return len(request.tokens)
    return len(_text(request)) // CHARS_PER_TOKEN + 1


def _text(request: GenerateRequest) -> str:
    if request.messages is not None:
        return "\0".join(f"{turn.role}\0{turn.content}" for turn in request.messages)
    return request.text or ""


def _blocks(request: GenerateRequest) -> Iterator[int]:
    """A hash for each whole block, each over everything before it as well; the model's name is where it begins."""
    prompt: str | tuple[int, ...] = request.tokens if request.tokens is not None else _text(request)
    size = TOKEN_BLOCK if request.tokens is not None else TEXT_BLOCK
    chained = hash(request.model)
    for start in range(0, min(len(prompt), LONGEST_BLOCKS * size) - size + 1, size):
        chained = hash((chained, prompt[start : start + size]))
        yield chained
