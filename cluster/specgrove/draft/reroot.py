"""What survives of drafted rows when a commit arrives. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from specgrove.core.tree import ROOT, TokenTree


def surviving_rows(tree: TokenTree, expanded: Sequence[int], committed: Sequence[int]) -> tuple[list[int], list[int]]:
    """Rows of expanded nodes along the committed path, and their tokens.

    `expanded[row]` is the node whose KV lies in that reserved row. Stops at the first committed token that was not
    drafted or whose node was never run (a leaf).
    """
    row_of = {node: row for row, node in enumerate(expanded)}
    child_of = {
        (parent, token): node for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))
    }
    rows: list[int] = []
    tokens: list[int] = []
    node = ROOT
    for token in committed:
        child = child_of.get((node, token))
        if child is None or child not in row_of:
            break
        rows.append(row_of[child])
        tokens.append(token)
        node = child
    return rows, tokens
