"""Requests of the parity suite, and the oracle's verdict on what the server answered."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.oracle import Asked, Difference, Oracle

from specgrove.client import Client, Completion
from specgrove.core.request import RoundTrace

TOKENS = 96
"""Most new tokens per choice."""
NEUTRAL = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


@dataclass(frozen=True, slots=True)
class Way:
    """One set of sampling parameters, as the client says it; `n` choices."""

    name: str
    options: dict[str, Any]
    n: int = 1


WAYS = (
    Way("greedy", {}),
    Way("T = 0.7", {"temperature": 0.7}),
    Way("T = 1", {"temperature": 1.0}),
    Way("T = 1, top-p", {"temperature": 1.0, "top_p": 0.9}),
    Way(
        "penalties", {"temperature": 0.7, "repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2}
    ),
    Way("n = 3", {"temperature": 1.0}, n=3),
)


@dataclass(slots=True)
class Tally:
    """What the suite counts; the claims of `make parity` are about these numbers."""

    outputs: int = 0
    tokens: int = 0
    near_ties: int = 0
    real: list[tuple[str, Difference]] = field(default_factory=list)
    rounds: int = 0
    good_rounds: int = 0
    """Rounds with a tree of four nodes or more."""
    committed: int = 0
    full: int = 0
    """Rounds whose whole depth was accepted."""
    zero: int = 0
    """Rounds with a tree of which nothing was accepted."""

    def add_rounds(self, traces: Sequence[RoundTrace]) -> None:
        """Count the rounds of one choice. The first token comes with the prompt, before any round."""
        for trace in traces[1:]:
            self.rounds += 1
            self.good_rounds += len(trace.tree) >= 4
            self.committed += len(trace.emitted)
            self.full += len(trace.tree) > 0 and len(trace.accepted) == trace.tree.depth
            self.zero += len(trace.tree) > 0 and not trace.accepted

    def add(self, name: str, found: Sequence[Difference], tokens: int) -> None:
        """Count the differences of one output."""
        self.outputs += 1
        self.tokens += tokens
        self.near_ties += sum(d.near_tie for d in found)
        self.real += [(name, d) for d in found if not d.near_tie]

    def lines(self) -> str:
        """The numbers, for a person."""
        rounds = max(1, self.rounds)
        return (
            f"{self.outputs} outputs, {self.tokens} tokens, {self.near_ties} near ties, {len(self.real)} real "
            f"differences; {self.rounds} rounds, {self.good_rounds / rounds:.1%} with a tree of 4 nodes or more, "
            f"{self.committed / rounds:.2f} tokens per round, {self.full} fully accepted, {self.zero} not at all"
        )


def ask_all(
    client: Client, model: str, prompts: Sequence[Sequence[int]], way: Way, *, at_once: int = 2, **more: Any
) -> list[Completion]:
    """Every prompt once, `at_once` at the same time; prompt i has seed 1000 + i."""

    def one(item: tuple[int, Sequence[int]]) -> Completion:
        index, prompt = item
        options = NEUTRAL | {"max_tokens": TOKENS, "trace": True, "n": way.n, "seed": 1000 + index} | way.options | more
        return client.complete(model, prompt, **options)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, enumerate(prompts)))


def judge(
    oracle: Oracle,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Completion],
    way: Way,
    tally: Tally,
    eos: frozenset[int],
) -> None:
    """Judge every choice token by token, and that it ended where it had to."""
    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        for choice in answer.choices:
            asked = Asked(seed=1000 + index, choice=choice.index, **way.options)
            found = oracle.differences(prompt, choice.tokens, asked)
            tally.add(f"{way.name}, prompt {index}, choice {choice.index}", found, len(choice.tokens))
            tally.add_rounds(choice.traces)
            assert not eos & set(choice.tokens[:-1]), "a choice went on after its end"
            if choice.finish_reason == "stop":
                assert choice.tokens[-1] in eos
            else:
                assert len(choice.tokens) == TOKENS
