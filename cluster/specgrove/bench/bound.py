"""How fast plain decoding of one user could be at all: every token reads all weights once."""

from __future__ import annotations

import time
from typing import Any

import torch

READ_BYTES = 1 << 28
"""Of the block that is read: far more than any cache holds."""
READS = 7


def read_bandwidth() -> float:
    """Bytes per second that torch's threads of this process read from memory: the best of a few passes."""
    block = torch.ones(READ_BYTES // 4)
    best = 0.0
    for _ in range(READS):
        begun = time.perf_counter()
        block.sum()
        best = max(best, READ_BYTES / (time.perf_counter() - begun))
    return best


def bytes_per_token(model: Any) -> int:
    """Bytes of weights that one decoded token reads: all but an input embedding of its own, of which it reads a row."""
    rows, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    total = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return int(total if rows is head else total - rows.numel() * rows.element_size())


def bound(model: Any, tokens_per_s: float) -> dict[str, float]:
    """The bound of a transformers model on this machine, and how much of it `tokens_per_s` of plain decoding are."""
    read, needed = read_bandwidth(), bytes_per_token(model)
    return {
        "read_bytes_per_s": read,
        "weight_bytes_per_token": float(needed),
        "bound_tokens_per_s": read / needed,
        "plain_over_bound": tokens_per_s * needed / read,
    }
