"""Guesses from the text itself and from the client's prediction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgrove.core.tree import TokenTree
from specgrove.drafters.lookup import NO_GUESS, SHORTEST, Guess, Lookup, Prediction


def scan(tokens, count, lengths):
    """The same guess by looking through the whole text."""
    for length in lengths:
        for place in range(len(tokens) - 1, length - 1, -1):
            if tokens[place - length : place] == tokens[-length:]:
                text = list(tokens)
                for step in range(count):
                    text.append(text[place + step])
                return Guess(tuple(text[len(tokens) :]), length)
    return NO_GUESS


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 40), st.integers(0, 6))
def test_guesses_are_those_of_a_scan(tokens, cut, count):
    """However the text came in pieces; near the end it goes round."""
    lookup = Lookup(tokens[:cut])
    lookup.extend(tokens[cut:])

    assert lookup.guess(count) == scan(tokens, count, (4, 3, 2))


def test_the_longest_and_latest_match_wins():
    """`1 2` was followed by 3, then by 7; `9 1 2` by 3."""
    assert Lookup([9, 1, 2, 3, 1, 2, 7, 1, 2]).guess(2) == Guess((7, 1), 2)
    assert Lookup([9, 1, 2, 3, 1, 2, 7, 9, 1, 2]).guess(1) == Guess((3,), 3)
    assert Lookup([1, 2, 3]).guess(4) == NO_GUESS
    assert Lookup().guess(4) == NO_GUESS


def test_a_prediction_is_followed():
    """From its start, and as long as the output agrees."""
    prediction = Prediction([1, 2, 3, 4, 5, 6])
    assert prediction.guess(2).tokens == (1, 2)

    prediction.extend([1, 2, 3])
    assert prediction.guess(9).tokens == (4, 5, 6)
    prediction.extend([4, 5, 6])
    assert prediction.guess(2).tokens == ()


def test_a_prediction_is_found_again_after_a_change():
    """One word replaced in the middle: two tokens later the rest is guessed again."""
    prediction = Prediction([1, 2, 3, 4, 5, 6, 7, 8])
    prediction.extend([1, 2, 99])
    assert prediction.guess(3) == NO_GUESS

    prediction.extend([4])
    assert prediction.guess(3) == NO_GUESS
    prediction.extend([5])
    assert prediction.guess(3).tokens == (6, 7, 8)


def test_of_several_places_the_next_one_is_taken():
    """A prediction that repeats itself is not read from its start again."""
    prediction = Prediction([1, 2, 3, 1, 2, 4, 1, 2, 5])
    prediction.extend([1, 2, 3, 99, 1, 2])

    assert prediction.guess(1).tokens == (4,)


@pytest.mark.parametrize("tokens", [[], [1], [1] * SHORTEST])
def test_short_predictions(tokens):
    """Nothing to find again in them."""
    prediction = Prediction(tokens)
    assert prediction.guess(5).tokens == tuple(tokens)
    prediction.extend([7, 7, 7])
    assert prediction.guess(5) == NO_GUESS


def test_a_guess_joins_a_drafted_tree():
    """Nodes that both have are there once; the drafted ones come first."""
    drafted = TokenTree((5, 6, 7), (-1, -1, 0))
    both = drafted.union(TokenTree.chain([5, 7, 8]))

    assert both == TokenTree((5, 6, 7, 8), (-1, -1, 0, 2))
    assert drafted.union(TokenTree()) == drafted
    assert TokenTree().union(drafted) == drafted
    both.check(vocab_size=9, max_nodes=4, max_depth=3)
