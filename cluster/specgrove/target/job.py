"""Job: one request on this replica: its prompt, its choices, and where its events go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specgrove.core.request import GenerateEvent, GenerateRequest, TokenLogprob
from specgrove.core.sampling import SamplingParams
from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVSequence
from specgrove.errors import SpecgroveError
from specgrove.target.guesses import Guesses

if TYPE_CHECKING:
    from specgrove.target.session import Session

Emit = Callable[[Sequence[GenerateEvent | SpecgroveError]], None]
"""Takes events of one job, in order; an error is the last one. Called from the device thread; never blocks."""


@dataclass(slots=True, eq=False)
class Job:
    """One accepted request. `prompt` has at least one token."""

    request: GenerateRequest
    prompt: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    emit: Emit
    arrived: float
    deadline: float | None
    guesses: Guesses | None = None
    """What this replica guesses by itself, at the end of the prompt; None: nothing."""
    sequence: KVSequence | None = None
    """KV of the prompt while it is computed; handed to the first session afterwards."""
    cached_tokens: int = 0
    sessions: list[Session] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    prefilled: bool = False
    over: bool = False
    """Finished, failed or cancelled: nothing of it may run or be sent any more."""

    @property
    def scores_prompt(self) -> bool:
        """The prompt's own log-probabilities were asked for, so every row of it must be computed."""
        return self.request.echo and self.request.logprobs is not None

    @property
    def remaining(self) -> int:
        """Prompt tokens not yet computed."""
        return len(self.prompt) - (self.sequence.length if self.sequence is not None else 0)

    def chunk(self, limit: int) -> Segment:
        """The next rows of the prompt, at most `limit`; the last row of the prompt always gives logits."""
        assert self.sequence is not None
        first = self.sequence.length
        tokens = self.prompt[first : first + limit]
        positions = range(first, first + len(tokens))
        self.sequence.reserve(positions)
        if self.scores_prompt:
            wanted: Sequence[int] = range(len(tokens))
        else:
            wanted = [len(tokens) - 1] if first + len(tokens) == len(self.prompt) else []
        return Segment(self.sequence, tokens, positions, None, wanted)

    @property
    def unfinished(self) -> list[Session]:
        """Choices that still decode."""
        return [session for session in self.sessions if session.finished is None]
