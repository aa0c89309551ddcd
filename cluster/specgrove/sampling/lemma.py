"""The general lemma of rejection sampling against a sequence of proposals (papers/algorithms.md A.4).

For any laws D_1, D_2, ... that are chosen without looking at the tokens still to be tested, and tokens x_i drawn from
D_i: accept x_i with probability min(1, R[x_i] / D_i[x_i]), else R <- norm((R - D_i)+), and draw from R in the end. What
comes out is distributed as the first R. All laws here are [vocab] float64 tensors that sum to one.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from specgrove.errors import TreeError
from specgrove.sampling.verdict import Chance

Trial = tuple[int, Tensor]
"""A token and the law it was drawn from."""


def try_in_turn(law: Tensor, trials: Iterable[Trial], chance: Chance, depth: int) -> tuple[int | None, Tensor]:
    """Test the trials in the order of their draw: the index of the accepted one, or None and the residual to draw from.

    Raises TreeError when a token has no mass in the law it is said to be drawn from.
    """
    for index, (token, proposal) in enumerate(trials):
        mass = float(proposal[token])
        if not mass > 0:
            raise TreeError(f"token {token} was drafted although its own draft gives it no probability")
        if chance.accept(depth, token, float(law[token]) / mass):
            return index, law
        law = residual(law, proposal)
    return None, law


def residual(law: Tensor, proposal: Tensor) -> Tensor:
    """norm((law - proposal)+). Where both are numerically equal nothing is left: then `law` itself (B10)."""
    left = (law - proposal).clamp_(min=0)
    total = left.sum()
    return left / total if float(total) > 0 else law


def without(proposal: Tensor, tried: Iterable[int]) -> Tensor:
    """The law of the next draw without replacement: `proposal` without the tried tokens, renormalised.

    Uniform over the untried tokens once nothing of it is left (Sequoia, algorithm 2).
    """
    tried = list(tried)
    left = proposal.clone()
    left[tried] = 0
    total = left.sum()
    if float(total) > 0:
        return left / total
    left = torch.ones_like(proposal)
    left[tried] = 0
    return left / left.sum()
