"""Tree shapes against golden values, brute force and each other."""

import json
from functools import cache, lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgrove.core.tree import TokenTree
from specgrove.errors import ConfigError
from specgrove.planning.tree_shape import Shape, ShapeTable, best_tree, grown

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sequoia.json").read_text())
VECTOR = GOLDEN["sequoia_dp_vector"]["acceptance_vector"]


def expected_tokens(acceptance, parents):
    """F by its definition, from the parents alone."""
    by_level = not isinstance(acceptance[0], float)
    values, ranks, depths = [], {}, []
    for parent in parents:
        rank = ranks[parent] = ranks.get(parent, -1) + 1
        depth = 0 if parent < 0 else depths[parent] + 1
        row = (acceptance[depth] if depth < len(acceptance) else []) if by_level else acceptance
        above = 1.0 if parent < 0 else values[parent]
        values.append(above * (row[rank] if rank < len(row) else 0.0))
        depths.append(depth)
    return 1.0 + sum(values)


@lru_cache(maxsize=1 << 16)
def brute_force(acceptance, nodes, levels, depth=0):
    """Most expected tokens of a sub-tree with exactly `nodes` nodes, by trying every split into children."""
    if nodes == 1:
        return 1.0
    if levels <= 1:
        return float("-inf")
    row = acceptance[min(depth, len(acceptance) - 1)]

    @cache
    def children(left, rank):
        if left == 0:
            return 0.0
        if rank == len(row):
            return float("-inf")
        return max(
            row[rank] * brute_force(acceptance, below, levels - 1, depth + 1) + children(left - below, rank + 1)
            for below in range(1, left + 1)
        )

    return 1.0 + children(nodes - 1, 0)


def at_most(acceptance, nodes, levels):
    """The best of all sizes up to `nodes`."""
    return max(brute_force(acceptance, size, levels) for size in range(1, nodes + 1))


@pytest.mark.parametrize("row", GOLDEN["sequoia_dp_vector"]["rows"], ids=lambda row: str(row["n"]))
def test_golden_vector(row):
    """The paper's program on (0.6, 0.2, 0.1, 0.05), without a depth limit."""
    for shape in (ShapeTable(VECTOR, row["n"]).shape(), grown(VECTOR, row["n"]), best_tree(VECTOR, row["n"])):
        assert shape.expected_tokens == pytest.approx(row["F"], abs=1e-9)
        assert shape.nodes == row["n"]
        assert expected_tokens(VECTOR, shape.parents) == pytest.approx(row["F"], abs=1e-9)


@pytest.mark.parametrize("row", GOLDEN["sequoia_dp_depth_limited"]["rows"], ids=lambda row: f"{row['D']},{row['n']}")
def test_golden_depth_limit(row):
    """With D levels; where so many nodes do not fit, the largest tree that does."""
    for shape in (ShapeTable(VECTOR, row["n"], row["D"]).shape(), grown(VECTOR, row["n"], row["D"])):
        assert shape.levels <= row["D"]
        if row["F"] is None:
            assert shape.nodes < row["n"]
        else:
            assert shape.expected_tokens == pytest.approx(row["F"], abs=1e-9)


@pytest.mark.parametrize("row", GOLDEN["sequoia_dp_nonmonotone"]["rows"], ids=lambda row: str(row["n"]))
def test_golden_vector_that_is_not_monotone(row):
    """Best-first growth is not optimal there, and `best_tree` does not use it."""
    vector = GOLDEN["sequoia_dp_nonmonotone"]["acceptance_vector"]

    assert best_tree(vector, row["n"]).expected_tokens == pytest.approx(row["F_dp"], abs=1e-9)
    assert grown(vector, row["n"]).expected_tokens <= row["F_greedy_best_first"] + 1e-9


@pytest.mark.parametrize("row", GOLDEN["sequoia_dp_depth_dependent"]["rows"], ids=lambda row: f"{row['D']},{row['n']}")
def test_golden_matrix(row):
    """Acceptance by level and rank."""
    matrix = GOLDEN["sequoia_dp_depth_dependent"]["matrix"]
    for shape in (ShapeTable(matrix, row["n"], row["D"]).shape(), grown(matrix, row["n"], row["D"])):
        assert shape.expected_tokens == pytest.approx(row["F"], abs=1e-9)
        assert expected_tokens(matrix, shape.parents) == pytest.approx(row["F"], abs=1e-9)


@pytest.mark.parametrize(
    "row", [row for row in GOLDEN["sequoia_dp_llama3_vector"]["rows"] if row["n"] <= 32], ids=lambda row: str(row["n"])
)
def test_golden_published_vector(row):
    """The first ranks of the paper's Llama 3 vector, which is all that trees of up to 32 nodes use."""
    vector = (0.7732, 0.1039, 0.0402)

    assert ShapeTable(vector, row["n"], 20).shape().expected_tokens == pytest.approx(row["F"], abs=2e-5)
    assert grown(vector, row["n"], 20).expected_tokens == pytest.approx(row["F"], abs=2e-5)


def probabilities(ranks):
    """Rows that add up to at most 1."""
    return st.lists(st.integers(0, 20), min_size=ranks, max_size=ranks).map(
        lambda parts: tuple(part / max(20, sum(parts)) for part in parts)
    )


@settings(deadline=None, max_examples=150)
@given(st.data(), st.integers(1, 8), st.integers(1, 8), st.integers(1, 4))
def test_program_equals_brute_force(data, nodes, levels, ranks):
    """On random vectors, monotone or not, with a depth limit or without."""
    vector = data.draw(probabilities(ranks))
    shape = ShapeTable(vector, nodes, levels).shape()

    assert shape.expected_tokens == pytest.approx(at_most((vector,), nodes, levels), abs=1e-12)
    assert expected_tokens(list(map(float, vector)), shape.parents) == pytest.approx(shape.expected_tokens, abs=1e-12)
    assert shape.nodes <= nodes
    assert shape.levels <= levels


@settings(deadline=None, max_examples=150)
@given(st.data(), st.integers(1, 8), st.integers(1, 4), st.integers(1, 5))
def test_program_on_matrices_equals_brute_force(data, nodes, ranks, rows):
    """One row per level; below the last row nothing is accepted."""
    matrix = tuple(data.draw(probabilities(ranks)) for _ in range(rows))
    shape = ShapeTable(matrix, nodes).shape()

    assert shape.expected_tokens == pytest.approx(at_most(matrix, nodes, rows + 1), abs=1e-12)


@settings(deadline=None, max_examples=150)
@given(st.data(), st.integers(1, 24), st.integers(1, 24), st.integers(1, 4))
def test_best_first_equals_the_program_when_no_rank_is_better_than_the_one_before(data, nodes, levels, ranks):
    """With and without a depth limit."""
    vector = tuple(sorted(data.draw(probabilities(ranks)), reverse=True))

    assert grown(vector, nodes, levels).expected_tokens == pytest.approx(
        ShapeTable(vector, nodes, levels).shape().expected_tokens, abs=1e-12
    )


def test_one_table_holds_for_every_smaller_size_and_depth():
    """Of a vector; a matrix's rows are counted from the root, so its table holds for one number of levels."""
    table = ShapeTable(VECTOR, 20, 6)

    for nodes in range(1, 21):
        for levels in range(1, 7):
            alone = ShapeTable(VECTOR, nodes, levels).shape()
            assert table.shape(nodes, levels).expected_tokens == pytest.approx(alone.expected_tokens, abs=1e-12)
    with pytest.raises(ConfigError, match="own number of levels"):
        ShapeTable(GOLDEN["sequoia_dp_depth_dependent"]["matrix"], 8).shape(8, 3)


def test_shapes_are_token_trees():
    """Parents first, elder siblings first, breadth first."""
    for shape in (grown(VECTOR, 40), ShapeTable(VECTOR, 40).shape()):
        tree = TokenTree(tuple(range(39)), shape.parents)
        assert list(tree.depths) == sorted(tree.depths)
        assert tree.depth + 1 == shape.levels
    assert Shape(1.0).levels == Shape(1.0).nodes == 1


@pytest.mark.parametrize(
    "acceptance", [[], [[]], [0.5, -0.1], [0.9, 0.2], [float("nan")], [[0.5, 0.1], [0.5]], [[[0.5]]], {"a": 1}, "half"]
)
def test_what_is_no_acceptance_is_refused(acceptance):
    """With a sentence."""
    with pytest.raises(ConfigError, match="acceptance"):
        best_tree(acceptance, 4)


def test_sizes_under_one_are_refused():
    """There is always a root."""
    for make in (best_tree, grown, ShapeTable):
        with pytest.raises(ConfigError, match="at least one node"):
            make(VECTOR, 0)
        with pytest.raises(ConfigError, match="at least one node"):
            make(VECTOR, 4, 0)
