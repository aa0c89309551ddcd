"""Exact laws by walking every outcome of every random decision: no noise, no samples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "sampling_rules.json").read_text())


class _Fork(Exception):
    def __init__(self, options: list[tuple[Any, float]]) -> None:
        self.options = options


class Script:
    """A Chance whose decisions are given; at the first one that is not, the walk is cut and continued both ways."""

    def __init__(self, answers: tuple[Any, ...]) -> None:
        self._answers = iter(answers)

    def choose(self, options: list[tuple[Any, float]]) -> Any:
        """One of the options of positive probability."""
        for answer in self._answers:
            return answer
        raise _Fork([(value, p) for value, p in options if p > 0])

    def accept(self, depth: int, token: int, ratio: float) -> bool:
        """Chance.accept."""
        p = min(1.0, ratio)
        return bool(self.choose([(True, p), (False, 1 - p)]))

    def draw(self, depth: int, law: Tensor | Sequence[float]) -> int:
        """Chance.draw; also used to draw drafts."""
        weights = [float(x) for x in law]
        return int(self.choose([(v, w / sum(weights)) for v, w in enumerate(weights)]))


def outcomes(run: Callable[[Script], Any]) -> Iterator[tuple[float, Any]]:
    """(probability, result) of every way that `run` can go."""
    pending: list[tuple[tuple[Any, ...], float]] = [((), 1.0)]
    while pending:
        answers, weight = pending.pop()
        try:
            yield weight, run(Script(answers))
        except _Fork as fork:
            pending += [((*answers, value), weight * p) for value, p in fork.options]


def law_of(run: Callable[[Script], Any]) -> dict[Any, float]:
    """Probability of each result of `run`."""
    out: dict[Any, float] = {}
    for weight, result in outcomes(run):
        out[result] = out.get(result, 0.0) + weight
    return out


def first_token_law(run: Callable[[Script], int], vocab: int) -> list[float]:
    """law_of a run that returns one token, as a list."""
    law = law_of(run)
    return [law.get(token, 0.0) for token in range(vocab)]


def close(got: Sequence[float], wanted: Sequence[float]) -> bool:
    """Equal to the ten digits of the golden values."""
    return len(got) == len(wanted) and all(math.isclose(a, b, abs_tol=2e-9) for a, b in zip(got, wanted, strict=True))


def assert_lossless(run: Callable[[Script], int], p: Sequence[float]) -> None:
    """The harness that right rules pass and wrong ones must not: the law of one emitted token is p."""
    got = first_token_law(run, len(p))
    assert close(got, p), f"emits {got} instead of {list(p)}"


def draw_without_replacement(script: Script, q: Sequence[float], k: int) -> list[int]:
    """k tokens in the order of their draw, uniform over the rest when q is used up; shares no code with the rules."""
    tried: list[int] = []
    for _ in range(k):
        left = [0.0 if v in tried else w for v, w in enumerate(q)]
        if sum(left) <= 0:
            left = [0.0 if v in tried else 1.0 for v in range(len(q))]
        tried.append(script.draw(0, left))
    return tried


def law(values: Sequence[float]) -> Tensor:
    """A law as the rules take it: float64, summing to one (golden values are rounded to ten digits)."""
    out = torch.tensor(values, dtype=torch.float64)
    return out / out.sum()
