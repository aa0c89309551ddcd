"""`specgrove eval family`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from specgrove.bench import countdown, family
from specgrove.bench.report import writable, write
from specgrove.cli.console import err, out
from specgrove.client.aio import AsyncClient
from specgrove.training.records import KINDS


def evaluate_and_report(
    server: str,
    api_key: str | None,
    *,
    models: Sequence[str],
    kinds: Sequence[str],
    seed: int,
    count: int,
    search: int,
    json_out: Path | None,
) -> None:
    """Score with a progress bar, print a table, write the JSON report. Raises SpecgroveError."""
    if json_out is not None:
        writable(json_out)
    scores, searches = asyncio.run(_run(server, api_key, models, kinds, seed=seed, count=count, search=search))
    out.print(_table(scores))
    for model, compared in searches.items():
        straight, searched = compared.intervals()
        out.print(
            f"{escape(model)}: Countdown, {compared.asked} problems: straight {compared.straight} "
            f"({straight[0]:.2f} to {straight[1]:.2f}), searched {compared.searched} "
            f"({searched[0]:.2f} to {searched[1]:.2f})"
        )
    if json_out is not None:
        write(json_out, _report(scores, searches, seed=seed, count=count))


async def _run(
    server: str, api_key: str | None, models: Sequence[str], kinds: Sequence[str], *, seed: int, count: int, search: int
) -> tuple[family.Report, dict[str, countdown.Compared]]:
    client = AsyncClient(server, api_key=api_key)
    try:
        asked = list(models) or [one.name for one in await client.models()]
        with Progress(console=err, transient=True) as bars:
            bar = bars.add_task("problems", total=2 * len(asked) * count * len(kinds or KINDS))
            scores = await family.evaluate(
                client, asked, seed=seed, count=count, kinds=kinds, tick=partial(bars.advance, bar)
            )
            searches = {}
            for model in asked if search else ():
                bar = bars.add_task(f"search, {model}", total=search)
                searches[model] = await countdown.compare(
                    client, model, seed=seed, count=search, tick=partial(bars.advance, bar)
                )
        return scores, searches
    finally:
        await client.close()


def _table(report: family.Report) -> Table:
    table = Table("model", "kind", "trained wordings", "unseen wordings", "tokens per round", box=None)
    for model, sides in report.items():
        trained, other = ({**side, **family.grouped(side)} for side in (sides["trained"], sides["unseen"]))
        for kind, score in trained.items():
            unseen = other[kind]
            rounds = score.stats.rounds + unseen.stats.rounds
            table.add_row(
                escape(model),
                kind,
                f"{score.accuracy:.0%}",
                f"{unseen.accuracy:.0%}",
                f"{(score.tokens + unseen.tokens) / max(1, rounds):.2f}",
            )
    return table


def _report(scores: family.Report, searches: dict[str, countdown.Compared], *, seed: int, count: int) -> dict[str, Any]:
    return {
        "eval": "family",
        "seed": seed,
        "count": count,
        "models": {
            model: {
                side: {kind: score.to_mapping() for kind, score in of_side.items()} for side, of_side in sides.items()
            }
            for model, sides in scores.items()
        },
        "groups": {
            model: {
                side: {name: score.to_mapping() for name, score in family.grouped(of_side).items()}
                for side, of_side in sides.items()
            }
            for model, sides in scores.items()
        },
        "countdown": {
            model: asdict(one) | {"intervals": dict(zip(("straight", "searched"), one.intervals(), strict=True))}
            for model, one in searches.items()
        },
    }
