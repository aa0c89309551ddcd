"""The hardware-aware size against golden values."""

import json
from pathlib import Path

import numpy as np
import pytest

from specgrove.errors import ConfigError
from specgrove.planning.size import best_size
from specgrove.planning.tree_shape import ShapeTable

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sequoia.json").read_text())
VECTOR = (0.6, 0.2, 0.1, 0.05)
LATENCY = {1: 1.0, 2: 1.0, 4: 1.05, 8: 1.2}


@pytest.mark.parametrize("row", GOLDEN["sequoia_hw_select_small"]["table"], ids=lambda row: f"{row['n']},{row['d']}")
def test_golden_table(row):
    """Expected tokens of every size and depth, and the speed-up that follows from them."""
    tokens = ShapeTable(VECTOR, row["n"], row["d"]).shape().expected_tokens

    assert tokens == pytest.approx(row["G"], abs=1e-8)
    assert tokens / (LATENCY[row["n"]] + 0.1 * row["d"]) == pytest.approx(row["speedup"], abs=1e-7)


def test_golden_choice():
    """(8, 3) is the best of the table."""
    best = GOLDEN["sequoia_hw_select_small"]["best"]
    chosen = best_size(VECTOR, LATENCY, draft_cost=0.1)

    assert (chosen.shape.nodes, chosen.shape.levels) == (best["n"], best["d"])
    assert chosen.gain == pytest.approx(best["speedup"], abs=1e-7)


def test_golden_choice_of_the_papers_demonstration():
    """A chain of four. Its value gives the first rank of the vector, which is all that a chain uses."""
    golden = GOLDEN["sequoia_hw_select_demo"]
    config = golden["config"]
    latency = dict(zip(config["valid_budget"], map(float, config["target_time"]), strict=True))
    first = next(root.real for root in np.roots([1, 1, 1, 1 - golden["G"]]) if abs(root.imag) < 1e-9)
    chosen = best_size((first,), latency, draft_cost=config["draft_time"], levels=config["max_depth"])

    assert (chosen.shape.nodes, chosen.shape.levels) == (golden["best_size"], golden["best_depth"])
    assert chosen.time_per_token == pytest.approx(golden["time_per_token"], abs=1e-5)
    assert chosen.gain == pytest.approx(golden["speedup_vs_autoregressive"], abs=1e-5)


@pytest.mark.parametrize("network", [0.0, 0.5])
def test_matrix_and_vector_agree_where_the_rows_are_equal(network):
    """A matrix of equal rows is the vector, as deep as it has rows."""
    by_vector = best_size(VECTOR, LATENCY, draft_cost=0.1, network=network, levels=4)
    by_matrix = best_size([VECTOR] * 3, LATENCY, draft_cost=0.1, network=network)

    assert by_matrix == by_vector


def test_nothing_is_drafted_where_it_does_not_pay():
    """Plain decoding costs neither drafting nor network, and wins when acceptance is low or the network is slow."""
    assert best_size((0.05,), LATENCY, draft_cost=0.1).shape.nodes == 1
    assert best_size((0.05,), LATENCY, draft_cost=0.1).gain == 1.0
    assert best_size(VECTOR, LATENCY, draft_cost=0.1, network=5.0).shape.nodes == 1


def test_staircases_are_searched_to_their_end():
    """A size that costs more than it brings does not hide a larger one that pays."""
    stairs = {1: 1.0, 2: 1.55, 4: 1.6, 8: 1.6, 16: 1.6}

    assert best_size(VECTOR, stairs, draft_cost=0.0).shape.nodes == 16


@pytest.mark.parametrize(
    ("latency", "costs", "words"),
    [
        ({2: 1.0}, {"draft_cost": 0.1}, "entry for 1 token"),
        ({1: 1.0, 2: 0.0}, {"draft_cost": 0.1}, "no positive time"),
        ({1: 1.0}, {"draft_cost": -0.1}, "at least 0"),
        ({1: 1.0}, {"draft_cost": 0.1, "network": -1.0}, "at least 0"),
    ],
)
def test_what_is_no_cost_is_refused(latency, costs, words):
    """With a sentence."""
    with pytest.raises(ConfigError, match=words):
        best_size(VECTOR, latency, **costs)
