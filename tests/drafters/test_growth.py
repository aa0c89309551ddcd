"""Drafting methods: trees within their plans, best nodes first, elder siblings first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgrove.core.speculate import DraftPlan
from specgrove.core.tree import TokenTree
from specgrove.drafters import start
from specgrove.drafters.growth import Children, Growth
from specgrove.errors import ConfigError


def grow(growth: Growth, score: list[float]) -> TokenTree:
    """Run a growth against a draft that always offers tokens 0, 1, 2, … with the given scores."""
    while growth.frontier:
        kids = Children(list(range(len(score)))[: growth.width], score[: growth.width])
        growth.extend([kids] * len(growth.frontier))
    return growth.tree()


def test_chain_is_one_path():
    """A chain of three is three nodes, each the child of the one before."""
    assert grow(start(DraftPlan(method="chain", branching=(1, 1, 1))), [0.0]) == TokenTree.chain([0, 0, 0])


def test_tree_branches_per_depth():
    """Branching (2, 1) gives two children of the root with one child each."""
    tree = grow(start(DraftPlan(branching=(2, 1))), [-0.1, -3.0])

    assert tree == TokenTree((0, 1, 0, 0), (-1, -1, 0, 1))


def test_full_level_keeps_the_best_paths_and_the_depth():
    """With room for 5 of 14 nodes the best paths stay and the tree still reaches its full depth."""
    tree = grow(start(DraftPlan(branching=(2, 2, 2), max_nodes=5)), [-0.1, -3.0])

    assert len(tree) == 5
    assert tree.depth == 3
    assert tree.tokens[:2] == (0, 1)


def test_paths_are_ranked_by_margin():
    """The margin to the best sibling ranks paths; what all siblings share does not."""
    growth = start(DraftPlan(branching=(2, 1), max_nodes=3))
    growth.extend([Children([5, 6], [3.0, 2.9])])
    growth.extend([Children([7], [-50.0]), Children([8], [40.0])])

    assert growth.tree() == TokenTree((5, 6, 7), (-1, -1, 0))


def test_unknown_method_names_the_known_ones():
    """A miss is helpful."""
    with pytest.raises(ConfigError, match="no drafting method 'medusa'; known: chain, contrary, tree"):
        start(DraftPlan(method="medusa"))


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.integers(1, 24),
    st.lists(st.floats(-9, 0), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.7]),
)
def test_trees_keep_within_their_plan(branching: list[int], max_nodes: int, scores: list[float], temperature: float):
    """Any plan: a valid tree within its nodes and depth, and as deep as the plan when the nodes allow."""
    plan = DraftPlan(branching=tuple(branching), max_nodes=max_nodes, temperature=temperature)
    tree = grow(start(plan), sorted(scores, reverse=True))

    tree.check(vocab_size=4, max_nodes=max_nodes, max_depth=plan.max_depth)
    assert tree.depth == min(len(branching), max_nodes)
