"""Word problems of one to four steps, with the reasoning written out and a final `Answer: N` line.

A problem is a start number and a list of steps; `canonical` names those alone. Numbers stay within what models of a few
million parameters can learn exactly: no value is over MOST, products and quotients come from the small tables.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from specgrove.training.checks import final_number
from specgrove.training.problem import Forms, Problem
from specgrove.training.words import NAMES, NUMBER_WORDS, THINGS

MOST = 100
"""No value on the way, and no answer, is larger."""
LARGEST_STEP = 40
"""Largest number that is added or taken away."""
FACTORS = (2, 3, 4, 5)
MOST_STEPS = 4

LINKS = ("", "Then ", "Next, ", "After that, ", "Later ", "Now ", "One day later, ")
"""How a step follows what came before it."""

STEPS: dict[str, Forms] = {
    "+": Forms(
        (
            "{name} gets {n} more.",
            "{name} finds {n} more.",
            "Then {name} buys {n} {things}.",
            "A friend gives {name} {n} more.",
            "{name} wins {n} {things} in a game.",
            "Next, {name} picks up {n} more {things}.",
            "After that, {name} receives {n} more.",
            "{other} brings {name} {n} {things}.",
            "Later {name} is given {n} more.",
            "Then {n} more {things} arrive.",
            "{name} takes {n} {things} from the shelf.",
            "{other} adds {n} {things}.",
        ),
        (
            "Next, {name} gets {n} {things} from a friend.",
            "After that, {name} finds {n} more {things}.",
            "Then {other} gives {name} {n} more.",
            "Later {name} buys {n} more {things}.",
            "Next, {n} more {things} arrive.",
            "A friend brings {name} {n} {things}.",
        ),
    ).crossed(
        LINKS,
        (
            "{name} gets {n} more.",
            "{name} finds {n} {things}.",
            "{name} buys {n} more {things}.",
            "{name} picks up {n}.",
            "{name} receives {n} {things}.",
            "{name} wins {n} more.",
            "{other} gives {name} {n} {things}.",
            "a friend brings {n} more.",
            "{n} more {things} arrive.",
            "{other} adds {n}.",
        ),
    ),
    "-": Forms(
        (
            "{name} loses {n}.",
            "{name} gives away {n}.",
            "Then {name} sells {n} {things}.",
            "A friend takes {n}.",
            "{name} gives {n} {things} to {other}.",
            "Next, {n} {things} get lost.",
            "After that, {name} throws away {n}.",
            "{other} takes {n} {things} away.",
            "Later {name} uses {n} {things}.",
            "{n} of the {things} break.",
            "{name} sells {n} of them.",
            "Then {name} hands {n} {things} to {other}.",
        ),
        (
            "Later {name} gives away {n} of the {things}.",
            "Next, {name} sells {n} of them to a friend.",
            "Then {n} {things} break.",
            "After that, {other} takes {n} of them away.",
            "{name} loses {n} {things} in a game.",
            "Later {name} hands {n} of them to {other}.",
        ),
    ).crossed(
        LINKS,
        (
            "{name} loses {n} {things}.",
            "{name} gives away {n} {things}.",
            "{name} sells {n}.",
            "{name} uses {n} of them.",
            "{name} throws away {n} {things}.",
            "{name} hands {n} to {other}.",
            "{other} takes {n} away.",
            "a friend takes {n} {things}.",
            "{n} {things} get lost.",
            "{n} of the {things} break.",
        ),
    ),
    "*": Forms(
        (
            "Now {name} has {n} times as many.",
            "The number of {things} grows {n} times.",
            "Then the {things} become {n} times as many.",
            "{other} makes it {n} times as many.",
            "By magic there are {n} times as many {things}.",
            "After that, {name} has {n} times the {things}.",
            "Next, the pile grows to {n} times its size.",
            "Every one of the {things} turns into {n}.",
        ),
        (
            "Next, {name} has {n} times as many {things}.",
            "After that, the number of {things} grows {n} times.",
            "Then there are {n} times as many.",
            "By magic the pile grows to {n} times its size.",
            "Then every one of them turns into {n}.",
            "Now the {things} are {n} times as many.",
        ),
    ).crossed(
        LINKS,
        (
            "{name} has {n} times as many.",
            "the number grows {n} times.",
            "there are {n} times as many {things}.",
            "the pile grows to {n} times its size.",
            "every one of them turns into {n}.",
            "{other} makes it {n} times as many.",
        ),
    ),
    "/": Forms(
        (
            "{name} splits them into {n} equal piles and keeps one pile.",
            "The {things} are split into {n} equal parts and {name} keeps one.",
            "Then {name} keeps only one of {n} equal parts.",
            "{n} friends share the {things} equally and {name} is one of them.",
            "Next, {name} makes {n} equal piles and gives away all but one.",
            "After that, {name} divides the {things} by {n}.",
            "The {things} go into {n} equal boxes and {name} keeps one box.",
            "Only one in {n} of the {things} is left.",
        ),
        (
            "Then the {things} go into {n} equal piles and {name} keeps one.",
            "Next, {name} keeps only one of {n} equal boxes.",
            "{name} splits them into {n} equal parts and keeps one.",
            "After that, only one in {n} of them is left.",
            "Then {n} friends share them equally and {name} is one of them.",
            "Later {name} makes {n} equal parts and keeps one part.",
        ),
    ).crossed(
        LINKS,
        (
            "{name} splits them into {n} equal piles and keeps one.",
            "{name} keeps only one of {n} equal parts.",
            "{name} divides them by {n}.",
            "{n} friends share them equally and {name} is one of them.",
            "only one in {n} of them is left.",
            "{name} makes {n} equal piles and gives away all but one.",
        ),
    ),
}
"""Sentences by operation."""

OPENINGS = Forms(
    (
        "{name} has {n} {things}.",
        "{name} starts with {n} {things}.",
        "At first {name} has {n} {things}.",
        "There are {n} {things} in {name}'s bag.",
        "{name} owns {n} {things}.",
        "In the morning {name} counts {n} {things}.",
        "{name} keeps {n} {things} in a box.",
        "{name} is the owner of {n} {things}.",
    ),
    (
        "In the morning {name} has {n} {things}.",
        "At first there are {n} {things} in {name}'s bag.",
        "In the morning {name} starts with {n} {things}.",
        "At first {name} counts {n} {things}.",
        "There are {n} {things} in {name}'s box.",
        "{name} has {n} {things} in a bag.",
    ),
).crossed(
    ("", "At first ", "In the morning ", "On Monday ", "Today "),
    (
        "{name} has {n} {things}",
        "{name} owns {n} {things}",
        "{name} starts with {n} {things}",
        "{name} counts {n} {things}",
        "there are {n} {things}",
    ),
    (".", " in a box.", " in a bag."),
)

QUESTIONS = Forms(
    (
        "How many {things} does {name} have now?",
        "How many {things} are there now?",
        "How many {things} does {name} have at the end?",
        "What is the number of {things} now?",
        "Tell me how many {things} {name} has now.",
        "How many are there at the end?",
        "Count the {things} that {name} has at the end.",
        "How many {things} are left for {name}?",
    ),
    (
        "How many {things} are there at the end?",
        "What is the number of {things} at the end?",
        "Tell me how many {things} there are now.",
        "How many does {name} have now?",
        "Count the {things} that {name} has now.",
        "How many {things} are left at the end?",
    ),
).crossed(
    ("How many {things} ", "How many "),
    ("does {name} have", "are there", "are left"),
    (" now?", " at the end?", " after all that?", " in the end?"),
)

SUMS = Forms(
    (
        "What is {a} {op} {b}?",
        "Compute {a} {op} {b}.",
        "{a} {op} {b} = ?",
        "How much is {a} {op} {b}?",
        "{a} {op} {b} is what?",
        "Work out {a} {op} {b}.",
        "Tell me {a} {op} {b}.",
        "{a} {op} {b}",
    ),
    (
        "Compute this: {a} {op} {b}",
        "Tell me how much {a} {op} {b} is.",
        "Work this out: {a} {op} {b}",
        "What is {a} {op} {b} = ?",
        "How much is this: {a} {op} {b}?",
        "Tell me what {a} {op} {b} is.",
    ),
).crossed(
    ("What is ", "Compute ", "How much is ", "Work out ", "Tell me ", "Please compute ", "Calculate "),
    ("{a} {op} {b}",),
    ("", "?", ".", ", please.", " = ?"),
)
SPELLED = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: `op` is +, -, * or /; `number` its right side."""

    op: str
    number: int

    def apply(self, value: int) -> int:
        """The value after this step."""
        if self.op == "+":
            return value + self.number
        if self.op == "-":
            return value - self.number
        return value * self.number if self.op == "*" else value // self.number


def _step(rng: random.Random, value: int) -> Step:
    """Draw an operation that keeps the value whole and between 1 and MOST."""
    products = [n for n in FACTORS if 2 <= value <= MOST // n and value <= 25]
    quotients = [n for n in FACTORS if value % n == 0 and value // n >= 2]
    ops = ["+"] * 3 * (value < MOST) + ["-"] * 3 * (value > 2) + ["*"] * (2 * bool(products))
    op = rng.choice(ops + ["/"] * (2 * bool(quotients)))
    if op == "*":
        return Step(op, rng.choice(products))
    if op == "/":
        return Step(op, rng.choice(quotients))
    most = min(LARGEST_STEP, value - 1 if op == "-" else MOST - value)
    return Step(op, rng.randint(1, most if rng.random() < 0.5 else min(most, 9)))


def _draw_steps(rng: random.Random, count: int) -> tuple[int, list[Step]]:
    start = rng.randint(2, 60) if rng.random() < 0.5 else rng.randint(2, 20)
    steps, value = [], start
    for _ in range(count):
        steps.append(_step(rng, value))
        value = steps[-1].apply(value)
    return start, steps


def _reasoning(start: int, steps: list[Step]) -> tuple[str, int]:
    """The lines `a + b = c`, one a step, then the answer line."""
    lines, value = [], start
    for step in steps:
        after = step.apply(value)
        lines.append(f"{value} {step.op} {step.number} = {after}")
        value = after
    lines.append(f"Answer: {value}")
    return "\n".join(lines), value


def _written(number: int, spelled: bool) -> str:
    return NUMBER_WORDS[number] if spelled and number < len(NUMBER_WORDS) else str(number)


def word_problem(rng: random.Random, unseen: bool, *, count: int) -> Problem:
    """Draw a story of `count` steps (1 to MOST_STEPS)."""
    start, steps = _draw_steps(rng, count)
    name, other = rng.sample(NAMES, 2)
    spelled = rng.random() < 0.15
    said = {"name": name, "other": other, "things": rng.choice(THINGS)}
    opening = OPENINGS.pick(rng, unseen=unseen).format(n=_written(start, spelled), **said)
    told = [STEPS[s.op].pick(rng, unseen=unseen).format(n=_written(s.number, spelled), **said) for s in steps]
    asked = QUESTIONS.pick(rng, unseen=unseen).format(**said)
    parts = [asked, opening, *told] if rng.random() < 0.15 else [opening, *told, asked]
    question = " ".join(part[0].upper() + part[1:] for part in parts)
    answer, value = _reasoning(start, steps)
    canonical = f"story {start} " + " ".join(f"{step.op}{step.number}" for step in steps)
    return Problem(canonical, question, answer, final_number(value))


def bare_sum(rng: random.Random, unseen: bool) -> Problem:
    """Draw a sum without a story, such as `What is 7 + 5?`."""
    start, (step,) = _draw_steps(rng, 1)
    op = SPELLED[step.op] if rng.random() < 0.3 else step.op
    question = SUMS.pick(rng, unseen=unseen).format(a=start, op=op, b=step.number)
    answer, value = _reasoning(start, [step])
    return Problem(f"story {start} {step.op}{step.number}", question, answer, final_number(value))
