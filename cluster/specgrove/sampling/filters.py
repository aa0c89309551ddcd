"""Top-k, top-p and min-p on rows of scores; excluded tokens become -inf.

The rules are transformers', one after the other: top-k keeps ties with the k-th score; top-p keeps a token when the
tokens before it hold less than top_p of what top-k left; min-p compares with the best token. One thing is firmer than
in transformers: among equal scores at the edge of top-p the lowest ids stay, and not what an unstable sort left last.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

_FIRST_LOOK = 1024
"""Best scores looked at before the whole row is sorted."""


def keep(
    scores: Tensor, *, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, first_look: int | None = None
) -> Tensor:
    """[rows, vocab] -> [rows, vocab]; at least one token of each row stays. Neutral values switch a filter off.

    All three keep a number of leading scores, so only those are selected and sorted. `first_look` is how many are
    looked at first: by default the whole row on a GPU, where sorting is cheap and asking whether a part sufficed
    would synchronise.
    """
    vocab = scores.shape[-1]
    if first_look is None:
        first_look = vocab if scores.is_cuda else _FIRST_LOOK
    total = scores.logsumexp(-1, keepdim=True)
    width = min(max(first_look, 2 * top_k), vocab)
    leading = _leading(scores, width)
    count = _count(leading, total, top_k, top_p, min_p)
    if width < vocab and bool((count >= width).any()):
        leading = _leading(scores, vocab)
        count = _count(leading, total, top_k, top_p, min_p)
    edge = leading.gather(-1, count - 1)
    out = torch.where(scores < edge, -torch.inf, scores)
    after = leading.gather(-1, count.clamp(max=leading.shape[-1] - 1))
    if scores.is_cuda or bool(((after == edge) & (count < leading.shape[-1])).any()):
        level = scores == edge
        room = count - (scores > edge).sum(-1, keepdim=True)
        out = torch.where(level & (level.cumsum(-1) > room), -torch.inf, out)
    return out


def _count(leading: Tensor, total: Tensor, top_k: int, top_p: float, min_p: float) -> Tensor:
    """How many of the leading scores ([rows, width], best first) stay, [rows, 1]; `width` may mean more.

    `total` is the logsumexp of the whole row.
    """
    count = torch.full_like(total, leading.shape[-1], dtype=torch.int64)
    if 0 < top_k < leading.shape[-1]:
        stays = leading >= leading[:, top_k - 1 : top_k]
        count = stays.sum(-1, keepdim=True)
        total = torch.where(stays, leading, -torch.inf).logsumexp(-1, keepdim=True)
    if top_p < 1:
        reached = (leading.double() - total).exp_().cumsum(-1)
        count = torch.minimum(count, (reached < top_p).sum(-1, keepdim=True) + 1)
    if min_p > 0:
        count = torch.minimum(count, (leading >= leading[:, :1] + math.log(min_p)).sum(-1, keepdim=True))
    return count


def _leading(scores: Tensor, width: int) -> Tensor:
    """The `width` best scores of each row, best first. NumPy selects and sorts many times faster than torch's CPU."""
    vocab = scores.shape[-1]
    if scores.device.type != "cpu":
        return scores.sort(dim=-1, descending=True).values[:, :width]
    values = scores.detach().numpy()
    if width < vocab:
        values = np.partition(values, vocab - width, axis=-1)[:, vocab - width :]
    return torch.from_numpy(np.sort(values, axis=-1)[:, ::-1].copy())
