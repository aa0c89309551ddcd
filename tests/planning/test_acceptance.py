"""Estimates of acceptance: right under censoring, forgetting, shared."""

import random

import numpy as np
import pytest

from specgrove.core.tree import TokenTree
from specgrove.planning.acceptance import DEPTHS, RANKS, AcceptanceEstimate, Visit, visits

TRUE = (0.6, 0.2, 0.1)


def walk(rng, truth, widths):
    """Visits of one round through a tree with `widths[d]` children per node at depth d."""
    seen = []
    for depth, width in enumerate(widths):
        draw, taken = rng.random(), None
        for rank, probability in enumerate(truth(depth)):
            if draw < probability:
                taken = rank if rank < width else None
                break
            draw -= probability
        seen.append(Visit(depth, width, taken))
        if taken is None:
            break
    return seen


def test_visits_of_a_round():
    """Ranks of the accepted path, and the last node, where nothing was taken."""
    tree = TokenTree((1, 2, 3, 4, 5), (-1, -1, 1, 1, 3))

    assert visits(tree, [1, 3]) == [Visit(0, 2, 1), Visit(1, 2, 1), Visit(2, 1, None)]
    assert visits(tree, [1, 3, 4]) == [Visit(0, 2, 1), Visit(1, 2, 1), Visit(2, 1, 0)]
    assert visits(tree, []) == [Visit(0, 2, None)]


@pytest.mark.parametrize("widths", [(1,) * 5, (3, 1, 1, 1), (3, 3, 3)])
def test_estimates_do_not_depend_on_the_shape_of_the_trees(widths):
    """A chain of five sees the same first rank as a wide tree; the prefix ratio would not."""
    rng, estimate = random.Random(1), AcceptanceEstimate(memory=1e9)
    for _ in range(4000):
        estimate.observe(walk(rng, lambda _: TRUE, widths))

    found = estimate.vector()
    ranks = max(widths)
    assert found[:ranks] == pytest.approx(TRUE[:ranks], abs=0.02)
    assert found.sum() <= 1


def test_depths_are_told_apart():
    """A draft that gets worse with depth, as heads on the target's states do."""
    by_depth = ((0.8, 0.1), (0.5, 0.2), (0.2, 0.1))
    rng, estimate = random.Random(2), AcceptanceEstimate(memory=1e9)
    for _ in range(6000):
        estimate.observe(walk(rng, lambda depth: by_depth[depth], (2, 2, 2)))

    assert estimate.matrix(3)[:, :2] == pytest.approx(np.array(by_depth), abs=0.04)
    assert estimate.matrix(DEPTHS + 5).shape == (DEPTHS + 5, RANKS)


def test_old_rounds_are_forgotten():
    """A draft that turns bad is known to be bad within a few windows; then good again."""
    rng, estimate = random.Random(3), AcceptanceEstimate(memory=50)
    for truth in ((0.9,), (0.1,), (0.9,)):
        for _ in range(200):
            estimate.observe(walk(rng, lambda _, truth=truth: truth, (1, 1, 1, 1)))
        assert estimate.vector()[0] == pytest.approx(truth[0], abs=0.1)


def test_nothing_seen_is_hopeful_and_unsure():
    """So that speculation is tried; a hundred rounds make it sure."""
    estimate = AcceptanceEstimate()
    before = estimate.deviation()
    for _ in range(100):
        estimate.observe([Visit(0, 1, None)])

    assert AcceptanceEstimate().vector()[0] == pytest.approx(0.7)
    assert estimate.vector()[0] < 0.06
    assert estimate.deviation() < before / 4
    assert 50 < estimate.weight < 100


def test_vectors_never_increase():
    """Also where the counts do, as in a tail with few trials: the dynamic program and best-first growth then agree."""
    estimate = AcceptanceEstimate()
    for _ in range(30):
        estimate.observe([Visit(0, 3, 2)])

    assert (np.diff(estimate.vector()) <= 1e-12).all()
    assert (np.diff(estimate.matrix(4), axis=1) <= 1e-12).all()


def test_counts_of_replicas_add_up():
    """Through plain values, as they travel."""
    rng = random.Random(4)
    parts = [AcceptanceEstimate(memory=1e9) for _ in range(3)]
    for number in range(3000):
        parts[number % 3].observe(walk(rng, lambda _: TRUE, (3, 3)))
    together = AcceptanceEstimate(memory=1e9)
    for part in parts:
        together.merge(AcceptanceEstimate.from_mapping(part.to_mapping()))

    assert together.vector()[:3] == pytest.approx(TRUE, abs=0.03)
    with pytest.raises(ValueError, match="shape"):
        AcceptanceEstimate.from_mapping({"hits": [[1.0]], "trials": [[1.0]], "rounds": 1})


def test_what_is_too_deep_or_too_late_is_not_counted():
    """Beyond the tables' edges."""
    estimate = AcceptanceEstimate()
    estimate.observe([Visit(DEPTHS, 1, 0), Visit(DEPTHS + 1, 1, 0)])
    estimate.observe([Visit(0, RANKS + 3, RANKS + 2)])

    assert estimate.vector().shape == (RANKS,)
    assert estimate.vector()[0] < 0.7
