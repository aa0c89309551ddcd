"""Segments of many sequences laid out as one flat pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specgrove.engine.attention import AttentionPlan, Span
from specgrove.engine.kv_pool import KVSequence
from specgrove.errors import SpecgroveError

PADDED_ROWS = 64
"""Segments of at most this many rows may share a padded attention call."""


@dataclass(slots=True)
class Segment:
    """New tokens of one sequence in one pass."""

    sequence: KVSequence
    tokens: Sequence[int]
    """n new tokens; their rows are the last n reserved rows of the sequence."""
    positions: Sequence[int]
    """[n] absolute positions; siblings share one."""
    mask: NDArray[np.bool_] | None
    """[n, r] which of the sequence's r reserved rows (these n included, at the end) each new token sees.

    None: causal over the reserved rows. Every committed row is visible to all (within a layer's sliding window).
    """
    wanted: Sequence[int]
    """Indices into the n tokens whose logits are returned."""


@dataclass(slots=True)
class Batch:
    """One flat pass of `total` rows."""

    tokens: Tensor
    """[1, total]"""
    positions: Tensor
    """[1, total]"""
    keep: Tensor
    """[m] flat rows whose logits are wanted, in the order of the segments given."""
    attention: AttentionPlan


def build(
    segments: Sequence[Segment], dtype: torch.dtype, device: torch.device, *, gather_rows: int, rows_end: int
) -> Batch:
    """Lay out the segments.

    A padded attention call copies at most `gather_rows` rows per layer (see `_share`); positions must be below
    `rows_end`, the end of the model's context.
    """
    order, groups = _share(segments, gather_rows)
    starts = [0] * len(segments)
    total = 0
    for i in order:
        starts[i] = total
        total += len(segments[i].tokens)
    spans = {i: _span(segments[i], starts[i], rows_end) for i in order}
    flat = np.empty((2, total), dtype=np.int64)
    for i in order:
        rows = slice(starts[i], starts[i] + len(segments[i].tokens))
        flat[0, rows], flat[1, rows] = segments[i].tokens, spans[i].positions
    keep = np.asarray([starts[i] + w for i, s in enumerate(segments) for w in s.wanted], dtype=np.int64)
    sent = torch.from_numpy(flat).to(device)
    grouped = {i for group in groups for i in group}
    plan = AttentionPlan(
        rows=total,
        write=_writes([spans[i] for i in order], device),
        solos=[spans[i] for i in order if i not in grouped],
        padded=[[spans[i] for i in group] for group in groups],
        dtype=dtype,
        device=device,
    )
    return Batch(sent[:1], sent[1:], torch.from_numpy(keep).to(device), plan)


def _share(segments: Sequence[Segment], gather_rows: int) -> tuple[list[int], list[list[int]]]:
    """Order of the segments in the pass, and which of them share a padded call (these come last).

    A padded call costs a copy of all its rows, a call per segment costs dispatch; the copy is worth it while it is
    small. Segments of like length go together, so that little is padded.
    """
    small = sorted(
        (i for i, s in enumerate(segments) if len(s.tokens) <= PADDED_ROWS), key=lambda i: segments[i].sequence.rows
    )
    groups: list[list[int]] = []
    current: list[int] = []
    for i in small:
        if current and segments[i].sequence.rows * (len(current) + 1) > gather_rows:
            groups.append(current)
            current = []
        current.append(i)
    groups.append(current)
    groups = [group for group in groups if len(group) > 1]
    shared = [i for group in groups for i in group]
    alone = [i for i in range(len(segments)) if i not in set(shared)]
    return alone + shared, groups


def _span(segment: Segment, start: int, rows_end: int) -> Span:
    sequence, n = segment.sequence, len(segment.tokens)
    committed, reserved = sequence.length, sequence.reserved
    if not 0 < n <= reserved or len(segment.positions) != n:
        raise SpecgroveError(f"a segment of {n} tokens needs as many positions and reserved rows, has {reserved} rows")
    if segment.mask is not None and segment.mask.shape != (n, reserved):
        raise SpecgroveError(f"the mask of this segment must be {(n, reserved)}, is {segment.mask.shape}")
    positions = np.asarray(segment.positions, dtype=np.int64)
    if int(positions.max()) >= rows_end:
        raise SpecgroveError(f"position {int(positions.max())} is past the model's context of {rows_end}")
    tail = segment.mask
    if tail is None and n > 1:
        tail = np.tri(n, reserved, reserved - n, dtype=np.bool_)
    return Span(
        start=start,
        n=n,
        slots=sequence.slots,
        linear=sequence.linear,
        committed=committed,
        positions=positions,
        reserved_positions=np.asarray(sequence.positions, dtype=np.int64),
        tail=tail,
        causal=segment.mask is None and committed == 0 and n == reserved,
    )


def _writes(spans: Sequence[Span], device: torch.device) -> slice | Tensor:
    slots = np.concatenate([span.slots[len(span.slots) - span.n :] for span in spans])
    if int(slots[-1]) - int(slots[0]) == len(slots) - 1 and (len(slots) == 1 or bool((np.diff(slots) == 1).all())):
        return slice(int(slots[0]), int(slots[-1]) + 1)
    return torch.from_numpy(slots).to(device)
