"""`specgrove profile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from specgrove.bench.profile import Profile, draw, measured
from specgrove.cli.console import err, out
from specgrove.planning.latency import Work


def profile_and_report(
    model: str,
    *,
    dtype: str,
    device: str,
    threads: int,
    seconds: float,
    seed: int,
    json_out: Path | None,
    plot: Path | None,
) -> None:
    """Measure, print a table, write JSON and plot. Raises SpecgroveError."""
    with err.status(f"measuring {escape(model)} for {seconds:g} s"):
        found = measured(model, dtype=dtype, device=device, threads=threads, seconds=seconds, seed=seed)
    out.print(_table(found))
    out.print(
        f"{found.fitted} passes fitted, {found.held_out} held out; mean error of the prediction on held-out passes: "
        f"{100 * found.held_out_error:.1f} %"
    )
    if json_out is not None:
        json_out.write_text(json.dumps(_report(found), indent=1) + "\n")
    if plot is not None:
        draw(found, plot)


def _table(found: Profile) -> Table:
    table = Table("new tokens", "one session, 64 of context", "relative to 1", box=None)
    one = found.model.seconds(Work(1, 1, 64))
    for tokens in found.model.knots:
        seconds = found.model.seconds(Work(tokens, 1, 64))
        table.add_row(str(tokens), f"{1e3 * seconds:.2f} ms", f"{seconds / one:.2f}")
    return table


def _report(found: Profile) -> dict[str, Any]:
    """`latency` is what `explain size --latency` reads."""
    return {
        "profile": found.name,
        "settings": found.settings,
        "latency": {str(n): found.model.seconds(Work(n, 1, 64)) for n in found.model.knots},
        "model": found.model.to_mapping(),
        "held_out_error": found.held_out_error,
        "passes": [
            {"tokens": w.tokens, "sessions": w.sessions, "context": w.context, "seconds": s} for w, s in found.passes
        ],
    }
