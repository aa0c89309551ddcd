"""What a forward pass of n new tokens costs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import numpy as np

from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVSequence
from specgrove.engine.runner import Engine

WIDTHS = (1, 2, 4, 8, 16, 32)
"""New tokens per pass that are measured unless told otherwise."""


def forward_seconds(
    engine: Engine, widths: Sequence[int] = WIDTHS, *, context: int = 256, repeats: int = 5
) -> dict[int, float]:
    """Median seconds of one pass over n new tokens, for each n, with a tree mask and all logits wanted.

    The passes of one repeat are interleaved over the widths, so that a busy machine slows all of them alike; one
    repeat before that is not counted. Takes `context` + max(widths) slots and gives them back; `context` is cut to
    what the model can hold. Raises CapacityError (retryable).
    """
    widest = max(widths)
    context = max(1, min(context, engine.card.max_model_len - widest))
    vocab = engine.card.vocab_size
    tokens = [(17 * i) % vocab for i in range(context)]
    sequence = engine.pool.open(tokens)
    try:
        engine.prefill(sequence, tokens[sequence.length :])
        times: dict[int, list[float]] = {n: [] for n in widths}
        for _ in range(repeats + 1):
            for n in widths:
                times[n].append(_once(engine, sequence, tokens, n))
    finally:
        sequence.release()
    return {n: median(seconds[1:]) for n, seconds in times.items()}


def _once(engine: Engine, sequence: KVSequence, tokens: Sequence[int], n: int) -> float:
    """One pass over a root with n - 1 children, which share a position as the siblings of a tree do."""
    base = sequence.length
    positions = [base, *[base + 1] * (n - 1)]
    mask = np.eye(n, dtype=np.bool_)
    mask[:, 0] = True
    started = time.perf_counter()
    sequence.reserve(positions)
    logits = engine.forward([Segment(sequence, [tokens[i % len(tokens)] for i in range(n)], positions, mask, range(n))])
    float(logits[0, 0])  # waits for a GPU
    seconds = time.perf_counter() - started
    sequence.rollback()
    return seconds
