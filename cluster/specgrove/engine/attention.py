"""Attention over the KV pool: how the segments of one pass are grouped, and the only place where masks are made.

The rows of a pass lie flat, [1, total]. A `Solo` call attends one segment to its own slots, through a view when they
lie in one run. A `Padded` call attends several small segments at once, over gathered and padded slots. Query heads that
share a key head are packed as further query rows, [kv_heads, n * group, dim], so that keys are never repeated: on CPUs
without bfloat16 instructions this is up to ten times faster than repeating them, and the same otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Bools = NDArray[np.bool_]
Longs = NDArray[np.int64]

_CAUSAL_ROWS = 16
"""From this many rows on, a prompt's first chunk takes the causal kernel (half the work) and not a mask."""


@dataclass(slots=True, kw_only=True)
class Span:
    """One segment as attention sees it. Its n rows are rows start..start+n of the flat pass."""

    start: int
    n: int
    slots: Longs
    """[L] slots of the rows it may see: the committed ones, then the reserved ones."""
    linear: int
    """From this row on, all of `slots` lie in one run."""
    committed: int
    positions: Longs
    """[n] absolute positions of the new rows."""
    reserved_positions: Longs
    """[L - committed] absolute positions of the reserved rows."""
    tail: Bools | None
    """[n, L - committed] which reserved rows each new row sees; None when it sees them all."""
    causal: bool
    """Nothing is committed and the new rows see each other causally."""

    def columns(self, window: int | None) -> int:
        """First row that is inside the window of at least one new row; earlier ones are committed and not read."""
        if window is None:
            return 0
        return min(self.committed, max(0, int(self.positions.min()) - window + 1))

    def visible(self, window: int | None) -> Bools | None:
        """[n, L - columns] what each new row sees; None when that is everything."""
        first, old, new = self.columns(window), None, self.tail
        if window is not None:
            edge = self.positions[:, None] - window
            old = np.arange(first, self.committed)[None, :] > edge
            near = self.reserved_positions[None, :] > edge
            new = near if new is None else new & near
        if (old is None or old.all()) and (new is None or new.all()):
            return None
        out = np.ones((self.n, len(self.slots) - first), dtype=np.bool_)
        if old is not None:
            out[:, : self.committed - first] = old
        if new is not None:
            out[:, self.committed - first :] = new
        return out


@dataclass(slots=True)
class Solo:
    """One segment over its own slots."""

    rows: slice
    keys: slice | Tensor
    """A run of slots, or [L] slots to gather."""
    mask: Tensor | None
    """[n * group, L] added to the scores."""
    causal: bool

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """Query [heads, total, d], keys and values [slots, kv_heads, d]; returns [n, heads, d]."""
        query = query[:, self.rows]
        if isinstance(self.keys, slice):
            keys, values = keys[self.keys], values[self.keys]
        else:
            keys, values = keys.index_select(0, self.keys), values.index_select(0, self.keys)
        keys, values = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
        heads, n, dim = query.shape
        kv_heads = keys.shape[1]
        if self.causal:
            out = scaled_dot_product_attention(
                query[None], keys, values, is_causal=True, scale=scale, enable_gqa=kv_heads != heads
            )
            return out[0].transpose(0, 1)
        if kv_heads == heads:
            return scaled_dot_product_attention(query[None], keys, values, self.mask, scale=scale)[0].transpose(0, 1)
        group = heads // kv_heads
        packed = query.view(kv_heads, group, n, dim).transpose(1, 2).reshape(1, kv_heads, n * group, dim)
        out = scaled_dot_product_attention(packed, keys, values, self.mask, scale=scale)
        return out.view(kv_heads, n, group, -1).transpose(0, 1).reshape(n, heads, -1)


@dataclass(slots=True)
class Padded:
    """Several small segments in one call. Padding rows and columns repeat the segment's own first row and slot."""

    rows: slice
    pick: Tensor | None
    """[B * n] flat rows of the padded queries, relative to `rows`; None when all segments are equally long."""
    unpick: Tensor | None
    """[total rows] padded rows of the flat queries."""
    keys: Tensor
    """[B * L] slots."""
    mask: Tensor
    """[B, 1, n * group, L] added to the scores."""
    batch: int

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
        """Query [heads, total, d], keys and values [slots, kv_heads, d]; returns [rows, heads, d]."""
        heads, kv_heads, dim = query.shape[0], keys.shape[1], query.shape[2]
        flat = query[:, self.rows].transpose(0, 1)
        if self.pick is not None:
            flat = flat.index_select(0, self.pick)
        n, group = flat.shape[0] // self.batch, heads // kv_heads
        packed = flat.reshape(self.batch, n, kv_heads, group, dim).transpose(1, 2)
        packed = packed.reshape(self.batch, kv_heads, n * group, dim)
        keys = keys.index_select(0, self.keys).view(self.batch, -1, kv_heads, keys.shape[2]).transpose(1, 2)
        values = values.index_select(0, self.keys).view(self.batch, -1, kv_heads, values.shape[2]).transpose(1, 2)
        out = scaled_dot_product_attention(packed, keys, values, self.mask, scale=scale)
        out = out.view(self.batch, kv_heads, n, group, -1).transpose(1, 2).reshape(self.batch * n, heads, -1)
        return out if self.unpick is None else out.index_select(0, self.unpick)


@dataclass(slots=True)
class AttentionPlan:
    """What the hooks need for one pass: where new rows go, and the calls per sliding window, built once and reused."""

    rows: int
    """New rows."""
    write: slice | Tensor
    """Their slots, in the order of the flat pass."""
    solos: Sequence[Span]
    padded: Sequence[Sequence[Span]]
    """Groups of segments that share one padded call; their rows follow those of `solos`."""
    dtype: torch.dtype
    device: torch.device
    _calls: dict[tuple[int | None, int], list[Solo | Padded]] = field(default_factory=dict)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scale: float | None, window: int | None) -> Tensor:
        """Query [1, heads, total, d], one layer's keys and values [slots, kv_heads, d]; gives [1, total, heads, d]."""
        group = query.shape[1] // keys.shape[1]
        calls = self._calls.get((window, group))
        if calls is None:
            calls = self._calls[window, group] = self._build(window, group)
        outs = [call.attend(query[0], keys, values, scale) for call in calls]
        return (outs[0] if len(outs) == 1 else torch.cat(outs))[None]

    def _build(self, window: int | None, group: int) -> list[Solo | Padded]:
        if window is not None and not any(self._narrowed(span, window) for span in self._spans()):
            return self._calls.get((None, group)) or self._build(None, group)
        calls: list[Solo | Padded] = [self._solo(span, window, group) for span in self.solos]
        return calls + [self._pad(spans, window, group) for spans in self.padded]

    def _spans(self) -> list[Span]:
        return [*self.solos, *(span for spans in self.padded for span in spans)]

    @staticmethod
    def _narrowed(span: Span, window: int) -> bool:
        return int(span.positions.max()) >= window

    def _solo(self, span: Span, window: int | None, group: int) -> Solo:
        first = span.columns(window)
        if first >= span.linear:
            keys: slice | Tensor = slice(int(span.slots[first]), int(span.slots[-1]) + 1)
        else:
            keys = self._upload(span.slots[first:])
        rows = slice(span.start, span.start + span.n)
        causal = span.causal and span.n >= _CAUSAL_ROWS and (window is None or not self._narrowed(span, window))
        if causal:
            return Solo(rows, keys, None, causal=True)
        visible = span.visible(window)
        mask = None if visible is None else self._additive(np.repeat(visible, group, axis=0) if group > 1 else visible)
        return Solo(rows, keys, mask, causal=False)

    def _pad(self, spans: Sequence[Span], window: int | None, group: int) -> Padded:
        firsts = [span.columns(window) for span in spans]
        n = max(span.n for span in spans)
        length = max(len(span.slots) - first for span, first in zip(spans, firsts, strict=True))
        start, total = spans[0].start, sum(span.n for span in spans)
        slots = np.empty((len(spans), length), dtype=np.int64)
        visible = np.zeros((len(spans), n, length), dtype=np.bool_)
        pick = np.empty((len(spans), n), dtype=np.int64)
        unpick = np.empty(total, dtype=np.int64)
        for b, (span, first) in enumerate(zip(spans, firsts, strict=True)):
            width = len(span.slots) - first
            slots[b, :width], slots[b, width:] = span.slots[first:], span.slots[first]
            seen = span.visible(window)
            visible[b, : span.n, :width] = True if seen is None else seen
            visible[b, span.n :, 0] = True  # a padding row must see something, or its softmax is not a number
            at = span.start - start
            pick[b, : span.n], pick[b, span.n :] = np.arange(at, at + span.n), at
            unpick[at : at + span.n] = b * n + np.arange(span.n)
        regular = total == n * len(spans)
        mask = np.repeat(visible, group, axis=1) if group > 1 else visible
        return Padded(
            rows=slice(start, start + total),
            pick=None if regular else self._upload(pick.reshape(-1)),
            unpick=None if regular else self._upload(unpick),
            keys=self._upload(slots.reshape(-1)),
            mask=self._additive(mask)[:, None],
            batch=len(spans),
        )

    def _upload(self, index: Longs) -> Tensor:
        return torch.from_numpy(index).to(self.device)

    def _additive(self, visible: Bools) -> Tensor:
        """0 where a row sees a column, else minus infinity, in the model's dtype."""
        seen = torch.from_numpy(np.ascontiguousarray(visible)).to(self.device)
        return torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, float("-inf"))
