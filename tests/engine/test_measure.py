"""Measuring passes: every size at least once, the pool as it was before, and a model that fits."""

from pathlib import Path

import pytest
from tests.pairs import write_pair

from specgrove.engine.loader import EngineOptions, load
from specgrove.engine.measure import SHAPES, passes
from specgrove.errors import CapacityError
from specgrove.planning.latency import KNOTS, LatencyModel


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a context of 256."""
    return write_pair(tmp_path_factory.mktemp("pair"), likeness=1.0)[0]


def test_every_size_is_measured(target: Path):
    """Also when there is no time for more than one round."""
    engine = load(str(target), EngineOptions(dtype="float32", threads=1, kv_slots=4096))
    hurried, thorough = passes(engine, budget_s=0.0), passes(engine, budget_s=60.0)

    assert {work.tokens for work, _ in hurried} == set(KNOTS)
    assert {work.sessions for work, _ in thorough} == {sessions for sessions, _ in SHAPES}
    assert max(work.tokens for work, _ in thorough) == max(KNOTS)
    assert all(seconds > 0 for _, seconds in thorough)
    assert LatencyModel.fit(thorough).error(thorough) < 0.5
    assert engine.pool.stats().referenced == 0
    engine.pool.check()


def test_a_small_pool_is_measured_as_far_as_it_goes(target: Path):
    """Fewer sizes, and a model of those; without any room it says so."""
    engine = load(str(target), EngineOptions(dtype="float32", threads=1, kv_slots=96))
    room = engine.pool.stats().free - min(SHAPES[0][1], engine.card.max_model_len - 2)
    found = passes(engine, budget_s=0.0)

    possible = tuple(knot for knot in KNOTS if knot <= room)
    assert {work.tokens for work, _ in found} == set(possible) < set(KNOTS)
    assert LatencyModel.fit(found).knots == possible
    full = engine.pool.open(())
    full.reserve(range(engine.pool.stats().free))
    with pytest.raises(CapacityError):
        passes(engine)
    full.release()
