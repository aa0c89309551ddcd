"""Rule `match`: the target draws its own token and follows the child that carries it.

Lossless for any tree, because nothing of the draft enters the draw (papers/algorithms.md A.4, "target-match").
"""

from __future__ import annotations

from collections.abc import Callable

from specgrove.core.tree import ROOT, TokenTree
from specgrove.sampling.verdict import Verdict


def walk(tree: TokenTree, draw: Callable[[int], int]) -> Verdict:
    """Walk from the root; `draw(node)` is the target's token after `node` (-1: after the last committed token).

    `draw` is called once for each node on the accepted path and for the root, in that order.
    """
    children = {
        (parent, token): node for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
    }
    accepted: list[int] = []
    emitted: list[int] = []
    node: int | None = ROOT
    while node is not None:
        emitted.append(draw(node))
        node = children.get((node, emitted[-1]))
        if node is not None:
            accepted.append(node)
    return Verdict(tuple(accepted), tuple(emitted))
