"""One round as a picture: the drafted tree with the accepted path, and what was emitted."""

from __future__ import annotations

from rich.markup import escape
from rich.tree import Tree

from specgrove.cli.console import out
from specgrove.client import Client
from specgrove.core.request import RoundTrace
from specgrove.core.tree import ROOT


class RoundPrinter:
    """Prints rounds in order. Token texts come from the server and are kept."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model
        self._texts: dict[int, str] = {}
        self._round = 0

    def show(self, trace: RoundTrace) -> None:
        """Accepted nodes are green, rejected ones dim; the token that the target added is yellow."""
        self._round += 1
        self._learn({*trace.tree.tokens, *trace.emitted})
        out.print(self._tree(trace) if len(trace.tree) else self._head(trace), soft_wrap=True)
        kept = len(trace.accepted)
        accepted = "".join(f"[green]{self._quote(token)}[/]" for token in trace.emitted[:kept])
        added = "".join(f"[yellow]{self._quote(token)}[/]" for token in trace.emitted[kept:])
        out.print(f"  → {accepted}{added}\n")

    def _head(self, trace: RoundTrace) -> str:
        times = f"round {1e3 * trace.round_s:.1f} ms, verify {1e3 * trace.verify_s:.1f} ms"
        if not len(trace.tree):
            return f"[bold]round {self._round}[/] [dim]plain step; {times}[/]"
        return (
            f"[bold]round {self._round}[/] [dim]{len(trace.tree)} nodes by {escape(trace.draft)}, "
            f"{len(trace.accepted)} accepted; {times}, draft {1e3 * trace.draft_s:.1f} ms[/]"
        )

    def _tree(self, trace: RoundTrace) -> Tree:
        picture = Tree(self._head(trace), guide_style="dim")
        branches = {ROOT: picture}
        accepted = set(trace.accepted)
        for node, (token, parent) in enumerate(zip(trace.tree.tokens, trace.tree.parents, strict=True)):
            style = "green" if node in accepted else "dim"
            branches[node] = branches[parent].add(f"[{style}]{self._quote(token)}[/]")
        return picture

    def _learn(self, tokens: set[int]) -> None:
        for token in tokens - self._texts.keys():
            self._texts[token] = self._client.detokenize(self._model, [token])

    def _quote(self, token: int) -> str:
        """The token's text with its spaces and line breaks visible."""
        return escape(repr(self._texts[token])[1:-1].replace(" ", "·") or "∅")
