"""Rows of a draft's cache that survive a commit."""

from __future__ import annotations

from specgrove.core.tree import TokenTree
from specgrove.draft.reroot import surviving_rows

TREE = TokenTree((1, 2, 3, 4, 5), (-1, -1, 0, 1, 2))


def test_path_of_expanded_nodes_survives():
    """Rows along the committed path stay, in order of depth."""
    assert surviving_rows(TREE, [0, 1, 2, 3], [1, 3, 9]) == ([0, 2], [1, 3])


def test_a_leaf_has_no_row():
    """A drafted node that was never run has no cache row to keep."""
    assert surviving_rows(TREE, [0, 1], [2, 4]) == ([1], [2])


def test_nothing_survives_another_text():
    """A commit that leaves the tree at once keeps nothing."""
    assert surviving_rows(TREE, [0, 1], [7]) == ([], [])
