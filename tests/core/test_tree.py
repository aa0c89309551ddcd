"""TokenTree: the golden layout, what is refused, and what holds for every tree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgrove.core.tree import EMPTY, ROOT, TokenTree
from specgrove.errors import TreeError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tree_layout.json").read_text())["tree_layout"]


@st.composite
def trees(draw: st.DrawFn, most: int = 12) -> TokenTree:
    """Trees without duplicate siblings, over a small vocabulary so that paths repeat."""
    size = draw(st.integers(0, most))
    seen: dict[tuple[int, int], None] = {}
    for _ in range(size):
        seen.setdefault((draw(st.integers(-1, len(seen) - 1)), draw(st.integers(0, 3))))
    return TokenTree(tuple(token for _, token in seen), tuple(parent for parent, _ in seen))


def texts(tree: TokenTree) -> set[tuple[int, ...]]:
    """The token path of every node."""
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


def test_layout_golden():
    """Positions, mask and KV moves of the golden tree, whose node 0 is the last committed token."""
    parents = [parent - 1 for parent in GOLDEN["parents"][1:]]
    tree = TokenTree(tuple(range(len(parents))), tuple(parents))
    prefix = GOLDEN["slot_index"][0] + 1
    assert [prefix - 1, *tree.positions(prefix)] == GOLDEN["position_ids"]
    assert tree.positions(prefix) != GOLDEN["slot_index"][1:]  # a position is not a slot
    assert tree.mask().astype(int).tolist() == [row[1:] for row in GOLDEN["ancestor_mask"][1:]]
    accepted = [node - 1 for node in GOLDEN["accepted_nodes"][1:]]
    assert tree.path(accepted[-1]) == accepted
    assert [prefix + node for node in accepted] == GOLDEN["kv_source_slots"]
    assert [prefix + i for i in range(len(accepted))] == GOLDEN["kv_dest_slots"]
    assert all(source >= dest for source, dest in zip(GOLDEN["kv_source_slots"], GOLDEN["kv_dest_slots"], strict=True))


@given(trees())
def test_mask_is_the_paths(tree: TokenTree):
    """Each node sees its path and nothing else; depth is the length of the path."""
    mask = tree.mask()
    for node in range(len(tree)):
        assert np.flatnonzero(mask[node]).tolist() == tree.path(node)
        assert tree.depths[node] == len(tree.path(node))
    assert tree.depth == max(tree.depths, default=0)
    assert tree.path(ROOT) == []


@given(trees())
def test_children_keep_draft_order(tree: TokenTree):
    """Children lists partition the nodes, name their parent, and are ordered elder first."""
    children = tree.children()
    assert len(children) == len(tree) + 1
    assert sorted(sum(children, [])) == list(range(len(tree)))  # noqa: RUF017 - a dozen short lists
    for parent, below in enumerate(children, start=ROOT):
        assert below == sorted(below)
        assert all(tree.parents[node] == parent for node in below)


@given(trees(), st.integers(0, 12), st.integers(0, 5))
def test_trim_is_a_rooted_part(tree: TokenTree, max_nodes: int, max_depth: int):
    """A trimmed tree fits the smaller plan, holds only paths of the whole, and is the whole when that fits."""
    trimmed = tree.trim(max_nodes=max_nodes, max_depth=max_depth)
    trimmed.check(vocab_size=4, max_nodes=max_nodes, max_depth=max_depth)
    assert texts(trimmed) <= texts(tree)
    assert len(trimmed) == min(max_nodes, sum(depth <= max_depth for depth in tree.depths))
    if len(tree) <= max_nodes and tree.depth <= max_depth:
        assert trimmed == tree


@given(trees(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_select_drops_whole_branches(tree: TokenTree, keep: list[bool]):
    """Exactly the nodes stay whose whole path is kept."""
    wanted = [node for node in range(len(tree)) if all(keep[i] for i in tree.path(node))]
    assert tree.select(keep).tokens == tuple(tree.tokens[node] for node in wanted)


@given(trees(), st.lists(st.integers(0, 3), max_size=5))
@settings(max_examples=200)
def test_reroot_keeps_what_survives(tree: TokenTree, committed: list[int]):
    """After a commit along the tree the paths below it are left; after any other commit nothing is."""
    left = tree.reroot(committed)
    start = tuple(committed)
    if committed and start not in texts(tree):
        assert left is None
    else:
        assert left is not None
        wanted = {path[len(start) :] for path in texts(tree) if path[: len(start)] == start and len(path) > len(start)}
        assert texts(left) == wanted
        assert len(left) == len(wanted)


@given(trees(), st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_reroot_does_not_see_the_cut(tree: TokenTree, first: list[int], second: list[int]):
    """One commit or two: the same tree is left."""
    halfway = tree.reroot(first)
    assert tree.reroot(first + second) == (halfway.reroot(second) if halfway is not None else None)


def test_empty_and_chain():
    """The neutral tree and one path."""
    assert len(EMPTY) == EMPTY.depth == 0
    assert EMPTY.children() == [[]]
    assert EMPTY.mask().shape == (0, 0)
    assert EMPTY.reroot([]) == EMPTY
    assert EMPTY.reroot([1]) is None
    chain = TokenTree.chain([4, 5, 6])
    assert chain.parents == (-1, 0, 1)
    assert chain.positions(10) == [10, 11, 12]
    assert TokenTree.chain(iter([4])) == TokenTree((4,), (-1,))
    EMPTY.check(vocab_size=1, max_nodes=0, max_depth=0)


@pytest.mark.parametrize(
    ("tokens", "parents", "why"),
    [
        ((1, 2), (-1,), "one parent per token"),
        ((1,), (0,), "node 0 has parent 0"),
        ((1, 2), (1, -1), "node 0 has parent 1"),
        ((1, 2, 3), (-1, 2, 1), "node 1 has parent 2"),
        ((1,), (-2,), "node 0 has parent -2"),
    ],
)
def test_what_is_no_tree_cannot_be_built(tokens, parents, why: str):
    """Cycles, forward and unknown parents, unequal lengths: a TreeError that names the node."""
    with pytest.raises(TreeError, match=why):
        TokenTree(tokens, parents)


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (TokenTree((1, 2, 3, 4), (-1,) * 4), "4 nodes is over the plan's 3"),
        (TokenTree.chain([1, 2, 3]), "depth 3 is over the plan's 2"),
        (TokenTree((1, 9), (-1, 0)), "node 1 carries token 9"),
        (TokenTree((-1,), (-1,)), "node 0 carries token -1"),
        (TokenTree((5, 5), (-1, -1)), "node 1 repeats token 5 under parent -1"),
        (TokenTree((5, 5, 5), (-1, 0, 0)), "node 2 repeats token 5 under parent 0"),
    ],
)
def test_hostile_trees_are_refused(tree: TokenTree, why: str):
    """Too large, too deep, out of the vocabulary, duplicate siblings: refused before it touches a model."""
    with pytest.raises(TreeError, match=why):
        tree.check(vocab_size=9, max_nodes=3, max_depth=2)


def test_equal_tokens_on_different_paths_are_fine():
    """Only siblings may not repeat a token."""
    TokenTree((5, 6, 5, 5), (-1, -1, 0, 1)).check(vocab_size=9, max_nodes=4, max_depth=2)


def test_equality_ignores_derived_depths():
    """Trees are values: equal tokens and parents are equal trees with equal hashes."""
    assert TokenTree((1, 2), (-1, 0)) == TokenTree.chain([1, 2])
    assert hash(TokenTree((1, 2), (-1, 0))) == hash(TokenTree.chain([1, 2]))
    assert TokenTree((1, 2), (-1, -1)) != TokenTree.chain([1, 2])
