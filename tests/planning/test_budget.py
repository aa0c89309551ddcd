"""Budgets of a batch: against trying everything, and in situations whose answer is known."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgrove.planning.budget import Budget, Gains, Group, best_budget, expected
from specgrove.planning.goodput import Coefficients, best_length
from specgrove.planning.tree_shape import best_tree

GOOD, BAD = np.array([0.85, 0.08, 0.03]), np.array([0.2, 0.05, 0.02])


def group(acceptance, members=1, nodes=6, depth=4):
    """A group with room for so many nodes."""
    return Group(members, Gains(acceptance, nodes=nodes, depth=depth), nodes, depth)


def exhaustive(groups, round_time):
    """The largest goodput over every combination of nodes and every depth."""
    best = expected(groups, (0,) * len(groups), 0, round_time).goodput
    for depth in range(1, max(g.most_depth for g in groups) + 1):
        for nodes in product(*(range(g.most_nodes + 1) for g in groups)):
            if any(nodes):
                best = max(best, expected(groups, nodes, depth, round_time).goodput)
    return best


def test_gains_are_the_best_trees():
    """One node more than the drafted ones is the root, and so is one level."""
    gains = Gains(GOOD, nodes=8, depth=3)

    for depth, nodes in product(range(1, 4), range(9)):
        assert gains.tokens(depth, nodes) == pytest.approx(best_tree(GOOD, nodes + 1, depth + 1).expected_tokens)
    assert gains.tokens(0, 5) == gains.tokens(5, 0) == 1.0


def drawn_groups(parts, members):
    """Groups of `members` sessions each, of which the first rank is accepted in so many of a hundred rounds."""
    return [group(np.array([part / 100, (100 - part) / 300]), members, nodes=4, depth=3) for part in parts]


PARTS = st.lists(st.integers(34, 95), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(PARTS, st.integers(1, 5), st.floats(0, 0.2), st.floats(0, 0.5), st.floats(0, 0.3))
def test_no_other_budget_is_better(parts, members, draft, network, per_node):
    """Against every combination, where each node costs the same."""
    groups = drawn_groups(parts, members)

    def round_time(nodes, depth):
        return 1.0 + per_node * nodes + network * (nodes > 0) + depth * draft

    assert best_budget(groups, round_time).goodput == pytest.approx(exhaustive(groups, round_time), rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(PARTS, st.integers(1, 5), st.floats(0, 0.2), st.lists(st.floats(0, 0.3), min_size=60, max_size=60))
def test_hardly_any_other_budget_is_better_on_staircases(parts, members, draft, steps):
    """Groups are not split, so the edge of a stair can be missed by a part of a group."""
    groups = drawn_groups(parts, members)
    stairs = np.concatenate([[1.0], 1.0 + np.cumsum(steps)])

    def round_time(nodes, depth):
        return stairs[nodes] + depth * draft

    assert best_budget(groups, round_time).goodput >= 0.97 * exhaustive(groups, round_time)


def test_nodes_go_where_they_are_accepted():
    """A session whose draft is bad decodes plainly beside one whose draft is good."""
    found = best_budget([group(GOOD), group(BAD)], lambda nodes, depth: 1.0 + 0.1 * nodes + 0.05 * depth)

    assert found.nodes[0] >= 2
    assert found.nodes[1] == 0


def test_off_where_verification_costs_what_it_brings():
    """A full batch on a machine that is bound by arithmetic; then nothing is drafted at all."""
    busy = best_budget([group(GOOD, members=64)], lambda nodes, depth: 1.0 + nodes / 64 + 0.05 * depth)
    alone = best_budget([group(GOOD)], lambda nodes, depth: 1.0 + nodes / 64 + 0.05 * depth)

    assert busy.off
    assert busy.goodput == 64.0
    assert not alone.off


def test_every_total_is_tried():
    """The first nodes do not pay, all of them together do."""
    found = best_budget([group(GOOD)], lambda nodes, depth: np.where(nodes == 0, 1.0, 1.9 + 0.01 * nodes))

    assert found.nodes == (6,)
    assert found.depth == 4


def test_slow_drafts_make_short_trees():
    """The depth is as much a part of the decision as the size."""
    quick = best_budget([group(GOOD)], lambda nodes, depth: 1.0 + 0.001 * nodes + 0.05 * depth)
    slow = best_budget([group(GOOD)], lambda nodes, depth: 1.0 + 0.001 * nodes + 0.45 * depth)

    assert quick.depth > slow.depth
    assert not slow.off


def test_limits_of_requests_are_kept():
    """A group that may not draft does not."""
    limited = Group(2, Gains(GOOD, nodes=6, depth=4), 2, 1)
    found = best_budget([limited, Group(1, Gains(GOOD, nodes=6, depth=4), 0, 0)], lambda nodes, _: 1.0 + 1e-3 * nodes)

    assert found.nodes == (2, 0)
    assert found.tokens == pytest.approx(2 * (1 + 0.85 + 0.08) + 1)


def test_chains_agree_with_the_papers_form():
    """One rank of constant acceptance and the published coefficients: the same best length as best_length."""
    model = Coefficients(c_kv=4.859e-5, c_c=1.844e-2, c_B=-4.331e-2, c_0=6.9387, d_k=0.4522, d_0=0.4471)
    for alpha, batch in product((0.3, 0.5, 0.7, 0.9), (1, 16, 64, 256)):
        gains = Gains(np.array([alpha]), nodes=8, depth=8)

        def round_time(nodes, depth, batch=batch):
            return np.array([model.step_time(batch, 1024, total // batch) for total in nodes.tolist()])

        found = best_budget([Group(batch, gains, 8, 8)], round_time)
        expected = best_length(model, alpha=alpha, batch=batch, context=1024)
        assert found.nodes == (expected.length,)
        assert found.goodput == pytest.approx(expected.goodputs[expected.length])


def test_a_budget_says_what_it_is():
    """Goodput and whether anybody drafts."""
    assert Budget(2, (0, 3), 6.0, 2.0).goodput == 3.0
    assert not Budget(2, (0, 3), 6.0, 2.0).off
    assert Budget(0, (0, 0), 2.0, 1.0).off
