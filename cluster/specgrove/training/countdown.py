"""Countdown: reach a number from three or four given ones, one operation per thought, and judge what is left.

Every number is used exactly once. A thought is a line `8 - 2 = 6 (left: 3 6 7)`; the state after it is the sorted
numbers that are left. `reachable` is the exact search that judgments come from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import lru_cache

from specgrove.training.checks import Check, last_line
from specgrove.training.problem import Forms, Problem

State = tuple[int, ...]
"""Numbers that are left, ascending."""

LARGEST_GIVEN = 10
MOST = 100
"""No number on the way, and no target, is larger."""

SOLVE = Forms(
    (
        "Use {numbers} to make {target}.",
        "Make {target} from {numbers}.",
        "Reach {target} with the numbers {numbers}.",
        "Numbers: {numbers}. Target: {target}.",
        "Combine {numbers} to get {target}.",
        "With {numbers}, make {target}.",
        "How can {numbers} make {target}?",
        "Find a way from {numbers} to the target {target}.",
    ),
    (
        "Make {target} with the numbers {numbers}.",
        "Target: {target}. Numbers: {numbers}.",
        "Use the numbers {numbers} to reach {target}.",
        "Combine the numbers {numbers} to make {target}.",
        "Find a way to make {target} from {numbers}.",
        "With the numbers {numbers}, reach the target {target}.",
    ),
).crossed(
    ("Use ", "Combine ", "Take ", "With "),
    ("{numbers}", "the numbers {numbers}"),
    (" to make {target}.", " to reach {target}.", " to get {target}.", " and make {target}.", ", target {target}."),
)
JUDGE = Forms(
    (
        "Left: {numbers}. Target: {target}. Sure, likely or impossible?",
        "Can {numbers} still make {target}?",
        "Judge the numbers {numbers} for {target}.",
        "Is {target} in reach of {numbers}?",
        "Judge this: {numbers} left, target {target}.",
        "Is it possible to make {target} from {numbers}?",
        "Sure, likely or impossible: {numbers} to {target}?",
        "Left are {numbers}. Can they reach {target}?",
    ),
    (
        "Target: {target}. Left: {numbers}. Sure, likely or impossible?",
        "Can {target} still be in reach of {numbers}?",
        "Is it possible for {numbers} to reach {target}?",
        "Judge this: {numbers} to {target}.",
        "Left are {numbers}. Is {target} possible?",
        "Sure, likely or impossible: can {numbers} make {target}?",
    ),
).crossed(
    ("Can ", "Judge: can ", "Sure, likely or impossible: can "),
    ("{numbers}", "the numbers {numbers}"),
    (" make {target}?", " reach {target}?", " still reach {target}?", " get to {target}?"),
)
SURE, LIKELY, IMPOSSIBLE = "sure", "likely", "impossible"

_THOUGHT = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+) \(left: (\d+(?: \d+)*)\)")


def results(a: int, b: int) -> Iterator[tuple[int, str, int, int]]:
    """(x, op, y, result) of the operations on two numbers that give a whole number from 1 to MOST."""
    low, high = sorted((a, b))
    if high + low <= MOST:
        yield high, "+", low, high + low
    if high - low >= 1:
        yield high, "-", low, high - low
    if high * low <= MOST:
        yield high, "*", low, high * low
    if high % low == 0:
        yield high, "/", low, high // low


def thoughts(state: State) -> Iterator[tuple[str, State]]:
    """Every line that may come next, and the state after it."""
    for i in range(len(state)):
        for j in range(i + 1, len(state)):
            rest = (*state[:i], *state[i + 1 : j], *state[j + 1 :])
            for x, op, y, value in results(state[i], state[j]):
                left = tuple(sorted((*rest, value)))
                yield f"{x} {op} {y} = {value} (left: {_listed(left)})", left


@lru_cache(maxsize=1 << 18)
def reachable(state: State, target: int) -> bool:
    """Exact search: can all of these numbers be combined to the target?"""
    if len(state) == 1:
        return state[0] == target
    return any(reachable(left, target) for _, left in thoughts(state))


def judgment(state: State, target: int) -> str:
    """`impossible` when the target cannot be reached; else `sure` with one or two numbers left, `likely` with more."""
    if not reachable(state, target):
        return IMPOSSIBLE
    return SURE if len(state) <= 2 else LIKELY


def after(state: State, line: str) -> State | None:
    """The state after a thought; None when the line is no right thought in this state."""
    found = _THOUGHT.fullmatch(line.strip())
    if found is None:
        return None
    return dict(thoughts(state)).get(line.strip()) if _canonical(found) else None


def _canonical(found: re.Match[str]) -> bool:
    return all(part == str(int(part)) for part in (found[1], found[3], found[4], *found[5].split()))


def _listed(state: State) -> str:
    return " ".join(map(str, state))


def _given(rng: random.Random, numbers: list[int]) -> str:
    texts = [str(number) for number in numbers]
    if rng.random() < 0.3:
        return f"{', '.join(texts[:-1])} and {texts[-1]}"
    return rng.choice((", ", " ")).join(texts)


def solves(numbers: State, target: int) -> Check:
    """Every line is a right thought in its state, and the last one leaves the target alone."""

    def check(text: str) -> bool:
        state: State | None = numbers
        for line in text.strip().split("\n"):
            state = None if state is None else after(state, line)
        return state == (target,)

    return check


def _walk(rng: random.Random, count: int) -> tuple[State, list[tuple[str, State]]]:
    """Numbers and a random way to one number, which becomes the target; dull ways (times or by one) are rare."""
    while True:
        numbers = tuple(sorted(rng.randint(1, LARGEST_GIVEN) for _ in range(count)))
        state, lines = numbers, []
        while len(state) > 1:
            line, state = rng.choice(list(thoughts(state)))
            lines.append((line, state))
        dull = any(" 1 =" in line and ("*" in line or "/" in line) for line, _ in lines)
        if state[0] >= 5 and (not dull or rng.random() < 0.1):
            return numbers, lines


def solve(rng: random.Random, unseen: bool, *, count: int) -> Problem:
    """Draw a task with `count` numbers (3 or 4) that can be solved."""
    numbers, lines = _walk(rng, count)
    target = lines[-1][1][0]
    shuffled = rng.sample(numbers, count)
    question = SOLVE.pick(rng, unseen=unseen).format(numbers=_given(rng, shuffled), target=target)
    answer = "\n".join(line for line, _ in lines)
    return Problem(f"countdown {_listed(numbers)} {target}", question, answer, solves(numbers, target))


def judge_question(state: State, target: int) -> str:
    """How a search asks for a judgment: a wording that is trained on."""
    return JUDGE.trained[0].format(numbers=_listed(state), target=target)


def judge_answer(state: State, target: int) -> str:
    """With two numbers left every operation is tried in writing; then the word alone on its line."""
    tried = [f"{x} {op} {y} = {value}" for x, op, y, value in results(*state)] if len(state) == 2 else []
    return "\n".join([*tried, judgment(state, target)])


def judge(rng: random.Random, unseen: bool) -> Problem:
    """Draw a state of one to three numbers as a search meets it, about half of them impossible."""
    numbers, lines = _walk(rng, rng.choice((3, 4, 4)))
    target = lines[-1][1][0]
    depth = rng.randint(1, len(numbers) - 1)
    state = lines[depth - 1][1]
    if rng.random() < 0.65:  # the state after other thoughts, from which the target is mostly out of reach
        state = numbers
        for _ in range(depth):
            state = rng.choice(list(thoughts(state)))[1]
    if len(state) == 1 and rng.random() < 0.7:
        state = lines[-2][1] if rng.random() < 0.4 else tuple(sorted(rng.choices(range(1, 31), k=2)))
    question = JUDGE.pick(rng, unseen=unseen).format(numbers=_listed(state), target=target)
    answer = judge_answer(state, target)
    return Problem(f"judge {_listed(state)} {target}", question, answer, last_line(judgment(state, target)))
