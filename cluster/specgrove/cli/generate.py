"""`specgrove generate`: stream a completion, or show each round as a tree."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from rich.markup import escape

from specgrove.cli.console import err, out
from specgrove.cli.greeting import figures
from specgrove.cli.rounds import RoundPrinter
from specgrove.client import Client
from specgrove.core.request import ChatMessage, ChoiceFinished, Chunk, Speculation, Started
from specgrove.errors import ModelNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the command line asks for."""

    prompt: str
    model: str | None
    max_tokens: int
    temperature: float | None
    seed: int | None
    chat: bool
    speculation: bool
    show_tree: bool


def stream(ask: Ask, server: str, api_key: str | None) -> None:
    """Print the text as it comes, then the figures on stderr. Raises SpecgroveError."""
    text = sys.stdin.read() if ask.prompt == "-" else ask.prompt
    with Client(server, api_key=api_key) as client:
        model = ask.model or _first(client)
        began = time.monotonic()
        events = client.generate(
            model,
            [ChatMessage("user", text)] if ask.chat else text,
            max_tokens=ask.max_tokens,
            temperature=ask.temperature,
            seed=ask.seed,
            speculation=Speculation(mode="auto" if ask.speculation else "off"),
            trace=ask.show_tree,
        )
        rounds = RoundPrinter(client, model) if ask.show_tree else None
        tokens, seed = 0, 0
        with events:
            for event in events:
                if isinstance(event, Started):
                    seed = event.seed
                elif isinstance(event, Chunk):
                    tokens += len(event.tokens)
                    if rounds is None:
                        out.print(event.text, end="", markup=False, soft_wrap=True)
                    elif event.trace is not None:
                        rounds.show(event.trace)
                elif isinstance(event, ChoiceFinished):
                    took_s = time.monotonic() - began
                    if rounds is None:
                        out.print()
                    line = f"{figures(event.stats, tokens, took_s)}; ended by {event.reason}; seed {seed}"
                    err.print(f"[dim]{escape(line)}[/]", soft_wrap=True)


def _first(client: Client) -> str:
    served = client.models()
    if not served:
        raise ModelNotFound("the server serves no model")
    return served[0].name
