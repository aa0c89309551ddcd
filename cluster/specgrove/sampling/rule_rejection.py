"""Rule `rejection`: one sampled chain (Leviathan et al. 2211.17192; Chen et al. 2302.01318; papers/algorithms.md A.3).

Equal to the target in distribution, if each token was drawn from exactly the law that comes with it and the length of
the chain was decided without looking at its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from specgrove.sampling.lemma import try_in_turn
from specgrove.sampling.verdict import Chance, Verdict


def walk(tokens: Sequence[int], p: Callable[[int], Tensor], q: Callable[[int], Tensor], chance: Chance) -> Verdict:
    """Judge a chain; node i is tokens[i].

    `p(node)` and `q(node)` are the target's and the draft's law of the token after `node` (-1: the last committed
    token), [vocab] float64. They are called in order of depth and only as far as the walk goes.
    """
    for depth, token in enumerate(tokens):
        index, law = try_in_turn(p(depth - 1), [(token, q(depth - 1))], chance, depth)
        if index is None:
            return Verdict(tuple(range(depth)), (*tokens[:depth], chance.draw(depth, law)))
    bonus = chance.draw(len(tokens), p(len(tokens) - 1))
    return Verdict(tuple(range(len(tokens))), (*tokens, bonus))
