"""Top-k, top-p and min-p on rows of scores; excluded tokens become -inf.

top-k and min-p are transformers' rules. top-p is too, except that among equal scores at the edge it keeps the lowest
ids, where transformers keeps whatever its sort left last.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FIRST_LOOK = 64
"""Tokens looked at before a wider look: a nucleus is usually small, and sorting 152k scores takes milliseconds."""


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """[rows, vocab]: the k best scores of each row and those equal to the k-th."""
    return scores.masked_fill(scores < scores.topk(k, dim=-1).values[:, -1:], -torch.inf)


def keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    """[rows, vocab]: tokens whose probability is at least min_p times that of the best one."""
    return scores.masked_fill(scores < scores.amax(-1, keepdim=True) + math.log(min_p), -torch.inf)


def keep_top_p(scores: Tensor, top_p: float) -> Tensor:
    """[rows, vocab]: the smallest set of best tokens whose mass reaches top_p; at least one token.

    A token stays when the tokens before it hold less than top_p. Exact: it selects as many leading tokens as it needs
    and sorts only those.
    """
    leading, reached = _leading(scores, top_p)
    last = (reached < top_p).sum(-1, keepdim=True).clamp_(max=leading.shape[-1] - 1)
    edge = leading.gather(1, last)
    above, level = scores > edge, scores == edge
    room = last + 1 - above.sum(-1, keepdim=True)
    if scores.is_cuda or bool((level.sum(-1, keepdim=True) > room).any()):
        level &= level.cumsum(-1) <= room
    return scores.masked_fill(~(above | level), -torch.inf)


def _leading(scores: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The best scores of each row, best first, and the mass up to and with each (float64); enough to reach top_p.

    A GPU sorts the whole row: that is cheap there, and asking whether a part sufficed would synchronise.
    """
    vocab = scores.shape[-1]
    total = scores.logsumexp(-1, keepdim=True)
    width = vocab if scores.is_cuda else min(_FIRST_LOOK, vocab)
    while True:
        values = scores.topk(width, dim=-1).values if width < vocab else scores.sort(dim=-1, descending=True).values
        reached = (values.double() - total).exp_().cumsum(-1)
        if width == vocab or bool((reached[:, -1] >= top_p).all()):
            return values, reached
        width = min(width * 8, vocab) if width * 8 < vocab // 4 else vocab
