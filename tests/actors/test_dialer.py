"""A draft stays connected to its targets."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.actors.test_membership import eventually
from tests.state.contract import card

from specgrove.actors import dialer
from specgrove.actors.dialer import Dialer
from specgrove.core.cards import ReplicaCard
from specgrove.errors import Unauthenticated, Unavailable


def target(name: str, address: str = "h:1") -> ReplicaCard:
    """A target's card."""
    return card(name, speculate_address=address)


class Line:
    """Streams that last until they are cut."""

    def __init__(self) -> None:
        self.dialled: Counter[str] = Counter()
        self.open: dict[str, asyncio.Event] = {}
        self.error: Exception | None = None

    async def speak(self, card: ReplicaCard) -> None:
        self.dialled[f"{card.replica} {card.speculate_address}"] += 1
        if self.error is not None:
            raise self.error
        self.open[card.replica] = asyncio.Event()
        try:
            await self.open[card.replica].wait()
        finally:
            del self.open[card.replica]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(dialer, "LONGEST_WAIT_S", 0.04)


async def test_dials_each_target_once():
    """Asking for the same again changes nothing."""
    line = Line()
    keeper = Dialer(line.speak)
    for _ in range(3):
        keeper.want({"a": target("a"), "b": target("b")})
        await asyncio.sleep(0.02)

    assert line.dialled == {"a h:1": 1, "b h:1": 1}
    await keeper.close()
    assert line.open == {}


async def test_dials_again_when_a_stream_ends():
    """A target that restarts gets its draft back."""
    line = Line()
    keeper = Dialer(line.speak)
    keeper.want({"a": target("a")})
    await eventually(lambda: "a" in line.open)

    line.open["a"].set()

    await eventually(lambda: line.dialled["a h:1"] == 2 and "a" in line.open)
    await keeper.close()


@pytest.mark.parametrize("error", [Unavailable("no"), Unauthenticated("no"), RuntimeError("bug")])
async def test_goes_on_after_any_error(error: Exception):
    """A refused or broken stream costs nothing but time."""
    line = Line()
    line.error = error
    keeper = Dialer(line.speak)
    keeper.want({"a": target("a")})
    await eventually(lambda: line.dialled["a h:1"] >= 2)

    line.error = None

    await eventually(lambda: "a" in line.open)
    await keeper.close()


async def test_a_forgotten_target_keeps_its_stream_but_is_not_dialled_again():
    """The registry may have lost its memory; a stream that works is worth more than its word."""
    line = Line()
    keeper = Dialer(line.speak)
    keeper.want({"a": target("a")})
    await eventually(lambda: "a" in line.open)

    keeper.want({})
    await asyncio.sleep(0.03)
    assert "a" in line.open
    line.open["a"].set()
    await asyncio.sleep(0.1)

    assert keeper.targets == ()
    assert line.dialled == {"a h:1": 1}
    keeper.want({"a": target("a")})
    await eventually(lambda: line.dialled["a h:1"] == 2)
    await keeper.close()


async def test_a_new_address_is_dialled_instead():
    """The old stream ends."""
    line = Line()
    keeper = Dialer(line.speak)
    keeper.want({"a": target("a", "h:1")})
    await eventually(lambda: "a" in line.open)

    keeper.want({"a": target("a", "h:2")})

    await eventually(lambda: line.dialled["a h:2"] == 1 and "a" in line.open)
    await keeper.close()
