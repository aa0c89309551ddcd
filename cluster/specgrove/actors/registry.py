"""The registry as a named Ray actor, and its client with the same words and no clock.

The actor is detached, because no single replica may own it, and restarts on failure with an empty store: replicas
announce themselves again with their next heartbeat. When nobody has called it for a while it ends itself, so that a
deleted application leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError

from specgrove.core.cards import Load, ReplicaCard
from specgrove.state import MemoryStore, Snapshot

log = logging.getLogger("specgrove.registry")

NAME = "specgrove-registry"
IDLE_END_S = 60.0
"""The actor ends itself after so long without a call; every live replica calls it each second."""
_CHECK_S = 0.25
"""How often a watcher looks for leases that have ended."""
_T = TypeVar("_T")


class RegistryCore:
    """What the actor does, without Ray."""

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._token = token
        self._store = MemoryStore(first_version=time.time_ns() // 1000)
        self._clock = clock
        self._changed = asyncio.Event()
        self.called_at = clock()

    async def token(self) -> str:
        """The cluster's token."""
        self.called_at = self._clock()
        return self._token

    async def register(self, card: ReplicaCard, load: Load, lease_s: float) -> None:
        """Announce a replica."""
        await self._store.register(card, load, lease_s=lease_s, now=self._now())
        self._wake()

    async def heartbeat(self, replica: str, load: Load, lease_s: float) -> bool:
        """Report the load; False asks for registration."""
        known = await self._store.heartbeat(replica, load, lease_s=lease_s, now=self._now())
        if load.draining:
            self._wake()
        return known

    async def remove(self, replica: str) -> None:
        """Forget a replica."""
        await self._store.remove(replica, now=self._now())
        self._wake()

    async def keep(self, key: str, profile: Mapping[str, Any]) -> None:
        """Keep what was measured."""
        self._now()
        await self._store.keep(key, profile)

    async def kept(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """What was measured."""
        self._now()
        return await self._store.kept(prefix)

    async def watch(self, version: int, wait_s: float) -> Snapshot:
        """The replicas, as soon as the version is not `version` any more, at the latest after `wait_s` seconds."""
        until = self._now() + wait_s
        while True:
            self._changed.clear()
            now = self._now()
            snapshot = await self._store.snapshot(now=now)
            if snapshot.version != version or now >= until:
                return snapshot
            try:
                await asyncio.wait_for(self._changed.wait(), min(_CHECK_S, until - now))
            except TimeoutError:
                continue

    def _now(self) -> float:
        self.called_at = self._clock()
        return self.called_at

    def _wake(self) -> None:
        self._changed.set()


class RegistryActor(RegistryCore):
    """RegistryCore in a process of its own."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self._idle = asyncio.get_event_loop().create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        while (left := self.called_at + IDLE_END_S - self._clock()) > 0:  # noqa: ASYNC110  # nothing sets an event
            await asyncio.sleep(left)
        ray.actor.exit_actor()


_REMOTE: Any = ray.remote(num_cpus=0, max_restarts=-1)(RegistryActor)


class Registry:
    """Client of the registry actor of one application; makes the actor when it is not there."""

    def __init__(self, app: str, token: str | None = None) -> None:
        self._namespace = f"specgrove-{app}"
        self._token = token or secrets.token_urlsafe(32)
        self._actor: Any = None

    async def token(self) -> str:
        """The cluster's token: the configured one, or the one that the first replica made at this start.

        It is kept, so that a registry that must be made anew gets the token that live replicas use.
        """
        self._token = await self._call(lambda actor: actor.token.remote())
        return self._token

    async def register(self, card: ReplicaCard, load: Load, *, lease_s: float) -> None:
        """See StateStore.register."""
        await self._call(lambda actor: actor.register.remote(card, load, lease_s))

    async def heartbeat(self, replica: str, load: Load, *, lease_s: float) -> bool:
        """See StateStore.heartbeat."""
        return await self._call(lambda actor: actor.heartbeat.remote(replica, load, lease_s))

    async def remove(self, replica: str) -> None:
        """See StateStore.remove."""
        await self._call(lambda actor: actor.remove.remote(replica))

    async def keep(self, key: str, profile: Mapping[str, Any]) -> None:
        """See StateStore.keep."""
        await self._call(lambda actor: actor.keep.remote(key, profile))

    async def kept(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """See StateStore.kept."""
        return await self._call(lambda actor: actor.kept.remote(prefix))

    async def watch(self, version: int, *, wait_s: float) -> Snapshot:
        """See RegistryCore.watch."""
        return await self._call(lambda actor: actor.watch.remote(version, wait_s))

    async def _call(self, ask: Callable[[Any], Awaitable[_T]]) -> _T:
        for attempt in range(3):
            if self._actor is None:
                self._actor = await asyncio.to_thread(self._find)
            try:
                return await ask(self._actor)
            except ActorUnavailableError:  # restarting
                await asyncio.sleep(0.2 * (attempt + 1))
            except (ActorDiedError, RayActorError):  # gone for good: make it anew
                self._actor = None
        if self._actor is None:
            self._actor = await asyncio.to_thread(self._find)
        return await ask(self._actor)

    def _find(self) -> Any:
        shared = {"name": NAME, "namespace": self._namespace, "lifetime": "detached", "get_if_exists": True}
        return _REMOTE.options(**shared).remote(self._token)
