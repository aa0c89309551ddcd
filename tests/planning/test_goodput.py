"""Goodput in the paper's form, against the table of papers/serving.md, 3(c)."""

import json
from pathlib import Path

import pytest

from specgrove.errors import ConfigError
from specgrove.planning.goodput import Coefficients, best_length, chain_tokens

H100_8B = Coefficients(
    c_kv=4.859e-5,
    c_c=1.844e-2,
    c_B=-4.331e-2,
    c_0=6.9387,
    d_kv=2.897e-6,
    d_c=4.387e-5,
    d_k=0.4522,
    d_B=5.528e-3,
    d_0=0.4471,
)
BATCHES = (1, 4, 16, 64, 128, 256, 512)
OFF = (0, 1.0)
TABLE = {
    (0.3, 1024): [(2, 1.11), (2, 1.10), (1, 1.05), OFF, OFF, OFF, OFF],
    (0.5, 1024): [(3, 1.42), (3, 1.39), (2, 1.31), (2, 1.12), (1, 1.01), OFF, OFF],
    (0.7, 1024): [(5, 2.02), (5, 1.97), (4, 1.79), (3, 1.44), (2, 1.23), (2, 1.06), OFF],
    (0.9, 1024): [(8, 3.70), (8, 3.56), (8, 3.12), (7, 2.23), (6, 1.78), (5, 1.43), (4, 1.20)],
    (0.7, 4096): [(5, 2.03), (5, 2.01), (5, 1.94), (4, 1.84), (4, 1.80), (4, 1.77), (4, 1.76)],
}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sequoia.json").read_text())


@pytest.mark.parametrize(
    ("alpha", "context", "batch", "expected"),
    [
        (alpha, context, batch, expected)
        for (alpha, context), row in TABLE.items()
        for batch, expected in zip(BATCHES, row, strict=True)
    ],
)
def test_golden_table(alpha, context, batch, expected):
    """The best length and what it gains, Llama-8B on an H100."""
    chosen = best_length(H100_8B, alpha=alpha, batch=batch, context=context)

    assert chosen.length == expected[0]
    assert chosen.gain == pytest.approx(expected[1], abs=0.01)


@pytest.mark.parametrize("row", GOLDEN["chain_closed_forms"]["rows"], ids=lambda row: f"{row['alpha']},{row['gamma']}")
def test_golden_chains(row):
    """Tokens of a chain, and the speed-up with a draft of a tenth of the target's time and free verification."""
    free = Coefficients(c_kv=0.0, c_c=0.0, c_0=1.0, d_k=0.1, overhead_fraction=0.0)
    goodputs = best_length(free, alpha=row["alpha"], batch=1, context=0, longest=row["gamma"]).goodputs

    assert chain_tokens(row["alpha"], row["gamma"]) == pytest.approx(row["expected_tokens"], abs=1e-9)
    assert goodputs[-1] / goodputs[0] == pytest.approx(row["speedup_c0.1"], abs=1e-9)


def test_a_perfect_draft_has_no_division_by_zero():
    """All drafted tokens and the bonus."""
    assert chain_tokens(1.0, 7) == 8.0
    assert chain_tokens(0.0, 7) == 1.0


def test_lengths_are_searched_past_a_dip():
    """Where the first drafted token costs more than it brings and the later ones are free."""
    stairs = Coefficients(c_kv=0.0, c_c=0.0, c_0=1.0, d_0=1.2, overhead_fraction=0.0)
    chosen = best_length(stairs, alpha=0.9, batch=1, context=0)

    assert chosen.goodputs[1] < chosen.goodputs[0]
    assert chosen.length == 8


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alpha": 1.5}, "alpha is a probability"),
        ({"batch": 0}, "at least one request"),
        ({"batch": 10**6}, "step time of"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    """With a sentence."""
    with pytest.raises(ConfigError, match=words):
        best_length(H100_8B, **({"alpha": 0.5, "batch": 1, "context": 0} | given))


def test_unknown_coefficients_are_refused():
    """By name."""
    with pytest.raises(ConfigError, match="c_x: unknown key"):
        Coefficients.from_mapping({"c_kv": 0.0, "c_c": 0.0, "c_0": 1.0, "c_x": 1.0})
