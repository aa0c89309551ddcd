"""The registry without Ray: what its actor does."""

from __future__ import annotations

import asyncio

from tests.state.contract import card

from specgrove.actors.registry import RegistryCore
from specgrove.core.cards import Load


class Clock:
    """Time under the test's control."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_watch_answers_at_once_when_the_version_is_old():
    """A reader that has seen nothing gets the present state."""
    registry = RegistryCore("t", Clock())
    await registry.register(card("a"), Load(), 5.0)

    snapshot = await asyncio.wait_for(registry.watch(-1, 60.0), 1.0)

    assert [one.card.replica for one in snapshot.replicas] == ["a"]


async def test_watch_wakes_when_a_replica_comes():
    """Readers do not poll."""
    registry = RegistryCore("t")
    seen = await registry.watch(-1, 0.0)
    watching = asyncio.create_task(registry.watch(seen.version, 60.0))
    await asyncio.sleep(0.05)
    assert not watching.done()

    await registry.register(card("a"), Load(), 5.0)

    assert [one.card.replica for one in (await asyncio.wait_for(watching, 1.0)).replicas] == ["a"]


async def test_watch_wakes_when_a_replica_begins_to_drain():
    """The ingress must stop sending it work at once; a mere load does not wake."""
    registry = RegistryCore("t")
    await registry.register(card("a"), Load(), 5.0)
    seen = await registry.watch(-1, 0.0)
    watching = asyncio.create_task(registry.watch(seen.version, 60.0))
    await registry.heartbeat("a", Load(running=3), 5.0)
    await asyncio.sleep(0.05)
    assert not watching.done()

    await registry.heartbeat("a", Load(draining=True), 5.0)

    assert (await asyncio.wait_for(watching, 1.0)).replicas[0].load.draining


async def test_watch_notices_a_lease_that_ends():
    """A replica that died says nothing; its lease tells."""
    clock = Clock()
    registry = RegistryCore("t", clock)
    await registry.register(card("a"), Load(), 5.0)
    seen = await registry.watch(-1, 0.0)
    watching = asyncio.create_task(registry.watch(seen.version, 60.0))
    await asyncio.sleep(0.05)

    clock.now += 5.0

    assert (await asyncio.wait_for(watching, 2.0)).replicas == ()


async def test_watch_answers_after_its_wait():
    """With fresh loads, although nothing else has changed."""
    registry = RegistryCore("t")
    await registry.register(card("a"), Load(), 5.0)
    seen = await registry.watch(-1, 0.0)
    await registry.heartbeat("a", Load(running=3), 5.0)

    again = await asyncio.wait_for(registry.watch(seen.version, 0.05), 1.0)

    assert again.version == seen.version
    assert again.replicas[0].load.running == 3


async def test_a_registry_made_anew_has_other_versions():
    """Or a reader would take its empty state for the one it knows."""
    first = await RegistryCore("t").watch(-1, 0.0)
    second = await RegistryCore("t").watch(-1, 0.0)

    assert second.version != first.version
