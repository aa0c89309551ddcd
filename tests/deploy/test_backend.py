"""The ingress's choice of a target, and what it does when a target refuses, fails or is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

import pytest
from tests.state.contract import card

from specgrove.config import Config
from specgrove.core.cards import Load, ReplicaCard
from specgrove.core.request import Finished, GenerateEvent, GenerateRequest, Started
from specgrove.deploy.backend import IngressBackend
from specgrove.deploy.fleet import Fleet
from specgrove.errors import (
    CapacityError,
    ModelNotFound,
    ReplicaLost,
    RequestError,
    SpecgroveError,
    Unavailable,
)
from specgrove.state import Announcement, Snapshot

CONFIG = Config.from_mapping(
    {
        "models": {"m": "org/m"},
        "targets": {"main": {"model": "m", "served_model_name": ["m", "alias"]}},
        "ingress": {"wait_for_replica_s": 0.2, "request_timeout_s": 9.0},
    }
)


class FakeTarget:
    """A target replica as its client sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.card = card(name, served_names=("m", "alias"), generate_address=f"{name}:1")
        self.load = Load()
        self.error: SpecgroveError | None = None
        self.fails_late = False
        self.requests: list[GenerateRequest] = []
        self.gate: asyncio.Event | None = None
        self.cancelled = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        self.requests.append(request)
        if self.error is not None and not self.fails_late:
            raise self.error
        try:
            yield Started(request_id=request.request_id, model=self.name, seed=1, prompt_tokens=1)
            if self.gate is not None:
                await self.gate.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        yield Finished(prompt_tokens=1, completion_tokens=0)

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        if self.error is not None:
            raise self.error
        return (len(text), int(add_special_tokens))

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        return f"{self.name} {list(tokens)}"

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """A registry and its targets, with a fleet that follows it."""

    def __init__(self, *names: str) -> None:
        self.targets = {name: FakeTarget(name) for name in names}
        self.drafts: list[ReplicaCard] = []
        self.version = 0
        self._changed = asyncio.Event()
        self.fleet = Fleet(self, lambda card: cast(Any, self.targets[card.replica]))
        self.backend = IngressBackend(CONFIG, self.fleet)

    async def watch(self, version: int, *, wait_s: float) -> Snapshot:
        if version == self.version:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(wait_s, 0.05))
        cards = [(one.card, one.load) for one in self.targets.values()] + [(one, Load()) for one in self.drafts]
        live = tuple(Announcement(card=c, load=load, registered_at=1.0, expires_at=9.0) for c, load in cards)
        return Snapshot(version=self.version, taken_at=3.0, replicas=live)

    def change(self) -> None:
        """Tell the fleet."""
        self.version += 1
        self._changed.set()

    async def ask(self, model: str = "m", **fields: Any) -> str:
        """Run one request; returns the name of the target that answered."""
        request = GenerateRequest(request_id="r", model=model, text="x", **fields)
        events = [event async for event in self.backend.generate(request)]
        assert isinstance(events[0], Started)
        assert isinstance(events[-1], Finished)
        return events[0].model


@pytest.fixture
async def make_world() -> AsyncIterator[Callable[..., Any]]:
    """Builds worlds whose fleet has seen its first snapshot."""
    made: list[World] = []

    async def make(*names: str) -> World:
        world = World(*names)
        made.append(world)
        world.fleet.start()
        await world.fleet.news(1.0)
        return world

    yield make
    for world in made:
        await world.fleet.close()


async def test_requests_spread_over_the_replicas(make_world):
    """Own requests count before the targets report them."""
    world = await make_world("a", "b")
    for one in world.targets.values():
        one.gate = asyncio.Event()
    running = [asyncio.create_task(world.ask()) for _ in range(4)]
    await asyncio.sleep(0.05)

    assert [len(one.requests) for one in world.targets.values()] == [2, 2]
    for one in world.targets.values():
        one.gate.set()
    assert sorted(await asyncio.gather(*running)) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("error", [Unavailable("draining"), CapacityError("full"), ReplicaLost("a", 0)])
async def test_a_target_that_refuses_is_passed_over(make_world, error: SpecgroveError):
    """Nothing had been sent, so the next one may answer."""
    world = await make_world("a", "b")
    world.targets["a"].error = error

    assert await world.ask() == "b"
    assert len(world.targets["a"].requests) == 1


async def test_an_error_after_the_first_event_is_passed_on(make_world):
    """A client that has seen tokens must not get another target's beginning."""
    world = await make_world("a", "b")
    world.targets["a"].error, world.targets["a"].fails_late = ReplicaLost("a", 3), True

    with pytest.raises(ReplicaLost):
        await world.ask()
    assert world.targets["b"].requests == []


async def test_a_bad_request_is_not_tried_elsewhere(make_world):
    """It is bad everywhere."""
    world = await make_world("a", "b")
    world.targets["a"].error = RequestError("prompt too long", param="prompt")

    with pytest.raises(RequestError):
        await world.ask()
    assert world.targets["b"].requests == []


async def test_full_everywhere_is_said_at_once(make_world):
    """CapacityError of the last one; no waiting, the client may retry."""
    world = await make_world("a", "b")
    for one in world.targets.values():
        one.error = CapacityError("full")
    began = asyncio.get_running_loop().time()

    with pytest.raises(CapacityError):
        await world.ask()

    assert asyncio.get_running_loop().time() - began < 0.15
    assert [len(one.requests) for one in world.targets.values()] == [1, 1]


async def test_waits_for_a_replica_that_comes(make_world):
    """While a new configuration rolls out there may be nobody for a moment."""
    world = await make_world()
    asking = asyncio.create_task(world.ask())
    await asyncio.sleep(0.05)

    world.targets["late"] = FakeTarget("late")
    world.change()

    assert await asyncio.wait_for(asking, 1.0) == "late"


async def test_gives_up_waiting(make_world):
    """Every request ends: Unavailable after wait_for_replica_s."""
    world = await make_world()

    with pytest.raises(Unavailable, match="no replica of m is alive"):
        await asyncio.wait_for(world.ask(), 1.0)


async def test_a_failed_replica_is_avoided_for_a_while(make_world):
    """The next request does not pay for the same discovery."""
    world = await make_world("a", "b")
    world.targets["a"].error = Unavailable("gone")
    await world.ask()
    world.targets["b"].load = Load(running=5)
    world.change()
    await asyncio.sleep(0.1)

    assert await world.ask() == "b"
    assert len(world.targets["a"].requests) == 1


async def test_draining_targets_get_nothing(make_world):
    """Their live sessions are their last."""
    world = await make_world("a", "b")
    world.targets["a"].load = Load(draining=True)
    world.change()
    await asyncio.sleep(0.1)

    assert await world.ask() == "b"
    assert world.targets["a"].requests == []


async def test_unknown_models_are_named(make_world):
    """At once, with the names that are served, while known ones wait for replicas."""
    world = await make_world("a")

    with pytest.raises(ModelNotFound, match="'x' is not served; served: m, alias"):
        await world.ask("x")
    with pytest.raises(ModelNotFound):
        await world.backend.tokenize("x", "t", add_special_tokens=True)
    assert await world.ask("alias") == "a"


async def test_closing_the_iterator_closes_the_targets(make_world):
    """A cancelled client frees the session within one step."""
    world = await make_world("a")
    world.targets["a"].gate = asyncio.Event()
    request = GenerateRequest(request_id="r", model="m", text="x")
    async with aclosing(world.backend.generate(request)) as events:
        await anext(events)

    assert world.fleet.pick("m") is not None
    assert world.targets["a"].cancelled == 1
    assert not world.fleet._in_flight


@pytest.mark.parametrize(("asked", "passed"), [(None, 9.0), (3.0, 3.0), (99.0, 9.0)])
async def test_every_request_has_a_deadline(make_world, asked: float | None, passed: float):
    """The server's limit holds for requests without one and for longer ones."""
    world = await make_world("a")

    await world.ask(timeout_s=asked)

    assert world.targets["a"].requests[0].timeout_s == passed


async def test_models_show_replicas_and_their_drafts(make_world):
    """Each name with its live targets, the drafts connected to them, and since when."""
    world = await make_world("a")
    world.drafts = [card("d", role="draft", pool="fast"), card("e", role="draft", pool="fast")]
    world.targets["a"].load = Load(drafts=("d", "gone"))
    world.change()
    await asyncio.sleep(0.1)

    first, second = await world.backend.models()

    assert (first.name, second.name) == ("m", "alias")
    assert [one.replica for one in first.replicas] == ["a"]
    assert [one.replica for one in first.drafts] == ["d"]
    assert first.state == "ready"
    assert first.created > 1_600_000_000
    assert world.backend.ready


async def test_a_model_without_replicas_is_listed_as_unavailable(make_world):
    """Clients see what the configuration promises."""
    world = await make_world()

    status = (await world.backend.models())[0]

    assert (status.state, status.replicas, status.created) == ("unavailable", (), 0)
    assert not world.backend.ready


async def test_tokenize_and_detokenize(make_world):
    """On any live target; a lost one is passed over."""
    world = await make_world("a", "b")

    assert await world.backend.tokenize("m", "abc", add_special_tokens=True) == (3, 1)
    world.targets["a"].error = Unavailable("gone")
    assert await world.backend.tokenize("m", "abcd", add_special_tokens=False) == (4, 0)
    assert await world.backend.detokenize("m", [1, 2]) == "b [1, 2]"
