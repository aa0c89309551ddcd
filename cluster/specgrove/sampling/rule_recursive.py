"""Rule `recursive_rejection`: children drawn without replacement, tested in the order of their draw.

Sequoia's algorithm 2 and RSD's recursive rejection sampling (papers/algorithms.md A.6). Equal to the target in
distribution under the conditions of A.5: the order of children is the order of their draw, and how many there are was
decided without looking at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from specgrove.core.tree import ROOT, TokenTree
from specgrove.sampling.lemma import Trial, try_in_turn, without
from specgrove.sampling.verdict import Chance, Verdict


def walk(tree: TokenTree, p: Callable[[int], Tensor], q: Callable[[int], Tensor], chance: Chance) -> Verdict:
    """Walk from the root.

    `p(node)` and `q(node)` are the target's and the draft's law of the token after `node` (-1: the last committed
    token), [vocab] float64; q is asked for nodes with children only.
    """
    children = tree.children()
    accepted: list[int] = []
    node = ROOT
    while True:
        law, below = p(node), children[node + 1]
        index: int | None = None
        if below:
            trials = in_draw_order([tree.tokens[child] for child in below], q(node))
            index, law = try_in_turn(law, trials, chance, len(accepted))
        if index is None:
            tokens = [tree.tokens[i] for i in accepted]
            return Verdict(tuple(accepted), (*tokens, chance.draw(len(accepted), law)))
        node = below[index]
        accepted.append(node)


def in_draw_order(tokens: Sequence[int], law: Tensor) -> Iterator[Trial]:
    """Each token with the law it was drawn from, given its elder siblings."""
    for rank, token in enumerate(tokens):
        yield token, law if rank == 0 else without(law, tokens[:rank])
