"""Composition of a step: budgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specgrove.target.compose import compose

counts = st.lists(st.integers(0, 70), max_size=12)


def test_everything_fits():
    """Without pressure every wish is granted."""
    shares = compose([4, 0, 7], [10, 20], budget=100)

    assert shares.decodes == [5, 1, 8]
    assert shares.prompts == [10, 20]


def test_trees_leave_room_for_prompts():
    """Trees that would fill the budget leave a quarter of it to prompts."""
    shares = compose([64, 64], [500], budget=100)

    assert sum(shares.prompts) == 25
    assert shares.decodes == [37, 38]


def test_prompts_can_be_held_back():
    """By a limit for all of them together, in order; trees then get what they leave."""
    assert compose([4], [30, 30], budget=100, most_prompt=40).prompts == [30, 10]
    assert compose([99], [500], budget=100, most_prompt=10) == compose([99], [10], budget=100)


def test_small_trees_are_served_first():
    """What a small tree does not need goes to the larger ones."""
    assert compose([2, 64], [], budget=20).decodes == [3, 17]


@given(counts, st.lists(st.integers(1, 900), max_size=5), st.integers(1, 256))
def test_budget_and_progress(trees: list[int], prompts: list[int], budget: int):
    """Every session gets its row, nobody gets more than asked, and the budget holds beyond the single rows."""
    shares = compose(trees, prompts, budget)

    assert all(1 <= rows <= 1 + tree for rows, tree in zip(shares.decodes, trees, strict=True))
    assert all(0 <= rows <= need for rows, need in zip(shares.prompts, prompts, strict=True))
    assert sum(shares.decodes) + sum(shares.prompts) <= max(budget, len(trees) + budget // 4)
    if prompts and budget >= 4:
        assert sum(shares.prompts) > 0
