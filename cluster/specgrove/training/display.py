"""The terminal's view of a training run: one bar a model, with loss and remaining time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from specgrove.training.trainer import Progress, Report


def _remaining(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"


@contextmanager
def shown(console: Console | None = None) -> Iterator[Report]:
    """Draw bars while the block runs; pass what it yields as `progress` to train_family."""
    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        TextColumn("step {task.fields[step]} {task.fields[loss]}{task.fields[left]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console) as bars:

        def report(progress: Progress) -> None:
            fields: dict[str, Any] = {
                "step": progress.step,
                "loss": "" if progress.loss is None else f"loss {progress.loss:.3f} ",
                "left": _remaining(progress.remaining_s),
            }
            if progress.model not in tasks:
                tasks[progress.model] = bars.add_task(progress.model, total=1.0, **fields)
            bars.update(tasks[progress.model], completed=progress.fraction, **fields)

        yield report
