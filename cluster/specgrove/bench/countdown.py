"""Countdown by tree search against straight answers: breadth first, the model proposes thoughts and judges states.

The search of Tree of Thoughts (Yao et al., 2023) in its smallest form. The rules of the game are the environment's: a
proposed line that breaks them is dropped, as a wrong straight answer is counted wrong.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specgrove.client import ChatMessage
from specgrove.client.aio import AsyncClient
from specgrove.training import countdown
from specgrove.training.countdown import IMPOSSIBLE, LIKELY, SURE, State
from specgrove.training.records import held_out
from specgrove.training.tokenizer import TURN_END, TURN_START

WIDTH = 5
"""States that are kept at each depth."""
PROPOSALS = 8
"""Sampled thoughts per state."""
VALUE = {SURE: 20.0, LIKELY: 1.0, IMPOSSIBLE: 0.001}
"""Weight of a judgment; the numbers are those of the paper's Game of 24."""
AT_ONCE = 8
_MAX_LINE, _MAX_JUDGMENT = 40, 60


@dataclass(frozen=True, slots=True)
class Task:
    """One held-out problem: its question, numbers and target."""

    question: str
    numbers: State
    target: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Problems solved each way, of `asked`."""

    asked: int
    straight: int
    searched: int

    def intervals(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """95 % Wilson intervals of the two shares: straight, searched."""
        return wilson(self.straight, self.asked), wilson(self.searched, self.asked)


def wilson(right: int, asked: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927). `asked` is at least 1."""
    share, spread = right / asked, z * z / asked
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / asked + spread / (4 * asked)) / (1 + spread)
    return middle - half, middle + half


def tasks(seed: int, count: int, kinds: Sequence[str] = ("countdown3", "countdown4")) -> list[Task]:
    """Held-out problems, from `canonical`, which names numbers and target."""
    found = []
    for sample in held_out(seed, count, kinds=kinds):
        _, *numbers, target = sample.canonical.split()
        found.append(Task(sample.messages[-1]["content"], tuple(map(int, numbers)), int(target)))
    return found


def _prompt(question: str, lines: Sequence[str]) -> str:
    """The family's chat format with the answer begun."""
    begun = "".join(f"{line}\n" for line in lines)
    return f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n{begun}"


class Search:
    """Solves tasks with one model of a server."""

    def __init__(self, client: AsyncClient, model: str, *, seed: int) -> None:
        self._client, self._model, self._seed = client, model, seed
        self._room = asyncio.Semaphore(AT_ONCE)

    async def straight(self, task: Task) -> bool:
        """One greedy answer."""
        async with self._room:
            reply = await self._client.complete(
                self._model, [ChatMessage("user", task.question)], max_tokens=200, temperature=0.0
            )
        return countdown.solves(task.numbers, task.target)(reply.choices[0].text)

    async def breadth_first(self, task: Task) -> bool:
        """Keep the WIDTH best states at each depth, judged by the model."""
        frontier: dict[State, list[str]] = {task.numbers: []}
        while len(next(iter(frontier))) > 1:
            proposed = await asyncio.gather(*(self._propose(task, s, lines) for s, lines in frontier.items()))
            states = {state: lines for one in proposed for state, lines in one.items()}
            if not states:
                return False
            if (task.target,) in states:
                return True
            values = await asyncio.gather(*(self._judge(state, task.target) for state in states))
            ranked = sorted(zip(values, states, strict=True), key=lambda pair: -pair[0])
            frontier = {state: states[state] for _, state in ranked[:WIDTH]}
        return False

    async def _propose(self, task: Task, state: State, lines: list[str]) -> dict[State, list[str]]:
        """Distinct states after sampled thoughts, with the lines that lead there."""
        async with self._room:
            reply = await self._client.complete(
                self._model,
                _prompt(task.question, lines),
                n=PROPOSALS,
                temperature=1.0,
                seed=self._seed,
                stop=("\n",),
                max_tokens=_MAX_LINE,
            )
        found: dict[State, list[str]] = {}
        for choice in reply.choices:
            after = countdown.after(state, choice.text)
            if after is not None:
                found.setdefault(after, [*lines, choice.text.strip()])
        return found

    async def _judge(self, state: State, target: int) -> float:
        """What the model says of a state; a word that is none counts as impossible."""
        question = countdown.judge_question(state, target)
        async with self._room:
            reply = await self._client.complete(
                self._model, [ChatMessage("user", question)], max_tokens=_MAX_JUDGMENT, temperature=0.0
            )
        word = reply.choices[0].text.strip().split("\n")[-1]
        return VALUE.get(word, VALUE[IMPOSSIBLE])


async def compare(
    client: AsyncClient, model: str, *, seed: int, count: int, tick: Callable[[], None] = lambda: None
) -> Compared:
    """Solve `count` held-out problems both ways."""
    search, problems = Search(client, model, seed=seed), tasks(seed, count)
    straight = await asyncio.gather(*(search.straight(task) for task in problems))
    searched = []
    for task in problems:
        searched.append(await search.breadth_first(task))
        tick()
    return Compared(len(problems), sum(straight), sum(searched))
