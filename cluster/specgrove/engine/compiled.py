"""torch.compile for what stands beside attention in every layer: norms and feed-forward.

Attention itself and the cache depend on how sessions lie in the pool. What is compiled sees passes of a few sizes only:
smaller ones are filled up with rows that the hooks drop again, larger ones run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from specgrove.engine.linear import FusedLinear, WideLinear
from specgrove.engine.quantize import PackedLinear

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Rows of a pass that are compiled for."""
_OPAQUE = (FusedLinear, PackedLinear, WideLinear)
"""Layers whose products are calls into C."""


def size_for(rows: int) -> int:
    """Rows to fill a pass up to; as many as there are when it is larger than all sizes."""
    return next((size for size in SIZES if size >= rows), rows)


def compile_layers(network: nn.Module) -> int:
    """Compile the parts of all decoder layers that do not know their own place; returns how many they are.

    A layer is a module with a part that has a `layer_idx`. Parts of one class share what was compiled.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 4 * len(SIZES))
    for module in network.modules():
        if isinstance(module, _OPAQUE):
            vars(module)["forward"] = torch.compiler.disable(module.forward)
    parts = list(_parts(network))
    for part in parts:
        vars(part)["forward"] = _Sized(part.forward)
    return len(parts)


def _parts(network: nn.Module) -> Iterator[nn.Module]:
    for layer in network.modules():
        children = list(layer.children())
        attends = [hasattr(child, "layer_idx") for child in children]
        if any(attends):
            yield from (child for child, skip in zip(children, attends, strict=True) if not skip)


class _Sized:
    """A module's forward: compiled for rows that are one of SIZES, the module's own for others."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._own, self._compiled = forward, torch.compile(forward, dynamic=False)

    def __call__(self, hidden: Tensor, *others: Any, **named: Any) -> Any:
        """Hidden [1, rows, width]; whatever else the module takes."""
        chosen = self._compiled if hidden.shape[1] in SIZES else self._own
        return chosen(hidden, *others, **named)
