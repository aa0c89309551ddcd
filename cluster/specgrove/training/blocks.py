"""Blocksworld: plans as moves with the state after each move, and how far a state is from its goal.

A state is a set of stacks, each written bottom to top as `[ red blue ]`, in the order of their names. A plan follows
one rule, so that a small model can learn it: put a block where the goal wants it as soon as that can be done for good,
else put the first block that is in the way on the table. That is at most twice the shortest plan.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from functools import lru_cache
from itertools import permutations

from specgrove.training.checks import Check, last_line
from specgrove.training.problem import Forms, Problem

State = tuple[tuple[str, ...], ...]
"""Stacks, each from bottom to top, in the order of their names."""
Move = tuple[str, str]
"""(block, what it goes onto): another block, or TABLE."""

TABLE = "table"
COLORS = ("red", "blue", "green", "yellow", "black", "white")

PLAN = Forms(
    (
        "Blocks: {state}. Goal: {goal}.",
        "Move the blocks from {state} to {goal}.",
        "The stacks are {state}. Make {goal}.",
        "From {state} build {goal}.",
        "Start: {state}. End: {goal}. Plan the moves.",
        "Plan: {state} to {goal}.",
        "Stack the blocks {state} as {goal}.",
        "Turn {state} into {goal}.",
    ),
    (
        "The blocks are {state}. Goal: {goal}.",
        "Plan the moves from {state} to {goal}.",
        "Start: {state}. Goal: {goal}.",
        "From the stacks {state} make {goal}.",
        "Move the blocks {state}. Goal: {goal}.",
        "Turn the stacks {state} into {goal}.",
    ),
).crossed(
    ("Blocks: ", "Start: ", "The stacks are ", "Here are blocks: ", "Now: "),
    ("{state}. ",),
    ("Goal: {goal}.", "Make {goal}.", "Build {goal}.", "Plan the moves to {goal}.", "Wanted: {goal}."),
)
DISTANCE = Forms(
    (
        "Blocks: {state}. Goal: {goal}. How many moves are left?",
        "How many moves from {state} to {goal}?",
        "How far is {state} from {goal}?",
        "Count the moves from {state} to {goal}.",
        "How many moves are left from {state} to {goal}?",
        "Judge the blocks {state} for the goal {goal}.",
        "Is {state} near the goal {goal}?",
        "The goal is {goal}. How many moves does {state} need?",
    ),
    (
        "Blocks: {state}. Goal: {goal}. How many moves does it need?",
        "Count the moves that are left from {state} to {goal}.",
        "How far is {state} from the goal {goal}?",
        "Judge the blocks {state}. The goal is {goal}.",
        "How many moves does {state} need to {goal}?",
        "Is the goal {goal} near? The blocks are {state}.",
    ),
).crossed(
    ("How many moves ", "How many steps "),
    ("from {state} to {goal}", "are left from {state} to {goal}", "does {state} need to {goal}"),
    ("?", ", at least?", ", please?"),
)

_LINE = re.compile(r"move (\w+) (?:onto|to) (\w+): (.+)")


def written(state: State) -> str:
    """Such as `[ blue ] [ red green ]`."""
    return " ".join(f"[ {' '.join(stack)} ]" for stack in state)


def _ordered(stacks: list[tuple[str, ...]]) -> State:
    return tuple(sorted(stack for stack in stacks if stack))


def moves(state: State) -> dict[Move, State]:
    """Every legal move and the state after it; a block that stands on the table is not put there again."""
    found: dict[Move, State] = {}
    for i, stack in enumerate(state):
        block, rest = stack[-1], [other for j, other in enumerate(state) if j != i]
        if len(stack) > 1:
            found[block, TABLE] = _ordered([*rest, stack[:-1], (block,)])
        for j, other in enumerate(rest):
            found[block, other[-1]] = _ordered([*rest[:j], *rest[j + 1 :], stack[:-1], (*other, block)])
    return found


def _below(state: State) -> dict[str, str]:
    """What each block stands on."""
    return {block: under for stack in state for under, block in zip((TABLE, *stack), stack, strict=False)}


def _settled(state: State, goal: State) -> set[str]:
    """Blocks that stand on what the goal wants below them, all the way down."""
    wanted, settled = _below(goal), set()
    for stack in state:
        for under, block in zip((TABLE, *stack), stack, strict=False):
            if wanted[block] != under or (under != TABLE and under not in settled):
                break
            settled.add(block)
    return settled


def next_move(state: State, goal: State) -> Move:
    """The move that the rule says; the states must differ."""
    wanted, settled = _below(goal), _settled(state, goal)
    possible = moves(state)
    for stack in state:
        block = stack[-1]
        under = wanted[block]
        if block not in settled and (block, under) in possible and (under == TABLE or under in settled):
            return block, under
    return next((s[-1], TABLE) for s in state if s[-1] not in settled and len(s) > 1)


def plan(state: State, goal: State) -> list[tuple[Move, State]]:
    """Moves and the states after them, until the goal stands."""
    steps = []
    while state != goal:
        move = next_move(state, goal)
        state = moves(state)[move]
        steps.append((move, state))
    return steps


@lru_cache(maxsize=1 << 16)
def shortest(state: State, goal: State) -> tuple[Move, ...]:
    """A shortest plan, by exact breadth-first search."""
    seen, queue = {state}, deque[tuple[State, tuple[Move, ...]]]([(state, ())])
    while queue:
        here, made = queue.popleft()
        if here == goal:
            return made
        for move, there in moves(here).items():
            if there not in seen:
                seen.add(there)
                queue.append((there, (*made, move)))
    raise ValueError(f"{written(goal)} has other blocks than {written(state)}")


def line(move: Move, state: State) -> str:
    """A move and the state after it, as answers have it."""
    block, onto = move
    return f"move {block} {'to' if onto == TABLE else 'onto'} {onto}: {written(state)}"


def after(state: State, text: str) -> State | None:
    """The state after a line; None when it is no legal move, or says another state."""
    found = _LINE.fullmatch(text.strip())
    if found is None:
        return None
    move = (found[1], found[2])
    there = moves(state).get(move)
    return there if there is not None and text.strip() == line(move, there) else None


def reaches(state: State, goal: State) -> Check:
    """Every line is a legal move with the right state after it, and the goal stands at the end."""

    def check(text: str) -> bool:
        here: State | None = state
        for one in text.strip().split("\n"):
            here = None if here is None else after(here, one)
        return here == goal

    return check


def _random_state(rng: random.Random, blocks: list[str]) -> State:
    stacks: list[tuple[str, ...]] = []
    for block in rng.sample(blocks, len(blocks)):
        place = rng.randint(0, len(stacks))
        if place == len(stacks):
            stacks.append((block,))
        else:
            stacks[place] = (*stacks[place], block)
    return _ordered(stacks)


def _draw(rng: random.Random, count: int) -> tuple[State, State]:
    blocks = rng.sample(COLORS, count)
    while True:
        state, goal = _random_state(rng, blocks), _random_state(rng, blocks)
        if state != goal:
            return state, goal


def _canonical(state: State, goal: State) -> str:
    """The same for the same shapes in other colors: the least of all ways to name the blocks."""

    def named(names: dict[str, str]) -> str:
        shapes = (sorted("".join(names[block] for block in stack) for stack in stacks) for stacks in (state, goal))
        return " > ".join(" ".join(shape) for shape in shapes)

    blocks = [block for stack in state for block in stack]
    letters = "abcdef"[: len(blocks)]
    return min(named(dict(zip(blocks, order, strict=True))) for order in permutations(letters))


def solve(rng: random.Random, unseen: bool, *, count: int) -> Problem:
    """Draw a start and a goal of `count` blocks (3 or 4)."""
    state, goal = _draw(rng, count)
    question = PLAN.pick(rng, unseen=unseen).format(state=written(state), goal=written(goal))
    answer = "\n".join(line(move, there) for move, there in plan(state, goal))
    return Problem(f"blocks {_canonical(state, goal)}", question, answer, reaches(state, goal))


def judge_question(state: State, goal: State) -> str:
    """How a search asks for a judgment: a wording that is trained on."""
    return DISTANCE.trained[0].format(state=written(state), goal=written(goal))


def judge_answer(state: State, goal: State) -> str:
    """Which blocks a shortest plan moves, in the order of the state, then how often in all: its last line `3 moves`."""
    turns = Counter(block for block, _ in shortest(state, goal))
    names = [f"{block} twice" if turns[block] > 1 else block for stack in state for block in stack if block in turns]
    left = turns.total()
    number = f"{left} move" if left == 1 else f"{left} moves"
    return f"to move: {', '.join(names)}\n{number}" if names else number


def judge(rng: random.Random, unseen: bool) -> Problem:
    """Draw a state on the way to a goal, or beside it."""
    state, goal = _draw(rng, rng.choice((3, 4)))
    if rng.random() < 0.5:
        way = [there for _, there in plan(state, goal)]
        state = rng.choice(way)
    question = DISTANCE.pick(rng, unseen=unseen).format(state=written(state), goal=written(goal))
    answer = judge_answer(state, goal)
    check = last_line(answer.split("\n")[-1])
    return Problem(f"distance {_canonical(state, goal)}", question, answer, check)
