"""What every StateStore must do. A backend's test file subclasses this and gives a `store` fixture."""

from __future__ import annotations

from specgrove.core.cards import Load, ModelCard, ReplicaCard
from specgrove.state import StateStore
from specgrove.state.store import MOST_PROFILES

MODEL = ModelCard(
    name="m", architecture="llama", parameters=1, layers=1, hidden_size=1, vocab_size=1, vocab_hash="v",
    weights_digest="w", dtype="float32", max_model_len=16,
)  # fmt: skip


def card(replica: str, **fields: object) -> ReplicaCard:
    """A target's card."""
    return ReplicaCard(**{"replica": replica, "role": "target", "pool": "p", "model": MODEL, **fields})  # type: ignore[arg-type]


async def names(store: StateStore, now: float) -> list[str]:
    """Live replicas at `now`."""
    return [one.card.replica for one in (await store.snapshot(now=now)).replicas]


class StoreContract:
    """The tests; `store` is a fresh, empty store."""

    async def test_empty(self, store: StateStore):
        """A new store knows nobody."""
        assert await names(store, 0.0) == []
        assert not await store.heartbeat("a", Load(), lease_s=5, now=0.0)

    async def test_a_replica_is_listed_with_what_it_said(self, store: StateStore):
        """Card and load come back unchanged."""
        said = card("a", served_names=("x", "y"), generate_address="127.0.0.1:1")
        await store.register(said, Load(running=3, drafts=("d",)), lease_s=5, now=10.0)

        [found] = (await store.snapshot(now=11.0)).replicas

        assert found.card == said
        assert found.load == Load(running=3, drafts=("d",))
        assert (found.registered_at, found.expires_at) == (10.0, 15.0)

    async def test_a_lease_ends(self, store: StateStore):
        """At the end of its lease a replica is gone, not a moment earlier."""
        await store.register(card("a"), Load(), lease_s=5, now=0.0)

        assert await names(store, 4.999) == ["a"]
        assert await names(store, 5.0) == []

    async def test_a_heartbeat_extends_the_lease(self, store: StateStore):
        """Lease counts from the last heartbeat, which also carries the load."""
        await store.register(card("a"), Load(), lease_s=5, now=0.0)

        assert await store.heartbeat("a", Load(running=1), lease_s=5, now=4.0)
        [found] = (await store.snapshot(now=8.9)).replicas

        assert found.load.running == 1
        assert await names(store, 9.0) == []

    async def test_a_late_heartbeat_asks_for_registration(self, store: StateStore):
        """After its lease a replica must announce itself again."""
        await store.register(card("a"), Load(), lease_s=5, now=0.0)

        assert not await store.heartbeat("a", Load(), lease_s=5, now=6.0)
        await store.register(card("a"), Load(), lease_s=5, now=6.0)
        assert await names(store, 7.0) == ["a"]

    async def test_registering_again_replaces_the_card(self, store: StateStore):
        """A restarted listener gives a new address; the age stays."""
        await store.register(card("a", generate_address="h:1"), Load(), lease_s=5, now=0.0)
        await store.register(card("a", generate_address="h:2"), Load(), lease_s=5, now=1.0)

        [found] = (await store.snapshot(now=1.0)).replicas

        assert found.card.generate_address == "h:2"
        assert found.registered_at == 0.0

    async def test_remove(self, store: StateStore):
        """A removed replica is gone at once; removing it again is no error."""
        await store.register(card("a"), Load(), lease_s=5, now=0.0)

        await store.remove("a", now=1.0)
        await store.remove("a", now=1.0)

        assert await names(store, 1.0) == []

    async def test_replicas_are_ordered_by_name(self, store: StateStore):
        """So that every reader decides alike."""
        for name in ("b", "c", "a"):
            await store.register(card(name), Load(), lease_s=5, now=0.0)

        assert await names(store, 1.0) == ["a", "b", "c"]

    async def test_the_version_follows_membership_only(self, store: StateStore):
        """Readers wait for a new version; loads must not wake them, draining must."""

        async def version(now: float) -> int:
            return (await store.snapshot(now=now)).version

        start = await version(0.0)
        await store.register(card("a"), Load(), lease_s=5, now=0.0)
        came = await version(0.0)
        await store.heartbeat("a", Load(running=2), lease_s=5, now=1.0)
        loaded = await version(1.0)
        await store.heartbeat("a", Load(draining=True), lease_s=5, now=2.0)
        draining = await version(2.0)
        lost = await version(8.0)

        assert start < came == loaded < draining < lost

    async def test_profiles_are_kept_by_key(self, store: StateStore):
        """The newest of each key, found by how the key begins."""
        await store.keep("latency/a", {"at": [1.0, 2.5]})
        await store.keep("latency/b", {"at": []})
        await store.keep("acceptance/a", {"hits": [[0.5]]})
        await store.keep("latency/a", {"at": [3.0]})

        assert await store.kept("latency/") == {"latency/a": {"at": [3.0]}, "latency/b": {"at": []}}
        assert await store.kept("acceptance/a") == {"acceptance/a": {"hits": [[0.5]]}}
        assert await store.kept("nothing") == {}

    async def test_old_profiles_make_room(self, store: StateStore):
        """A store does not grow without end; what was written last stays."""
        for number in range(MOST_PROFILES + 10):
            await store.keep(f"p/{number}", {})
        await store.keep("p/10", {"again": 1})

        kept = await store.kept("p/")
        assert len(kept) == MOST_PROFILES
        assert "p/9" not in kept
        assert kept["p/10"] == {"again": 1}
