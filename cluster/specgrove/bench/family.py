"""`specgrove eval family`: fresh problems of every kind, solved through the server, scored by the exact checkers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from specgrove.client import ChatMessage
from specgrove.client.aio import AsyncClient
from specgrove.core.request import SpeculationStats
from specgrove.training.records import KINDS, Sample, held_out

MAX_ANSWER_TOKENS = 220
AT_ONCE = 8
"""Requests in flight."""


@dataclass(slots=True)
class Score:
    """Answers of one model to one kind, in trained or in unseen wordings."""

    asked: int = 0
    distinct: int = 0
    """Different problems among them; small worlds have few, whatever is asked for."""
    right: int = 0
    tokens: int = 0
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    wrong: list[dict[str, str]] = field(default_factory=list)
    """A few answers that were not right, to look at."""

    @property
    def accuracy(self) -> float:
        """Share of right answers, from 0 to 1."""
        return self.right / max(1, self.asked)

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens per target step."""
        return self.tokens / max(1, self.stats.rounds)

    def to_mapping(self) -> dict[str, Any]:
        """For the JSON report."""
        figures = {"accuracy": round(self.accuracy, 4), "tokens_per_round": round(self.tokens_per_round, 3)}
        return asdict(self) | figures


GROUPS: dict[str, tuple[str, ...]] = {
    "one and two steps": ("one_step", "two_step"),
    "three and four steps": ("three_step", "four_step"),
    "blocksworld": ("blocks3", "blocks4"),
    "format requests": ("count", "sort", "repeat", "echo", "reverse", "json", "bullets", "members"),
}
"""Kinds that are reported together too; all kinds together are always reported."""
ALL = "all"
Report = dict[str, dict[str, dict[str, Score]]]
"""model -> `trained` or `unseen` (wordings) -> kind -> score."""

SHOWN_WRONG = 3


async def evaluate(
    client: AsyncClient,
    models: Sequence[str],
    *,
    seed: int,
    count: int,
    kinds: Sequence[str] = (),
    tick: Callable[[], None] = lambda: None,
) -> Report:
    """Ask every model `count` held-out problems of each kind, greedily, once per side of the wordings.

    tick is called after every answer. Raises ConfigError for unknown kinds, and what the server answers.
    """
    kinds = list(kinds or KINDS)
    room = asyncio.Semaphore(AT_ONCE)
    report: Report = {}
    for model in models:
        for side in ("trained", "unseen"):
            scores = report.setdefault(model, {}).setdefault(side, {kind: Score() for kind in kinds})
            samples = held_out(seed, count * len(kinds), unseen=side == "unseen", kinds=kinds)
            for kind, score in scores.items():
                score.distinct = len({sample.canonical for sample in samples if sample.kind == kind})

            async def ask(sample: Sample, model: str = model, scores: dict[str, Score] = scores) -> None:
                async with room:
                    await _ask(client, model, sample, scores[sample.kind])
                tick()

            await asyncio.gather(*(ask(sample) for sample in samples))
    return report


def grouped(scores: Mapping[str, Score]) -> dict[str, Score]:
    """Sums over GROUPS (of the kinds that were asked) and over all kinds; examples of wrong answers are left out."""
    found: dict[str, Score] = {}
    for name, kinds in {**GROUPS, ALL: tuple(scores)}.items():
        members = [scores[kind] for kind in kinds if kind in scores]
        if not members:
            continue
        total = found.setdefault(name, Score())
        for score in members:
            total.asked += score.asked
            total.distinct += score.distinct
            total.right += score.right
            total.tokens += score.tokens
            total.stats.add(score.stats)
    return found


async def _ask(client: AsyncClient, model: str, sample: Sample, score: Score) -> None:
    chat = [ChatMessage(message["role"], message["content"]) for message in sample.messages]
    reply = await client.complete(model, chat, max_tokens=MAX_ANSWER_TOKENS, temperature=0.0)
    choice = reply.choices[0]
    score.asked += 1
    score.tokens += len(choice.tokens)
    score.stats.add(choice.stats)
    if sample.check(choice.text):
        score.right += 1
    elif len(score.wrong) < SHOWN_WRONG:
        score.wrong.append(
            {"question": sample.messages[-1]["content"], "answer": choice.text, "reference": sample.answer}
        )
