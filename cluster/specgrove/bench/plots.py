"""Figures of the reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specgrove.errors import ConfigError


def axes(title: str, x: str, y: str) -> tuple[Any, Any]:
    """A new figure and its one plot. Raises ConfigError when matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'specgrove[plots]'") from None
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    plot = figure.subplots()
    plot.set(title=title, xlabel=x, ylabel=y)
    plot.grid(alpha=0.3)
    return figure, plot


def save(figure: Any, path: Path) -> None:
    """Write a figure; no date and fixed ids, so that the same figures give the same file."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "specgrove"}):
        figure.savefig(path, metadata={"Date": None})
