"""`specgrove train family`."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from specgrove.cli.console import out


def train_and_report(out_dir: Path, *, minutes: float, seed: int, resume: bool) -> None:
    """Train with a progress bar per model, then print the cards. Raises SpecgroveError."""
    with out.status("loading torch"):
        from specgrove.training.display import shown
        from specgrove.training.run import train_family
    with shown(out) as report:
        cards = train_family(out_dir, minutes=minutes, seed=seed, resume=resume, progress=report)
    table = Table("model", "parameters", "scores", box=None)
    for name, card in cards.items():
        scores = ", ".join(f"{key} {value:.3f}" for key, value in card.scores.items())
        table.add_row(escape(name), f"{card.parameters:,}", escape(scores))
    out.print(table)
