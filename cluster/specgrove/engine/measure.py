"""What a forward pass of n new tokens costs on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVSequence
from specgrove.engine.runner import Engine
from specgrove.planning.latency import KNOTS, Work

SHAPES = ((1, 64), (4, 64), (1, 512), (8, 64), (4, 512), (1, 1536))
"""(sessions, context of each) that are measured, the most telling first."""
TELLING = 3
"""Shapes of which a little is measured whatever the time: without them nobody knows what context and sessions cost."""
LITTLE = (1, 8)
ROUNDS = 4
"""Times that every shape is measured, if there is time: the machine is not the same all the while."""


def passes(
    engine: Engine,
    *,
    budget_s: float = 5.0,
    sizes: Sequence[int] = KNOTS,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> list[tuple[Work, float]]:
    """Passes of many sizes and their seconds, for a LatencyModel: tree masks, logits of every row, the best id of each.

    sizes: new tokens of a session.  shapes: as SHAPES.  All sizes of the first shape are measured whatever they take,
    and a little of the next ones; `budget_s` seconds are for the rest, shape by shape and again until they are over.
    Takes what slots it needs and gives them back; sizes that the pool cannot hold are left out.
    Raises CapacityError (retryable) when not even one token fits.
    """
    found: list[tuple[Work, float]] = []
    stop: float | None = None
    for number in range(ROUNDS):
        for index, (sessions, longest) in enumerate(shapes):
            context = max(1, min(longest, engine.card.max_model_len - 2))
            most = min(engine.pool.stats().free // sessions - context, max(sizes) // sessions)
            if found and most < max(sizes) // sessions:
                continue
            always: Sequence[int] = ()
            if number == 0:
                always = sizes if index == 0 else LITTLE if index < TELLING else ()
            if always or (stop is not None and time.perf_counter() < stop):
                found += _of_shape(engine, sessions, context, most, sizes, always, stop)
            stop = stop or time.perf_counter() + budget_s
    return found


def _of_shape(
    engine: Engine,
    sessions: int,
    context: int,
    most: int,
    sizes: Sequence[int],
    always: Sequence[int],
    stop: float | None,
) -> list[tuple[Work, float]]:
    """All numbers of tokens up to `most` a session, twice; those of `always` whatever the time."""
    opened = []
    tokens = [(17 * i) % engine.card.vocab_size for i in range(context)]
    found: list[tuple[Work, float]] = []
    try:
        for _ in range(sessions):
            opened.append(engine.pool.open(()))
            engine.prefill(opened[-1], tokens)
        _together(engine, opened, tokens, 1)  # not counted: the first pass of a shape is slow
        for each in (*sizes, *sizes):
            late = stop is not None and time.perf_counter() > stop
            if each > most or (late and each not in always):
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
