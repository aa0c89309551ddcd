"""Countdown and Blocksworld: exact search, exact checkers, and judgments that agree with them."""

import random
from itertools import permutations

import pytest

from specgrove.errors import ConfigError
from specgrove.training import blocks, countdown
from specgrove.training.problem import Forms


def brute_force(numbers: tuple[int, ...], target: int) -> bool:
    """Another search: every order of the numbers, every operation, every way to put brackets, in fractions of none."""
    if len(numbers) == 1:
        return numbers[0] == target
    for a, b, *rest in permutations(numbers):
        values = [a + b, a - b, a * b] + ([a // b] if a % b == 0 else [])
        if any(1 <= value <= countdown.MOST and brute_force((value, *rest), target) for value in values):
            return True
    return False


def test_exact_search_agrees_with_another_one():
    """On drawn problems, which can be solved, and on targets at random, which mostly cannot."""
    rng = random.Random(1)
    seen = set()
    for _ in range(150):
        numbers = tuple(sorted(rng.randint(1, 10) for _ in range(3)))
        target = rng.randint(1, 60)
        seen.add(countdown.reachable(numbers, target))
        assert countdown.reachable(numbers, target) == brute_force(numbers, target)
    assert seen == {True, False}


@pytest.mark.parametrize(
    "text",
    [
        "8 - 2 = 6 (left: 3 6)\n6 * 3 = 18 (left: 18)",  # one given number is dropped
        "8 - 2 = 7 (left: 3 4 7)\n7 - 3 = 4 (left: 4 4)\n4 + 4 = 8 (left: 8)",  # wrong arithmetic
        "8 - 2 = 6 (left: 6 3 4)\n6 * 4 = 24 (left: 3 24)\n24 / 3 = 8 (left: 8)",  # not in order
        "8 + 2 = 10 (left: 3 4 10)\n10 + 4 = 14 (left: 3 14)\n14 + 3 = 17 (left: 17)",  # another target
        "8 - 2 = 6 (left: 3 4 6)\n6 * 4 = 24 (left: 3 24)",  # unfinished
        "8 - 2 = 6 (left: 3 4 6)\n6 * 4 = 24 (left: 3 24)\n24 / 3 = 8 (left: 8)\nand more",
        "9 - 1 = 8 (left: 3 4 8)\n8 - 3 = 5 (left: 4 5)\n5 + 4 = 9 (left: 9)",  # numbers that were not given
        "",
    ],
)
def test_wrong_countdown_answers_are_refused(text):
    """Negative controls; the right one passes."""
    check = countdown.solves((2, 3, 4, 8), 8)

    assert not check(text)
    assert check("8 - 2 = 6 (left: 3 4 6)\n6 * 4 = 24 (left: 3 24)\n24 / 3 = 8 (left: 8)")


def test_judgments_follow_the_search():
    """All three words occur, and the written trials of two numbers contain the target exactly when it is sure."""
    rng, words = random.Random(2), set()
    for _ in range(400):
        problem = countdown.judge(rng, False)
        _, *left, target = problem.canonical.split()
        state, goal = tuple(map(int, left)), int(target)
        word = problem.answer.split("\n")[-1]
        words.add(word)
        assert (word != countdown.IMPOSSIBLE) == countdown.reachable(state, goal)
        if len(state) == 2:
            assert (f"= {goal}\n" in problem.answer) == (word == countdown.SURE)
        assert not problem.check("maybe")
    assert words == {countdown.SURE, countdown.LIKELY, countdown.IMPOSSIBLE}


def test_plans_reach_their_goal_in_few_moves():
    """Never shorter than the exact shortest plan, never more than twice as long, and mostly as short."""
    rng, longer = random.Random(3), 0
    for _ in range(200):
        state, goal = blocks._draw(rng, rng.choice((3, 4)))
        steps, least = len(blocks.plan(state, goal)), len(blocks.shortest(state, goal))
        assert least <= steps <= 2 * least
        longer += steps > least
    assert longer < 20


def test_blocks_are_judged_by_a_shortest_plan():
    """It reaches the goal; the blocks that are named and the number at the end agree with it."""
    rng, words = random.Random(4), set()
    for _ in range(200):
        state, goal = blocks._draw(rng, rng.choice((3, 4)))
        here = state
        for move in blocks.shortest(state, goal):
            here = blocks.moves(here)[move]
        assert here == goal
        named, number = blocks.judge_answer(state, goal).split("\n")
        names = named.removeprefix("to move: ").split(", ")
        assert int(number.split()[0]) == len(names) + named.count("twice") == len(blocks.shortest(state, goal))
        words.update(names)
    assert {"red", "red twice"} <= words
    assert blocks.judge_answer(goal, goal) == "0 moves"
    for problem in (blocks.judge(rng, False) for _ in range(50)):
        assert problem.check(problem.answer)
        assert problem.check(problem.answer.split("\n")[-1])
        assert not problem.check(problem.answer + "s")
        assert not problem.check("7 moves")


@pytest.mark.parametrize(
    "text",
    [
        "move red to table: [ blue ] [ green ] [ red ]",  # legal, but not the goal
        "move blue onto green: [ green blue ] [ red ]",  # it is under another block
        "move red onto green: [ blue ] [ green red ]\nmove blue onto red: [ green blue red ]",  # says another state
        "move red onto green: [ green red ] [ blue ]\nmove blue onto red: [ green red blue ]",  # stacks out of order
        "move red onto green: [ blue ] [ green red ]",  # unfinished
        "",
    ],
)
def test_wrong_plans_are_refused(text):
    """Negative controls; the right one passes."""
    check = blocks.reaches((("blue", "red"), ("green",)), (("green", "red", "blue"),))

    assert not check(text)
    assert check("move red onto green: [ blue ] [ green red ]\nmove blue onto red: [ green red blue ]")


def test_the_same_shape_in_other_colors_is_the_same_problem():
    """Or the held-out side would be known from training, in other colors."""
    one = blocks._canonical((("red", "blue"), ("green",)), (("green", "blue", "red"),))
    other = blocks._canonical((("black",), ("white", "red")), (("black", "red", "white"),))
    third = blocks._canonical((("red", "blue"), ("green",)), (("green", "red", "blue"),))

    assert one == other != third


def test_too_few_wordings_are_refused():
    """At least six of every kind stay out of training."""
    with pytest.raises(ConfigError, match="needs 6 other wordings"):
        Forms(("a",), ("b", "c"))
    with pytest.raises(ConfigError, match="needs 6 other wordings"):
        Forms(("a",), tuple("abcdef"))


def test_crossed_wordings_keep_some_combinations_out():
    """All combinations are on one side or the other, none on both, and what was there stays."""
    plain = Forms(("x",), tuple("abcdef"))
    crossed = plain.crossed(("1", "2", "3"), ("p", "q", "r", "s"), ("!", "?"))

    assert {"x"} < set(crossed.trained)
    assert set("abcdef") < set(crossed.unseen)
    assert not set(crossed.trained) & set(crossed.unseen)
    assert len(crossed.trained) + len(crossed.unseen) == 7 + 24
