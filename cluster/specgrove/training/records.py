"""The family's own training records: what they are, how they are drawn, and which of them are held out.

Everything follows from a seed. A problem is held out when the hash of its canonical form says so, whatever the seed,
so that training and held-out records are disjoint by construction.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from specgrove.errors import ConfigError
from specgrove.training import requests
from specgrove.training.arithmetic import Problem, bare_sum, word_problem
from specgrove.training.checks import Check
from specgrove.training.words import SYSTEM_PROMPTS

HELD_OUT_ONE_IN = 10
"""One canonical problem in this many is held out."""


Message = dict[str, str]
"""A chat turn: `role` and `content`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation that ends before the model's turn, with the answer expected of it.

    messages: chat turns as `role` and `content`, the last one the user's.  answer: a right answer, as trained on.
    kind: a key of KINDS.  check: whether a text is a right answer.  canonical: what the split is decided on.
    """

    kind: str
    canonical: str
    messages: tuple[Message, ...]
    answer: str
    check: Check


KINDS: dict[str, tuple[float, Callable[[random.Random], Problem]]] = {
    "one_step": (0.14, lambda rng: word_problem(rng, 1)),
    "two_step": (0.11, lambda rng: word_problem(rng, 2)),
    "three_step": (0.08, lambda rng: word_problem(rng, 3)),
    "bare_sum": (0.10, bare_sum),
    "count": (0.07, requests.count),
    "sort": (0.07, requests.sort),
    "repeat": (0.04, requests.repeat),
    "echo": (0.12, requests.echo),
    "reverse": (0.07, requests.reverse),
    "json": (0.05, requests.json_object),
    "bullets": (0.04, requests.bullets),
    "members": (0.03, requests.members),
    "definition": (0.03, requests.definition),
    "saying": (0.02, requests.saying),
    "greeting": (0.015, requests.greeting),
    "refusal": (0.015, requests.refusal),
}
"""Each kind's share of the training records, and its maker."""


def is_held_out(canonical: str) -> bool:
    """Whether a problem belongs to the held-out side; depends on nothing but its canonical form."""
    digest = hashlib.sha256(canonical.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def _draw(rng: random.Random, kind: str, held: bool) -> Sample:
    """Draw problems of a kind until one is on the wanted side of the split."""
    while True:
        problem = KINDS[kind][1](rng)
        if is_held_out(problem.canonical) == held:
            user = {"role": "user", "content": problem.question}
            return Sample(kind, problem.canonical, (user,), problem.answer, problem.check)


def _with_company(rng: random.Random, sample: Sample, earlier: Sample) -> Sample:
    """Sometimes put a system prompt or a finished earlier turn before the question."""
    messages = sample.messages
    if rng.random() < 0.1:
        answered = {"role": "assistant", "content": earlier.answer}
        messages = (*earlier.messages, answered, *messages)
    if rng.random() < 0.1:
        messages = ({"role": "system", "content": rng.choice(SYSTEM_PROMPTS)}, *messages)
    return Sample(sample.kind, sample.canonical, messages, sample.answer, sample.check)


def training(seed: int, part: int = 0) -> Iterator[Sample]:
    """Training samples without end; `part` numbers independent streams of one seed."""
    rng = random.Random(f"specgrove-train/{seed}/{part}")
    kinds, weights = list(KINDS), [share for share, _ in KINDS.values()]
    while True:
        drawn, earlier = rng.choices(kinds, weights, k=2)
        yield _with_company(rng, _draw(rng, drawn, held=False), _draw(rng, earlier, held=False))


def held_out(seed: int, count: int) -> list[Sample]:
    """`count` held-out samples, the kinds in turn; the same for the same arguments, a prefix for a smaller count.

    Each is one user message. Raises ConfigError when count is negative.
    """
    if count < 0:
        raise ConfigError(f"count of held-out samples is at least 0, got {count}")
    rng = random.Random(f"specgrove-held-out/{seed}")
    kinds = list(KINDS)
    return [_draw(rng, kinds[index % len(kinds)], held=True) for index in range(count)]
