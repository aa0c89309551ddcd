"""`specgrove bench ladder`: a closed loop at rising concurrency, fixed policies against the planned one.

Every policy is asked for by the request itself, of one running server, so that policies alternate within seconds: in
each repeat of a rung all of them run once, in random order. Clients ask again as soon as an answer ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from specgrove.client import ChatMessage, Chunk
from specgrove.client.aio import AsyncClient
from specgrove.core.request import ChoiceFinished, Speculation, SpeculationStats
from specgrove.telemetry.catalog import PLANNED_DEPTH, PLANNED_NODES, PREDICTED_GAIN

RUNGS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PLANNED, OFF = "planned", "off"
BAD = ", bad draft"
"""End of the names of policies whose draft is wrong on purpose."""


def policies(*, bad: bool = True) -> dict[str, Speculation]:
    """All that are compared, by name; `bad`: some of them with a bad draft, too."""
    shapes = {f"chain {length}": (1,) * length for length in (1, 2, 4, 8)}
    shapes |= {"tree 8": (2, 1, 1, 1), "tree 16": (4, 1, 1, 1), "tree 32": (4,) + (1,) * 7, "tree 64": (8,) + (1,) * 7}
    found = {OFF: Speculation(mode="off"), PLANNED: Speculation()}
    found |= {name: Speculation(branching=shape) for name, shape in shapes.items()}
    if bad:
        found[PLANNED + BAD] = Speculation(method="contrary")
        found["chain 4" + BAD] = Speculation(branching=shapes["chain 4"], method="contrary")
    return found


@dataclass(slots=True, kw_only=True)
class Window:
    """What happened in one measured window of one policy. Times in seconds."""

    policy: str
    concurrency: int
    repeat: int
    seconds: float = 0.0
    tokens: int = 0
    answers: int = 0
    ttft: list[float] = field(default_factory=list)
    token_s: list[float] = field(default_factory=list)
    """Of each answer: time from its first to its last token over the tokens after the first."""
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    """Of the answers that ended in the window."""
    planned: dict[str, float] = field(default_factory=dict)
    """Nodes, depth and predicted gain that the planner had chosen when the window ended; empty for fixed policies."""

    def to_mapping(self) -> dict[str, Any]:
        """For the JSON report."""
        rounds = max(1, self.stats.rounds)
        return {
            "policy": self.policy,
            "concurrency": self.concurrency,
            "repeat": self.repeat,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens / self.seconds,
            "answers": self.answers,
            "ttft_s": _spread(self.ttft),
            "token_s": _spread(self.token_s),
            "rounds": self.stats.rounds,
            "rounds_with_tree": self.stats.num_drafts,
            "nodes_per_round": self.stats.num_draft_tokens / rounds,
            "accepted_per_round": self.stats.num_accepted_tokens / rounds,
            "planned": self.planned,
        }


def _chosen(metrics: Mapping[str, float]) -> dict[str, float]:
    """The planner's gauges."""
    gauges = {"nodes": PLANNED_NODES, "depth": PLANNED_DEPTH, "gain": PREDICTED_GAIN}
    return {name: metrics[spec.name] for name, spec in gauges.items() if spec.name in metrics}


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    return {"median": median(ordered), "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]}


@dataclass(slots=True)
class _Loop:
    """Clients of one policy, until they are told to stop."""

    client: AsyncClient
    model: str
    prompts: Sequence[Sequence[ChatMessage]]
    asked: Speculation
    tokens: int
    temperature: float
    window: Window
    metrics: Callable[[], Mapping[str, float]] | None = None
    """Asked at the end of the window."""
    measuring: bool = False

    async def run(self, concurrency: int, *, warm_s: float, seconds: float) -> None:
        """Warm up, measure, stop."""
        tasks = [asyncio.create_task(self._ask_on(number)) for number in range(concurrency)]
        try:
            await self._sleep(tasks, warm_s)
            self.measuring, begun = True, time.perf_counter()
            await self._sleep(tasks, seconds)
            self.measuring, self.window.seconds = False, time.perf_counter() - begun
            if self.metrics is not None:
                self.window.planned = _chosen(await asyncio.to_thread(self.metrics))
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    @staticmethod
    async def _sleep(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
        """Wait, but not longer than until a client fails; its error is raised."""
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _ask_on(self, number: int) -> None:
        turn = number
        while True:
            await self._ask(self.prompts[turn % len(self.prompts)], seed=turn)
            turn += 7919  # a prime: clients walk through the prompts out of step

    async def _ask(self, prompt: Sequence[ChatMessage], *, seed: int) -> None:
        asked_at, measured = time.perf_counter(), self.measuring
        first = last = 0.0
        count = 0
        stream = self.client.generate(
            self.model,
            prompt,
            max_tokens=self.tokens,
            temperature=self.temperature,
            seed=seed,
            ignore_eos=True,
            speculation=self.asked,
        )
        async for event in stream:
            if isinstance(event, Chunk) and event.tokens:
                last = time.perf_counter()
                first = first or last
                count += len(event.tokens)
                if self.measuring:
                    self.window.tokens += len(event.tokens)
            elif isinstance(event, ChoiceFinished) and self.measuring:
                self.window.stats.add(event.stats)
        if self.measuring:
            self.window.answers += 1
            if measured:
                self.window.ttft.append(first - asked_at)
            if count > 1:
                self.window.token_s.append((last - first) / (count - 1))


async def climb(
    client: AsyncClient,
    model: str,
    prompts: Sequence[Sequence[ChatMessage]],
    *,
    rungs: Sequence[int] = RUNGS,
    compared: Mapping[str, Speculation],
    repeats: int,
    seconds: float,
    warm_s: float,
    tokens: int,
    temperature: float,
    seed: int,
    metrics: Callable[[], Mapping[str, float]] | None = None,
    tick: Callable[[str], None] = lambda _: None,
) -> list[Window]:
    """Every policy once per repeat of every rung. `metrics`: of the server; `tick` hears what comes next."""
    rng = random.Random(seed)
    found = []
    for concurrency in rungs:
        for repeat in range(repeats):
            for name in rng.sample(list(compared), len(compared)):
                tick(f"{concurrency} clients, {name}")
                window = Window(policy=name, concurrency=concurrency, repeat=repeat)
                loop = _Loop(client, model, prompts, compared[name], tokens, temperature, window)
                loop.metrics = metrics if name.startswith(PLANNED) else None
                await loop.run(concurrency, warm_s=warm_s, seconds=seconds)
                found.append(window)
    return found


@dataclass(frozen=True, slots=True)
class Recovery:
    """A draft that was bad and turned good again: planned tokens per second over time since then."""

    bucket_s: float
    rates: tuple[float, ...]
    good_rate: float
    """Before it turned bad."""

    @property
    def seconds(self) -> float | None:
        """Until two buckets in a row reach 0.9 of the rate before; None when they never do."""
        for index, pair in enumerate(zip(self.rates, self.rates[1:], strict=False)):
            if min(pair) >= 0.9 * self.good_rate:
                return (index + 1) * self.bucket_s
        return None


async def recover(
    client: AsyncClient,
    model: str,
    prompts: Sequence[Sequence[ChatMessage]],
    *,
    concurrency: int,
    seconds: float,
    tokens: int,
    temperature: float,
    bucket_s: float = 1.0,
) -> Recovery:
    """Planned with a good draft, a bad one and a good one again, `seconds` each."""

    async def measured(asked: Speculation, buckets: int, length: float) -> list[float]:
        rates = []
        window = Window(policy=PLANNED, concurrency=concurrency, repeat=0)
        loop = _Loop(client, model, prompts, asked, tokens, temperature, window)
        running = asyncio.create_task(loop.run(concurrency, warm_s=0.0, seconds=buckets * length))
        before = 0
        for _ in range(buckets):
            await asyncio.sleep(length)
            rates.append((window.tokens - before) / length)
            before = window.tokens
        await running
        return rates

    good = await measured(Speculation(), 2, seconds / 2)
    await measured(Speculation(method="contrary"), 1, seconds)
    again = await measured(Speculation(), int(seconds / bucket_s), bucket_s)
    return Recovery(bucket_s, tuple(again), good[-1])
