"""Keeps one replica announced in the registry, whatever happens to the registry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from specgrove.core.cards import Load, ReplicaCard

log = logging.getLogger("specgrove.membership")


class Announcing(Protocol):
    """The part of the registry that a member needs."""

    async def register(self, card: ReplicaCard, load: Load, *, lease_s: float) -> None:
        """Announce a replica."""

    async def heartbeat(self, replica: str, load: Load, *, lease_s: float) -> bool:
        """Report the load; False asks for registration."""

    async def remove(self, replica: str) -> None:
        """Forget a replica."""


class Membership:
    """One replica's presence: registers, reports its load, registers again when the registry has forgotten it."""

    def __init__(
        self,
        registry: Announcing,
        card: ReplicaCard,
        load: Callable[[], Load],
        *,
        heartbeat_s: float,
        lease_s: float,
    ) -> None:
        self._registry = registry
        self.card = card
        self._load = load
        self._heartbeat_s = heartbeat_s
        self._lease_s = lease_s
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    async def join(self) -> None:
        """Register and keep reporting until leave()."""
        await self._registry.register(self.card, self._load(), lease_s=self._lease_s)
        self._task = asyncio.create_task(self._report(), name=f"membership of {self.card.replica}")

    async def beat(self) -> None:
        """Report now, for instance when draining has begun."""
        if not await self._registry.heartbeat(self.card.replica, self._load(), lease_s=self._lease_s):
            log.warning("the registry had forgotten %s; announcing it again", self.card.replica)
            await self._registry.register(self.card, self._load(), lease_s=self._lease_s)

    async def leave(self) -> None:
        """Stop reporting and be forgotten. Idempotent; a registry that cannot be reached will notice by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            await self._registry.remove(self.card.replica)
        except Exception as error:  # actor loop: the lease ends anyway
            log.warning("could not leave the registry: %s", error)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            try:
                await self.beat()
                self._failing = False
            except Exception as error:  # actor loop: a lost registry must not end a replica
                if not self._failing:
                    log.warning("cannot reach the registry, trying on: %s", error)
                self._failing = True
