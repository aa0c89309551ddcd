"""`specgrove profile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from specgrove.bench.profile import Profile, draw, measured
from specgrove.bench.report import writable, write
from specgrove.cli.console import err, out
from specgrove.engine.loader import EngineOptions
from specgrove.planning.latency import Work


def profile_and_report(
    model: str, options: EngineOptions, *, seconds: float, json_out: Path | None, plot: Path | None
) -> None:
    """Measure, print a table, write JSON and plot. Raises SpecgroveError."""
    if json_out is not None:
        writable(json_out)
    with err.status(f"measuring {escape(model)} for {seconds:g} s"):
        found = measured(model, options, seconds=seconds)
    out.print(_table(found))
    out.print(
        f"{len(found.fitted)} passes fitted, mean error {100 * found.fit_error:.1f} %; {len(found.held_out)} passes of "
        f"other sizes, sessions and contexts held out, mean error of the prediction {100 * found.held_out_error:.1f} %"
    )
    if json_out is not None:
        write(json_out, _report(found))
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
        "fit_error": found.fit_error,
        "held_out_error": found.held_out_error,
        "passes": [*_rows(found.fitted, held_out=False), *_rows(found.held_out, held_out=True)],
    }


def _rows(passes: Sequence[tuple[Work, float]], *, held_out: bool) -> list[dict[str, Any]]:
    return [
        {"tokens": w.tokens, "sessions": w.sessions, "context": w.context, "seconds": s, "held_out": held_out}
        for w, s in passes
    ]
