"""Word problems of one to three steps, with the reasoning written out and a final `Answer: N` line.

A problem is a start number and a list of steps; `canonical` names the numbers, the steps and the wording used, but not
the person or the thing, so that two problems that differ in a name only fall on the same side of the held-out split.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from specgrove.training.checks import Check, final_number
from specgrove.training.words import NAMES, THINGS


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `op` is +, - or *; `number` its right side; `wording` an index into the phrases of that op."""

    op: str
    number: int
    wording: int

    def apply(self, value: int) -> int:
        """The value after this step."""
        if self.op == "+":
            return value + self.number
        return value - self.number if self.op == "-" else value * self.number


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, its written solution, and what identifies it."""

    canonical: str
    question: str
    answer: str
    check: Check


PHRASES: dict[str, tuple[str, ...]] = {
    "+": (
        "{name} gets {n} more.",
        "{name} finds {n} more.",
        "{name} buys {n} more.",
        "A friend gives {name} {n} more.",
    ),
    "-": ("{name} loses {n}.", "{name} gives away {n}.", "{name} sells {n}.", "A friend takes {n}."),
    "*": ("Now {name} has {n} times as many.", "The number grows {n} times."),
}
BARE: tuple[str, ...] = ("What is {a} {op} {b}?", "Compute {a} {op} {b}.", "{a} {op} {b} = ?")
MOST = 30
"""No value on the way, and no answer, is larger than this: sums that a very small model can learn by heart."""


def _step(rng: random.Random, value: int) -> Step:
    """Draw an operation that keeps the value between 0 and MOST."""
    ops = (["+"] if value < MOST else []) + (["-"] if value > 2 else [])
    if 2 <= value <= 10:
        ops.append("*")
    op = rng.choice(ops)
    if op == "*":
        number = rng.randint(2, min(5, MOST // value))
    elif op == "-":
        number = rng.randint(1, min(9, value))
    else:
        number = rng.randint(1, min(9, MOST - value))
    return Step(op, number, rng.randrange(len(PHRASES[op])))


def _reasoning(start: int, steps: list[Step]) -> tuple[str, int]:
    """The lines `a + b = c`, one a step, then the answer line."""
    lines, value = [], start
    for step in steps:
        after = step.apply(value)
        lines.append(f"{value} {step.op} {step.number} = {after}")
        value = after
    lines.append(f"Answer: {value}")
    return "\n".join(lines), value


def _draw_steps(rng: random.Random, count: int) -> tuple[int, list[Step]]:
    start = rng.randint(2, 25) if rng.random() < 0.4 else rng.randint(2, 12)
    steps, value = [], start
    for _ in range(count):
        step = _step(rng, value)
        steps.append(step)
        value = step.apply(value)
    return start, steps


def word_problem(rng: random.Random, count: int) -> Problem:
    """Draw a story of `count` steps (1 to 3)."""
    start, steps = _draw_steps(rng, count)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    told = " ".join(PHRASES[step.op][step.wording].format(name=name, n=step.number) for step in steps)
    question = f"{name} has {start} {thing}. {told} How many {thing} does {name} have now?"
    answer, value = _reasoning(start, steps)
    canonical = f"story {start} " + " ".join(f"{step.op}{step.number}/{step.wording}" for step in steps)
    return Problem(canonical, question, answer, final_number(value))


def bare_sum(rng: random.Random) -> Problem:
    """Draw a sum without a story, such as `What is 7 + 5?`."""
    start, (step,) = _draw_steps(rng, 1)
    form = rng.randrange(len(BARE))
    question = BARE[form].format(a=start, op=step.op, b=step.number)
    answer, value = _reasoning(start, [step])
    return Problem(f"bare {form} {start} {step.op} {step.number}", question, answer, final_number(value))
