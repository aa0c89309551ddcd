"""A replica stays announced, whatever happens to the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.state.contract import card

from specgrove.actors.membership import Membership
from specgrove.core.cards import Load, ReplicaCard


class FakeRegistry:
    """Remembers calls; can lose its memory or be away."""

    def __init__(self) -> None:
        self.known: dict[str, Load] = {}
        self.registered = 0
        self.away = False

    async def register(self, card: ReplicaCard, load: Load, *, lease_s: float) -> None:
        self._check()
        self.registered += 1
        self.known[card.replica] = load

    async def heartbeat(self, replica: str, load: Load, *, lease_s: float) -> bool:
        self._check()
        if replica in self.known:
            self.known[replica] = load
            return True
        return False

    async def remove(self, replica: str) -> None:
        self._check()
        self.known.pop(replica, None)

    def _check(self) -> None:
        if self.away:
            raise ConnectionError("away")


def member(registry: FakeRegistry, load: Callable[[], Load] = Load) -> Membership:
    """A replica with quick heartbeats."""
    return Membership(registry, card("a"), load, heartbeat_s=0.01, lease_s=0.05)


async def eventually(true: Callable[[], bool], within_s: float = 2.0) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


async def test_reports_its_load():
    """Each heartbeat carries the load of that moment."""
    registry = FakeRegistry()
    running = 0
    membership = member(registry, lambda: Load(running=running))
    await membership.join()

    running = 7

    await eventually(lambda: registry.known["a"].running == 7)
    await membership.leave()


async def test_announces_itself_again_to_an_empty_registry():
    """A restarted registry learns of all replicas within a heartbeat."""
    registry = FakeRegistry()
    membership = member(registry)
    await membership.join()

    registry.known.clear()

    await eventually(lambda: "a" in registry.known)
    assert registry.registered == 2
    await membership.leave()


async def test_outlives_a_registry_that_is_away():
    """It goes on trying and is there again when the registry is."""
    registry = FakeRegistry()
    membership = member(registry)
    await membership.join()
    registry.away = True
    registry.known.clear()
    await asyncio.sleep(0.05)

    registry.away = False

    await eventually(lambda: "a" in registry.known)
    await membership.leave()


async def test_leaves():
    """No heartbeat follows; leaving twice and from a registry that is away is no error."""
    registry = FakeRegistry()
    membership = member(registry)
    await membership.join()

    await membership.leave()
    await asyncio.sleep(0.05)
    registry.away = True
    await membership.leave()

    assert registry.known == {}
    assert registry.registered == 1
