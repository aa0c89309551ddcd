"""StateStore: the contract of the registry. Every backend passes tests/state/contract.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from specgrove.core.cards import Load, ReplicaCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """One live replica as the registry knows it."""

    card: ReplicaCard
    load: Load
    registered_at: float
    """When this replica first registered, in seconds of the caller's clock."""
    expires_at: float
    """End of its lease: without a heartbeat it is taken for lost then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All live replicas at one moment, ordered by replica name."""

    version: int
    """Grows whenever a replica comes, goes, is lost or starts to drain; loads alone don't count."""
    taken_at: float
    """When it was taken, in seconds of the same clock as the leases."""
    replicas: tuple[Announcement, ...] = ()


MOST_PROFILES = 4096
"""Profiles that a store keeps; the ones written longest ago go first."""


class StateStore(Protocol):
    """The registry of replicas, and what they measured. Time is passed in, in seconds; it never runs backwards."""

    async def register(self, card: ReplicaCard, load: Load, *, lease_s: float, now: float) -> None:
        """Announce a replica, or announce it again: the newer card and load win, `registered_at` stays."""

    async def heartbeat(self, replica: str, load: Load, *, lease_s: float, now: float) -> bool:
        """Extend the lease and report the load. False: not registered (expired, removed, or the store is new)."""

    async def remove(self, replica: str, *, now: float) -> None:
        """Forget a replica. Does nothing when it is not there."""

    async def keep(self, key: str, profile: Mapping[str, Any]) -> None:
        """Keep what was measured, in plain values as JSON has them; a newer one replaces it."""

    async def kept(self, prefix: str) -> dict[str, Mapping[str, Any]]:
        """Profiles by key, of all keys that begin so."""

    async def snapshot(self, *, now: float) -> Snapshot:
        """Replicas whose lease has not ended."""
