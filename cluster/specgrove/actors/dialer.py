"""Keeps a draft replica connected to every target it may serve: one stream each, dialled again with back-off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from specgrove.core.cards import ReplicaCard
from specgrove.errors import ProtocolError, SpecgroveError, Unauthenticated

log = logging.getLogger("specgrove.dialer")

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
_STABLE_S = 5.0
"""A stream that lived so long was a good one: the next wait starts small again."""

Speak = Callable[[ReplicaCard], Awaitable[None]]
"""Runs one stream to a target until it ends; raises when it could not be opened or broke."""


class Dialer:
    """One task per target. A stream that works is never cut because the registry forgot its target (it may have lost
    its memory); such a target is only not dialled again."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._wanted: Mapping[str, ReplicaCard] = {}
        self._streams: dict[str, tuple[str, asyncio.Task[None]]] = {}

    @property
    def targets(self) -> tuple[str, ...]:
        """Replica names of the targets that have a stream or are being dialled."""
        return tuple(name for name, (_, task) in self._streams.items() if not task.done())

    def want(self, targets: Mapping[str, ReplicaCard]) -> None:
        """Dial these targets from now on; one whose address has changed is dialled anew."""
        self._wanted = dict(targets)
        for name, card in targets.items():
            address, task = self._streams.get(name, ("", None))
            if task is not None and not task.done():
                if address == card.speculate_address:
                    continue
                task.cancel()
            stream = asyncio.create_task(self._keep(card), name=f"stream to {name}")
            self._streams[name] = (card.speculate_address, stream)

    async def close(self) -> None:
        """End all streams."""
        tasks = [task for _, task in self._streams.values()]
        self._streams.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, card: ReplicaCard) -> None:
        loop = asyncio.get_running_loop()
        wait_s = FIRST_WAIT_S
        told = ""
        while card.replica in self._wanted:
            started = loop.time()
            try:
                await self._speak(card)
                why = "the target ended the stream"
            except SpecgroveError as error:
                why = error.message
                if isinstance(error, Unauthenticated | ProtocolError):
                    wait_s = LONGEST_WAIT_S  # the target will say the same again
            except Exception as error:  # actor loop: a failing stream must not end the replica
                why = f"{type(error).__name__}: {error}"
            if loop.time() - started > _STABLE_S:
                wait_s = FIRST_WAIT_S
            if why != told:
                log.info("stream to %s ended: %s", card.replica, why)
                told = why
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
