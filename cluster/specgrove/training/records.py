"""The family's own training records: what they are, how they are drawn, and which of them are held out.

Everything follows from a seed. A problem is held out when the hash of its canonical form says so, whatever the seed,
so that training and held-out records are disjoint by construction.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from specgrove.errors import ConfigError
from specgrove.training import blocks, countdown, requests
from specgrove.training.arithmetic import bare_sum, word_problem
from specgrove.training.checks import Check
from specgrove.training.problem import Maker
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


KINDS: dict[str, tuple[float, Maker]] = {
    "one_step": (0.05, partial(word_problem, count=1)),
    "two_step": (0.07, partial(word_problem, count=2)),
    "three_step": (0.095, partial(word_problem, count=3)),
    "four_step": (0.105, partial(word_problem, count=4)),
    "bare_sum": (0.04, bare_sum),
    "countdown3": (0.045, partial(countdown.solve, count=3)),
    "countdown4": (0.055, partial(countdown.solve, count=4)),
    "judge_countdown": (0.08, countdown.judge),
    "blocks3": (0.04, partial(blocks.solve, count=3)),
    "blocks4": (0.08, partial(blocks.solve, count=4)),
    "judge_blocks": (0.055, blocks.judge),
    "count": (0.05, requests.count),
    "sort": (0.06, requests.sort),
    "repeat": (0.02, requests.repeat),
    "echo": (0.05, requests.echo),
    "reverse": (0.03, requests.reverse),
    "json": (0.025, requests.json_object),
    "bullets": (0.015, requests.bullets),
    "members": (0.008, requests.members),
    "definition": (0.008, requests.definition),
    "saying": (0.005, requests.saying),
    "greeting": (0.004, requests.greeting),
    "refusal": (0.005, requests.refusal),
}
"""Each kind's weight in the training records, and its maker."""


def is_held_out(canonical: str) -> bool:
    """Whether a problem belongs to the held-out side; depends on nothing but its canonical form."""
    digest = hashlib.sha256(canonical.encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0


def _draw(rng: random.Random, kind: str, *, held: bool, unseen: bool = False) -> Sample:
    """Draw problems of a kind until one is on the wanted side of the split."""
    while True:
        problem = KINDS[kind][1](rng, unseen)
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
    kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    while True:
        drawn, earlier = rng.choices(kinds, weights, k=2)
        yield _with_company(rng, _draw(rng, drawn, held=False), _draw(rng, earlier, held=False))


def held_out(seed: int, count: int, *, unseen: bool = False, kinds: Sequence[str] = ()) -> list[Sample]:
    """`count` held-out samples, the kinds in turn; the same for the same arguments, a prefix for a smaller count.

    unseen: in wordings that are never trained on, too. kinds: only these; empty for all. Each is one user message.
    Raises ConfigError when count is negative or a kind unknown.
    """
    if count < 0:
        raise ConfigError(f"count of held-out samples is at least 0, got {count}")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigError(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}", param="kinds")
    rng = random.Random(f"specgrove-held-out/{seed}/{'unseen' if unseen else 'trained'}")
    wanted = list(kinds or KINDS)
    return [_draw(rng, wanted[index % len(wanted)], held=True, unseen=unseen) for index in range(count)]
