"""What a forward pass of n new tokens costs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import numpy as np

from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVSequence
from specgrove.engine.runner import Engine
from specgrove.planning.latency import KNOTS, Work

WIDTHS = (1, 2, 4, 8, 16, 32)
"""New tokens per pass that are measured unless told otherwise."""
SHAPES = ((1, 64), (4, 64), (1, 512), (8, 64), (4, 512), (1, 1536))
"""(sessions, context of each) that are measured, the most telling first."""


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


def passes(engine: Engine, *, budget_s: float = 5.0) -> list[tuple[Work, float]]:
    """Passes of many sizes and their seconds, for a LatencyModel: tree masks, logits of every row, the best id of each.

    Goes round over all sizes until the time is used up, small ones first; every number of tokens is measured at least
    once, for one session. Takes what slots it needs and gives them back; sizes that the pool or the model's context
    cannot hold are left out. Raises CapacityError (retryable) when not even the smallest fits.
    """
    stop = time.perf_counter() + budget_s
    found: list[tuple[Work, float]] = []
    for sessions, context in SHAPES:
        context = min(context, engine.card.max_model_len - max(KNOTS))
        if context < 1 or sessions * (context + max(KNOTS)) > engine.pool.stats().free:
            continue
        if found and time.perf_counter() > stop:
            break
        found += _of_shape(engine, sessions, context, stop)
    return found


def _of_shape(engine: Engine, sessions: int, context: int, stop: float) -> list[tuple[Work, float]]:
    """Two rounds over all numbers of tokens, the first one unconditionally when nothing was measured before."""
    opened = []
    tokens = [(17 * i) % engine.card.vocab_size for i in range(context)]
    found: list[tuple[Work, float]] = []
    try:
        for _ in range(sessions):
            opened.append(engine.pool.open(()))
            engine.prefill(opened[-1], tokens)
        _together(engine, opened, tokens, 1)  # not counted: the first pass of a shape is slow
        for each in (*KNOTS, *KNOTS):
            if each * sessions > max(KNOTS) or (len(found) >= len(KNOTS) and time.perf_counter() > stop):
                continue
            seconds = _together(engine, opened, tokens, each)
            found.append((Work(each * sessions, sessions, context * sessions), seconds))
    finally:
        for sequence in opened:
            sequence.release()
    return found


def _together(engine: Engine, sequences: Sequence[KVSequence], tokens: Sequence[int], each: int) -> float:
    """One pass of several sessions, each over a root with children."""
    mask = np.eye(each, dtype=np.bool_)
    mask[:, 0] = True
    started = time.perf_counter()
    segments = []
    for sequence in sequences:
        positions = [sequence.length, *[sequence.length + 1] * (each - 1)]
        sequence.reserve(positions)
        segments.append(Segment(sequence, [tokens[i % len(tokens)] for i in range(each)], positions, mask, range(each)))
    engine.forward(segments).argmax(-1).tolist()
    for sequence in sequences:
        sequence.rollback()
    return time.perf_counter() - started


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
