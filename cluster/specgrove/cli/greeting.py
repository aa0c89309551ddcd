"""What a newcomer sees first: a completion with its acceptance figures, and how to call the server."""

from __future__ import annotations

import time

from rich.markup import escape

from specgrove.cli.console import err, out
from specgrove.client import Client
from specgrove.core.request import ChatMessage, SpeculationStats
from specgrove.errors import RequestError

QUESTION = "Ali has 10 stamps. Ali loses 1. Ali finds 6 more. How many stamps does Ali have now?"
"""Something that the bundled family has learned; any other model can do it too."""
TOKENS = 64
WAIT_S = 60.0


def first_completion(address: str, model: str, api_key: str | None) -> None:
    """Ask once over gRPC and print prompt, answer and figures. Raises SpecgroveError."""
    with Client(address, api_key=api_key) as client, err.status("first completion"):
        _wait_for_drafts(client, model)
        began = time.monotonic()
        reply = client.complete(model, _prompt(client, model), max_tokens=TOKENS, temperature=0.0, timeout_s=WAIT_S)
        took_s = time.monotonic() - began
    choice = reply.choices[0]
    out.print(f"\n[bold]first completion[/] [dim]({escape(model)})[/]")
    out.print(f"  [cyan]{escape(QUESTION)}[/]")
    out.print(f"  {escape(choice.text.strip())}")
    out.print(f"  [dim]{figures(choice.stats, len(choice.tokens), took_s)}[/]", soft_wrap=True)


def figures(stats: SpeculationStats, tokens: int, took_s: float) -> str:
    """One line: how many rounds the tokens took, and what became of the drafts' trees."""
    rate = f"{tokens} tokens in {stats.rounds} rounds, {took_s:.2f} s"
    if not stats.num_drafts:
        return f"{rate}; decoded plainly"
    per_round = tokens / max(1, stats.rounds)
    kept = stats.num_accepted_tokens / stats.num_drafts
    return (
        f"{rate}: {per_round:.2f} tokens a round; {stats.num_drafts} rounds had a tree, "
        f"{stats.num_draft_tokens / stats.num_drafts:.1f} nodes each, of which {kept:.2f} were accepted"
    )


def _wait_for_drafts(client: Client, model: str) -> None:
    """Drafts dial their targets within a second or so; the first completion should show them at work."""
    limit = time.monotonic() + 5.0
    while time.monotonic() < limit:
        mine = [status for status in client.models() if status.name == model]
        if mine and (mine[0].drafts or not mine[0].replicas or not mine[0].replicas[0].draft_pools):
            return
        time.sleep(0.2)


def _prompt(client: Client, model: str) -> str | list[ChatMessage]:
    """A chat message where the model has a template, else the bare text."""
    messages = [ChatMessage("user", QUESTION)]
    try:
        client.complete(model, messages, max_tokens=0, timeout_s=WAIT_S)
    except RequestError:
        return QUESTION
    return messages


def how_to_call(http: str, grpc: str, model: str, *, needs_key: bool) -> None:
    """A curl line and a Python example that work as they stand."""
    header = " -H 'Authorization: Bearer YOUR_KEY'" if needs_key else ""
    key = ", api_key='YOUR_KEY'" if needs_key else ""
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'
    python = f"from specgrove.client import Client; print(Client('{grpc}'{key}).complete('{model}', '{QUESTION}').text)"
    out.print("\n[bold]call it[/]")
    for line in (
        f"  curl {http}/v1/chat/completions{header} \\\n    -H 'Content-Type: application/json' -d '{body}'",
        f'  python -c "{python}"',
        f"  specgrove generate '{QUESTION}' --chat --show-tree --server {grpc}",
    ):
        out.print(line, markup=False, soft_wrap=True)
