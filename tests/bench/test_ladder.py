"""The ladder's arithmetic, and one small climb against the live server."""

import math

import pytest
from tests.live import Live

from specgrove.bench.ladder import BAD, OFF, PLANNED, Recovery, Window, climb, policies
from specgrove.bench.ladder_report import paired, report, table
from specgrove.client import ChatMessage
from specgrove.client.aio import AsyncClient
from specgrove.core.request import Speculation


def test_pairs_of_repeats_are_compared():
    """What is the same in both members of a pair (a slow machine) does not widen the interval."""
    ours, theirs = {0: 10.0, 1: 20.0, 2: 40.0}, {0: 5.0, 1: 10.0, 2: 20.0}
    assert paired(ours, theirs).mean == pytest.approx(2.0)
    assert paired(ours, theirs).low == pytest.approx(2.0)

    noisy = paired({0: 10.0, 1: 10.0, 2: 10.0}, {0: 8.0, 1: 10.0, 2: 12.5})
    spread = math.log(1.25)
    assert noisy.mean == pytest.approx(1.0)
    assert noisy.low == pytest.approx(math.exp(-1.886 * spread / math.sqrt(3)))
    assert paired({0: 1.0}, {0: 1.0}).low == 0.0


def window(policy, repeat, tokens, concurrency=4):
    """One second."""
    return Window(policy=policy, concurrency=concurrency, repeat=repeat, seconds=1.0, tokens=tokens)


def test_planned_is_held_against_the_best_fixed_policy():
    """Off is one of them, also against a bad draft; planned itself is none."""
    windows = [
        window(name, repeat, tokens)
        for repeat in range(3)
        for name, tokens in ((OFF, 100), ("chain 4", 150), (PLANNED, 147), (PLANNED + BAD, 98), ("chain 4" + BAD, 60))
    ]
    for one, nodes in zip((w for w in windows if w.policy == PLANNED), (6.0, 7.0, 8.0), strict=True):
        one.planned = {"nodes": nodes, "depth": 4.0}
    found = report({}, windows, Recovery(1.0, (10.0, 95.0, 96.0, 97.0), 100.0))
    [rung] = found["rungs"]

    assert rung["planned"]["best"] == "chain 4"
    assert rung["planned"]["over_best"]["mean"] == pytest.approx(0.98)
    assert rung["planned"]["over_off"]["mean"] == pytest.approx(1.47)
    assert rung["planned" + BAD]["best"] == OFF
    assert rung["planned" + BAD]["over_best"]["low"] == pytest.approx(0.98)
    assert rung["planned"]["budget"] == {"nodes": 7.0, "depth": 4.0}
    assert found["recovery"]["seconds"] == 2.0
    assert "| 4 | bad | off | 0.98 (0.98) |" in table(found)
    assert "| 1.47 (1.47) | 7.0, 4.0 |" in table(found)
    assert "after 2 s" in table(found)


def test_a_draft_that_never_recovers():
    """Is said to."""
    assert Recovery(1.0, (10.0, 95.0, 20.0), 100.0).seconds is None


def test_policies_differ():
    """And planned asks for nothing special."""
    found = policies()
    assert found[PLANNED] == Speculation()
    assert found[OFF].mode == "off"
    assert len({repr(asked) for asked in found.values()}) == len(found)


async def test_a_small_climb(cluster: Live):
    """Two policies, two clients, short windows: tokens, times and rounds are counted."""
    compared = {name: asked for name, asked in policies().items() if name in (OFF, "chain 2")}
    prompts = [[ChatMessage("user", "What is 7 + 5?")], [ChatMessage("user", "Count from 3 to 9.")]]
    async with AsyncClient(cluster.grpc) as client:
        found = await climb(
            client,
            "grove-large",
            prompts,
            rungs=(2,),
            compared=compared,
            repeats=2,
            seconds=1.0,
            warm_s=0.3,
            tokens=16,
            temperature=0.0,
            seed=0,
            metrics=lambda: {"specgrove:planned_tree_nodes": 3.0},
        )

    assert sorted((one.policy, one.repeat) for one in found) == [("chain 2", 0), ("chain 2", 1), (OFF, 0), (OFF, 1)]
    for one in found:
        mapping = one.to_mapping()
        assert mapping["tokens"] > 10
        assert mapping["answers"] > 0
        assert (mapping["rounds_with_tree"] > 0) == (one.policy != OFF)
        assert 0 < mapping["token_s"]["median"] < 1
        assert mapping["planned"] == {}  # fixed policies
