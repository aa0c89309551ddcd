"""The embedded backend: plain values in one process (a named Ray actor wraps it, see actors/registry.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specgrove.core.cards import Load, ReplicaCard
from specgrove.state.store import MOST_PROFILES, Announcement, Snapshot


class MemoryStore:
    """StateStore in a dictionary. Never blocks; its methods are async because the contract is."""

    def __init__(self, *, first_version: int = 0) -> None:
        """first_version: so that a store made anew does not repeat versions that readers have seen."""
        self._replicas: dict[str, Announcement] = {}
        self._profiles: dict[str, Mapping[str, Any]] = {}
        self._version = first_version

    async def register(self, card: ReplicaCard, load: Load, *, lease_s: float, now: float) -> None:
        """See StateStore."""
        self._expire(now)
        known = self._replicas.get(card.replica)
        since = known.registered_at if known else now
        if known is None or known.card != card or known.load.draining != load.draining:
            self._version += 1
        self._replicas[card.replica] = Announcement(card=card, load=load, registered_at=since, expires_at=now + lease_s)

    async def heartbeat(self, replica: str, load: Load, *, lease_s: float, now: float) -> bool:
        """See StateStore."""
        self._expire(now)
        known = self._replicas.get(replica)
        if known is None:
            return False
        if known.load.draining != load.draining:
            self._version += 1
        self._replicas[replica] = replace(known, load=load, expires_at=now + lease_s)
        return True

    async def remove(self, replica: str, *, now: float) -> None:
        """See StateStore."""
        self._expire(now)
        if self._replicas.pop(replica, None) is not None:
            self._version += 1

    async def keep(self, key: str, profile: Mapping[str, Any]) -> None:
        """See StateStore."""
        self._profiles.pop(key, None)
        self._profiles[key] = profile
        while len(self._profiles) > MOST_PROFILES:
            del self._profiles[next(iter(self._profiles))]

    async def kept(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """See StateStore."""
        return {key: profile for key, profile in self._profiles.items() if key.startswith(prefix)}

    async def snapshot(self, *, now: float) -> Snapshot:
        """See StateStore."""
        self._expire(now)
        live = tuple(self._replicas[name] for name in sorted(self._replicas))
        return Snapshot(version=self._version, taken_at=now, replicas=live)

    def _expire(self, now: float) -> None:
        for name in [name for name, known in self._replicas.items() if known.expires_at <= now]:
            del self._replicas[name]
            self._version += 1
