"""Picking the best ids of rows of scores, the same on every device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def first_max(scores: Tensor) -> Tensor:
    """[rows, vocab] -> [rows] int64: the index of the largest score, the lowest one on a tie.

    NumPy promises the first maximum; torch.argmax does not on every device, so there the ties are resolved by hand.
    """
    if scores.device.type == "cpu":
        return torch.from_numpy(scores.detach().numpy().argmax(axis=-1))
    return first_max_by_ties(scores)


def first_max_by_ties(scores: Tensor) -> Tensor:
    """first_max() without a promise from the library: the lowest of all ids that hold the maximum."""
    ids = torch.arange(scores.shape[-1], device=scores.device)
    return torch.where(scores == scores.amax(-1, keepdim=True), ids, scores.shape[-1] - 1).amin(-1)


def best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids and scores of the k best of each row, [rows, k]; best first, lower id first among equals that made it."""
    k = min(k, scores.shape[-1])
    if k == 1:
        top = first_max(scores)[:, None]
        return top, scores.gather(1, top)
    values, ids = scores.topk(k, dim=-1)
    if scores.device.type == "cpu":
        order = torch.from_numpy(np.lexsort((ids.numpy(), -values.numpy())))
        return ids.gather(1, order), values.gather(1, order)
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return ids.gather(1, order), values
