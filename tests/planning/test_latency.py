"""Latency models: staircases, lines, noise, drift."""

import random

import pytest

from specgrove.errors import ConfigError
from specgrove.planning.latency import DRIFTED, KNOTS, LatencyModel, Residual, Work


def machine(work):
    """A pass on a machine that works in blocks of 8 tokens, reads KV, and pays for each session."""
    blocks = -(-work.tokens // 8)
    return 1e-3 * (5 + 0.4 * blocks + 0.05 * work.sessions) + 2e-7 * work.context + 1e-9 * work.tokens * work.context


GRID = [
    Work(tokens * sessions, sessions, context * sessions)
    for tokens in (1, 2, 4, 8, 16, 32, 64)
    for sessions in (1, 2, 4, 8)
    for context in (64, 512, 2048)
]


def test_held_out_error_is_small_under_noise():
    """A fifth of the passes is held out; every measurement is off by up to a tenth."""
    rng = random.Random(0)
    measured = [(work, machine(work) * rng.uniform(0.9, 1.1)) for work in GRID for _ in range(2)]
    rng.shuffle(measured)
    fifth = len(measured) // 5
    model = LatencyModel.fit(measured[fifth:])

    assert model.error(measured[:fifth]) < 0.12
    assert model.error([(work, machine(work)) for work in GRID]) < 0.08


def test_free_tokens_are_seen():
    """On the flat part of a step more tokens cost nothing; a straight line would charge for each."""
    flat = [(Work(n), 0.01 if n <= 16 else 0.01 * n / 16) for n in KNOTS]
    model = LatencyModel.fit(flat)

    assert model.seconds(Work(12)) == pytest.approx(0.01, rel=1e-6)
    assert model.seconds(Work(48)) == pytest.approx(0.03, rel=1e-6)
    assert model.seconds(Work(256)) == pytest.approx(0.16, rel=1e-6)  # past the last knot


def test_more_work_never_takes_less_time():
    """Also where noise says so."""
    rng = random.Random(1)
    measured = [(work, 0.01 * rng.uniform(0.5, 1.5)) for work in GRID]
    model = LatencyModel.fit(measured)

    assert min(model.per_session, model.per_context, model.per_token_context) >= 0
    assert list(model.at_knots) == sorted(model.at_knots)
    for work in GRID:
        more = Work(work.tokens + 3, work.sessions, work.context + 100)
        assert model.seconds(more) * (1 + 1e-12) >= model.seconds(work) > 0


def test_models_travel_as_plain_values():
    """And come back equal."""
    model = LatencyModel.fit([(work, machine(work)) for work in GRID])

    assert LatencyModel.from_mapping(model.to_mapping()) == model


@pytest.mark.parametrize("measured", [[], [(Work(1), 0.01)] * 20, [(Work(n), 0.0) for n in KNOTS]])
def test_too_few_measurements_are_refused(measured):
    """With a sentence."""
    with pytest.raises(ConfigError, match="measured pass"):
        LatencyModel.fit(measured)


def test_drift_is_noticed_and_outliers_are_not():
    """A machine that got half as fast is; one pause of a second is not."""
    residual = Residual()
    for _ in range(200):
        residual.observe(0.01, 0.0105)
    residual.observe(0.01, 1.0)
    assert not residual.drifted
    assert residual.factor == pytest.approx(1.05, abs=0.1)

    for _ in range(100):
        residual.observe(0.01, 0.02)
    assert residual.drifted
    assert residual.error > DRIFTED


def test_what_was_not_told_apart_is_free():
    """Measured at one context and with one session, a model says nothing of others instead of blaming them."""
    model = LatencyModel.fit([(Work(n, 1, 64), 0.01 + 0.001 * n) for n in (*KNOTS, *KNOTS)])

    assert model.per_context == model.per_session == 0
    assert model.seconds(Work(1, 1, 2048)) < 1.5 * model.seconds(Work(1, 1, 64))
