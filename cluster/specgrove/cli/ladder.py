"""`specgrove bench ladder`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from specgrove.bench.ladder import Recovery, Window, climb, policies, recover
from specgrove.bench.ladder_report import draw, report, table
from specgrove.bench.report import write
from specgrove.bench.server import Served, serving
from specgrove.bench.speed import MODEL, server_config
from specgrove.cli.console import err, out
from specgrove.client import ChatMessage
from specgrove.client.aio import AsyncClient
from specgrove.training.records import held_out

PROMPTS = 64
"""Different questions that the clients ask."""
CONTEXT = 512


def climb_and_report(
    target: str,
    draft: str,
    *,
    rungs: Sequence[int],
    repeats: int,
    seconds: float,
    warm_s: float,
    tokens: int,
    temperature: float,
    dtype: str,
    threads: int,
    bad: bool,
    recovery_s: float,
    seed: int,
    json_out: Path | None,
    plot: Path | None,
) -> None:
    """Serve the pair, measure with a progress bar, print tables. Raises SpecgroveError."""
    config = server_config(
        target, draft, dtype=dtype, threads=threads, speculative={"allow_contrary": bad}, max_model_len=CONTEXT
    )
    config["targets"][MODEL] |= {"max_num_seqs": max(rungs), "kv_slots": max(rungs) * CONTEXT}
    config["drafts"]["draft"]["kv_slots"] = max(rungs) * CONTEXT
    settings: dict[str, Any] = {
        "target": Path(target).name,
        "draft": Path(draft).name,
        "rungs": list(rungs),
        "repeats": repeats,
        "seconds": seconds,
        "warm_s": warm_s,
        "tokens": tokens,
        "temperature": temperature,
        "dtype": dtype,
        "threads": threads,
        "seed": seed,
    }

    async def measured(served: Served) -> tuple[list[Window], Recovery | None]:
        prompts = [[ChatMessage(m["role"], m["content"]) for m in s.messages] for s in held_out(seed, PROMPTS)]
        compared = policies(bad=bad)
        columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        async with AsyncClient(served.client.address) as client:
            with Progress(*columns, console=err, transient=True) as bars:
                bar = bars.add_task("", total=len(rungs) * repeats * len(compared))
                windows = await climb(
                    client,
                    MODEL,
                    prompts,
                    rungs=rungs,
                    compared=compared,
                    repeats=repeats,
                    seconds=seconds,
                    warm_s=warm_s,
                    tokens=tokens,
                    temperature=temperature,
                    seed=seed,
                    metrics=served.metrics,
                    tick=lambda name: bars.update(bar, advance=1, description=name),
                )
            if not recovery_s:
                return windows, None
            with err.status("a draft that turns bad and good again"):
                return windows, await recover(
                    client,
                    MODEL,
                    prompts,
                    concurrency=rungs[len(rungs) // 2],
                    seconds=recovery_s,
                    tokens=tokens,
                    temperature=temperature,
                )

    with serving(config) as served:
        windows, recovery = asyncio.run(measured(served))
    found = report(settings, windows, recovery)
    out.print(table(found), markup=False, soft_wrap=True)
    if json_out is not None:
        write(json_out, found)
    if plot is not None:
        draw(found, plot)
