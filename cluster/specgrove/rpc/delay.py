"""A longer wire, for measurements: hands items on later, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Delay(Generic[T]):
    """Delivers each item `seconds` after it came. Create it on the loop that delivers; `put` may be called anywhere."""

    def __init__(self, seconds: float, deliver: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds, self._deliver = seconds, deliver
        self._items: deque[tuple[float, T]] = deque()
        self._closed = False

    def put(self, item: T) -> None:
        """Never blocks."""
        self._loop.call_soon_threadsafe(self._take, item)

    def _take(self, item: T) -> None:
        if self._closed:
            return
        due = self._loop.time() + self._seconds
        self._items.append((due, item))
        self._loop.call_at(due, self._hand_on)

    def close(self) -> None:
        """Drop what is on its way; nothing is delivered any more. Idempotent."""
        self._items.clear()
        self._closed = True

    def _hand_on(self) -> None:
        """One call per item; whichever comes first takes the oldest."""
        if not self._closed:
            _, item = self._items.popleft()
            self._deliver(item)
