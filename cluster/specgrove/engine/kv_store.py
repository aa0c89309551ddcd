"""The tensors behind the KV pool: one row of keys and one of values per layer and token slot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a number format; NumPy has no bfloat16."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of one layer's key and value rows, found by running the model once."""

    kv_heads: int
    key_dim: int
    value_dim: int

    @property
    def elements(self) -> int:
        """Numbers that one token needs in this layer."""
        return self.kv_heads * (self.key_dim + self.value_dim)


def bytes_per_slot(layers: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Bytes that one token needs over all layers."""
    return sum(layer.elements for layer in layers) * dtype.itemsize


class KVStore:
    """`keys[l]` and `values[l]` are [slots, kv_heads, dim]: a run of slots is a view, a move copies whole rows.

    Layers of equal row shape live in one tensor [planes, slots, kv_heads, dim], so that moving a row is one operation
    for all of them.
    """

    def __init__(self, layers: Sequence[LayerShape], slots: int, dtype: torch.dtype, device: torch.device) -> None:
        self.slots = slots
        self.layers = tuple(layers)
        rows = [(layer.kv_heads, dim) for layer in layers for dim in (layer.key_dim, layer.value_dim)]
        self._groups: list[Tensor] = []
        self._arrays: list[NDArray[Any]] = []
        """On a CPU the groups' bits as NumPy sees them: a few rows move in a tenth of torch's time."""
        planes: list[Tensor] = [torch.empty(0)] * len(rows)
        for row in dict.fromkeys(rows):
            members = [i for i, other in enumerate(rows) if other == row]
            group = _zeros((len(members), slots, *row), dtype, device)
            self._groups.append(group)
            if device.type == "cpu":
                self._arrays.append(group.view(_BITS[dtype.itemsize]).numpy())
            for plane, member in zip(group, members, strict=True):
                planes[member] = plane
        self.keys: list[Tensor] = planes[::2]
        self.values: list[Tensor] = planes[1::2]

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy rows between slots in all layers. All sources are read before a target is written: they may overlap."""
        if self._arrays:
            for array in self._arrays:
                rows = [array[:, source].copy() for source in sources]
                for target, row in zip(targets, rows, strict=True):
                    array[:, target] = row
            return
        moves = torch.tensor((sources, targets), dtype=torch.long, device=self._groups[0].device)
        for group in self._groups:
            group.index_copy_(1, moves[1], group.index_select(1, moves[0]))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU the system commits a page when it is first written, so an unused budget costs nothing."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    raw = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
