"""Which token slots are free, referenced or cached. Counts only: no tensors, no tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specgrove.errors import CapacityError

Slots = NDArray[np.int64]
"""[n] slot numbers."""


class SlotTable:
    """`total` slots. A slot is referenced (sequences hold it), cached (only the prefix index holds it) or free.

    `refs` counts sequences per slot and `pins` blocks of the prefix index per slot. A forked sequence may finish a
    block that its parent finished too, with the same first slots, so a slot can carry several pins.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.refs = np.zeros(total, dtype=np.int32)
        self.pins = np.zeros(total, dtype=np.int32)
        self._busy = np.zeros(total + 2, dtype=np.int8)
        self._busy[[0, -1]] = 1  # a fence on each side, so that every hole has two edges
        self.free = total
        self.referenced = 0

    @property
    def cached(self) -> int:
        """Slots that no sequence holds and that a prompt with the same prefix would find."""
        return self.total - self.free - self.referenced

    def fits_after(self, slot: int, n: int) -> bool:
        """Are the n slots right after `slot` free?"""
        return slot + n < self.total and not self._busy[slot + 2 : slot + 2 + n].any()

    def take(self, n: int, after: int | None) -> Slots:
        """Take n free slots, in increasing order and in one run where possible: right after `after`, else in the
        largest hole.

        A run that starts a hole behind a live neighbour starts in the hole's middle, so that both can grow.
        CapacityError and no change when fewer than n are free.
        """
        if n > self.free:
            raise CapacityError(f"{n} KV slots wanted, {self.free} of {self.total} are free")
        if after is not None and self.fits_after(after, n):
            return self._claim_run(after + 1, n)
        starts, sizes = self._holes()
        order = np.argsort(-sizes, kind="stable")
        first = int(order[0])
        if sizes[first] >= n:
            start, spare = int(starts[first]), int(sizes[first]) - n
            if start and self.refs[start - 1]:
                start += spare // 2
            return self._claim_run(start, n)
        runs = [np.arange(starts[i], starts[i] + sizes[i], dtype=np.int64) for i in order]
        return self._claim(np.sort(np.concatenate(runs)[:n]))

    def largest_hole(self) -> int:
        """Size of the longest run of free slots."""
        return int(self._holes()[1].max(initial=0))

    def share(self, slots: Slots) -> None:
        """One more sequence holds these slots."""
        self.referenced += int(np.count_nonzero(self.refs[slots] == 0))
        self.refs[slots] += 1

    def drop(self, slots: Slots) -> None:
        """One sequence less holds these slots; those that nobody else holds are free, or cached if pinned."""
        self.refs[slots] -= 1
        idle = slots[self.refs[slots] == 0]
        self.referenced -= len(idle)
        self._free(idle[self.pins[idle] == 0])

    def pin(self, slots: Slots) -> None:
        """One more block of the prefix index holds these slots; all of them are referenced at this time."""
        self.pins[slots] += 1

    def unpin(self, slots: Slots) -> None:
        """One block less holds these slots; those that nobody holds are free."""
        self.pins[slots] -= 1
        self._free(slots[(self.pins[slots] == 0) & (self.refs[slots] == 0)])

    def check(self) -> None:
        """AssertionError when the counts and the arrays disagree."""
        held, busy = self.refs > 0, (self.refs > 0) | (self.pins > 0)
        assert int(self.refs.min(initial=0)) >= 0, "a slot was dropped more often than it was taken"
        assert int(self.pins.min(initial=0)) >= 0, "a slot was unpinned more often than it was pinned"
        assert self.referenced == int(held.sum()), f"{self.referenced} slots counted as referenced, {held.sum()} are"
        assert self.free == self.total - int(busy.sum()), f"{self.free} slots counted as free, {(~busy).sum()} are"
        assert np.array_equal(self._busy[1:-1].astype(bool), busy), "the map of free slots is stale"

    def _claim(self, slots: Slots) -> Slots:
        self.refs[slots] = 1
        self._busy[slots + 1] = 1
        self.free -= len(slots)
        self.referenced += len(slots)
        return slots

    def _claim_run(self, start: int, n: int) -> Slots:
        self.refs[start : start + n] = 1
        self._busy[start + 1 : start + 1 + n] = 1
        self.free -= n
        self.referenced += n
        return np.arange(start, start + n, dtype=np.int64)

    def _free(self, slots: Slots) -> None:
        self._busy[slots + 1] = 0
        self.free += len(slots)

    def _holes(self) -> tuple[Slots, Slots]:
        edges = np.flatnonzero(np.diff(self._busy))
        return edges[::2], edges[1::2] - edges[::2]
