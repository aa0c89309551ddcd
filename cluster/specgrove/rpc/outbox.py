"""A queue from any thread to one writer on the event loop, which takes all that is there at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from specgrove.errors import CapacityError

T = TypeVar("T")

MAX_QUEUED = 16_000_000
"""Weight (about token ids) that may wait for a peer: the long prompts of a full target replica, opened all at once."""
MAX_BATCH = 50_000
"""Weight of one message: about 250 kB on the wire, well under the caps."""


class Outbox(Generic[T]):
    """Collects items for one peer. Create it on the loop that writes.

    A peer that does not read makes it overflow; the stream is then given up, so memory stays bounded.
    """

    def __init__(self, weigh: Callable[[T], int], *, limit: int = MAX_QUEUED) -> None:
        self._weigh, self._limit = weigh, limit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._items: list[T] = []
        self._weight = 0
        self._closed = False
        self._armed = False
        self._wake = asyncio.Event()
        self._full = asyncio.Event()

    def send(self, items: Sequence[T]) -> None:
        """Queue items, in order. Any thread; never blocks; nothing happens when the stream is over."""
        with self._lock:
            if self._closed or not items:
                return
            self._items.extend(items)
            self._weight += sum(map(self._weigh, items))
            if self._weight > self._limit:
                self._shut()
                self._call(self._full.set)
            elif not self._armed:
                # One wake-up is enough until the writer has taken what is there.
                self._armed = True
                self._call(self._wake.set)

    def _call(self, callback: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            callback()
            return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed, so there is no stream any more
            self._shut()

    def _shut(self) -> None:
        self._closed = True
        self._items, self._weight = [], 0

    def close(self) -> None:
        """Drop what is queued and everything that comes later."""
        with self._lock:
            self._shut()

    async def take(self) -> list[T]:
        """All queued items; waits until there is one."""
        await self._wake.wait()
        with self._lock:
            self._wake.clear()
            self._armed = False
            items, self._items, self._weight = self._items, [], 0
            return items

    async def overflow(self) -> None:
        """Never returns; raises CapacityError once more is queued than the limit."""
        await self._full.wait()
        raise CapacityError(f"the peer does not read: more than {self._limit} tokens are queued for it")

    def batches(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Cut into messages of bounded size, in order."""
        start = weight = 0
        for i, item in enumerate(items):
            cost = self._weigh(item)
            if weight and weight + cost > MAX_BATCH:
                yield items[start:i]
                start, weight = i, 0
            weight += cost
        if start < len(items):
            yield items[start:]
