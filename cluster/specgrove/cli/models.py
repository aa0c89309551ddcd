"""`specgrove models`."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from specgrove.cli.console import out
from specgrove.client import Client


def show_models(server: str, api_key: str | None) -> None:
    """A table of the served models. Raises SpecgroveError."""
    with Client(server, api_key=api_key) as client:
        served = client.models()
    table = Table(box=None)
    for title in ("model", "state", "parameters", "context", "replicas", "running", "waiting", "drafts"):
        table.add_column(title, overflow="fold")
    for status in served:
        card = status.replicas[0].model if status.replicas else None
        table.add_row(
            escape(status.name),
            f"[green]{status.state}[/]" if status.state == "ready" else f"[red]{status.state}[/]",
            f"{card.parameters:,}" if card else "",
            str(card.max_model_len) if card else "",
            str(len(status.replicas)),
            str(sum(load.running for load in status.loads)),
            str(sum(load.waiting for load in status.loads)),
            ", ".join(escape(draft.replica) for draft in status.drafts) or "[dim]none[/]",
        )
    out.print(table)
