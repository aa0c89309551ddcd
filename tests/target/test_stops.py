"""Stops: what ends a choice, and what text is shown before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgrove.target.stops import Stop, StopRules, TextTail

EOS = 9


class Letters:
    """A detokenizer whose token i is the i-th letter; token 8 is half a character that 7 completes."""

    def __init__(self) -> None:
        self._half = False

    def push(self, token: int) -> str:
        """Text of one token."""
        if token == 8:
            self._half = True
            return ""
        half, self._half = self._half, False
        return "é" if half and token == 7 else chr(97 + token)

    def flush(self) -> str:
        """The replacement character for a broken tail."""
        half, self._half = self._half, False
        return "\ufffd" if half else ""


def tail(
    *, strings: tuple[str, ...] = (), stop_ids: tuple[int, ...] = (), min_tokens: int = 0, max_tokens: int = 99
) -> TextTail:
    """A tail under the given rules."""
    rules = StopRules(
        eos_ids=frozenset({EOS}),
        stop_ids=frozenset(stop_ids),
        strings=strings,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
    )
    return TextTail(Letters(), rules)


def run(text: TextTail, tokens: list[int]) -> tuple[str, Stop | None, int]:
    """Push tokens until a stop; returns the text shown, the stop, and how many tokens were taken."""
    shown, stop = "", None
    for count, token in enumerate(tokens, 1):
        new, stop = text.push(token)
        shown += new
        if stop is not None:
            return shown, stop, count
    return shown, stop, len(tokens)


def test_eos_ends_without_text():
    """End-of-sequence ends the choice; tokens after it are not looked at (golden eos_inside_run)."""
    assert run(tail(), [4, EOS, 5, 7]) == ("e", Stop("stop"), 2)


@pytest.mark.parametrize(
    ("accepted", "bonus", "remaining", "emit"),
    [
        ([4, 9, 5], 7, 99, [4, 9]),
        ([4, 5], 9, 99, [4, 5, 9]),
        ([], 3, 99, [3]),
        ([4, 5, 6], 2, 2, [4, 5]),
    ],
)
def test_golden_eos_inside_run(accepted: list[int], bonus: int, remaining: int, emit: list[int]):
    """A round is cut right after the first end-of-sequence, and then by the number of tokens left."""
    _, _, taken = run(tail(max_tokens=remaining), [*accepted, bonus])

    assert emit == [*accepted, bonus][:taken]


def test_stop_id_is_not_shown_and_named():
    """A stop id ends the choice and is reported; its text is not shown."""
    assert run(tail(stop_ids=(2,)), [0, 2, 3]) == ("a", Stop("stop", 2), 2)


def test_stop_string_across_tokens():
    """A stop string is found across token borders and is never shown, not even half."""
    text = tail(strings=("cde",))

    assert [text.push(t)[0] for t in (1, 2, 3)] == ["b", "", ""]
    assert text.push(4) == ("", Stop("stop", "cde"))


def test_held_text_is_shown_when_it_was_no_stop():
    """Text held back as a possible stop appears as soon as it cannot be one."""
    text = tail(strings=("cde",))
    text.push(2)
    text.push(3)

    assert text.push(0) == ("cda", None)


def test_held_text_is_shown_at_the_length_limit():
    """The length limit releases what was held."""
    assert run(tail(strings=("abz",), max_tokens=2), [0, 1]) == ("ab", Stop("length"), 2)


def test_earliest_and_longest_stop_string_wins():
    """Of two stop strings the earlier one counts, of two that start together the longer one."""
    assert run(tail(strings=("bc", "abc")), [0, 1, 2])[:2] == ("", Stop("stop", "abc"))


def test_min_tokens_delays_stop_strings():
    """Before min_tokens a stop string is plain text."""
    assert run(tail(strings=("a",), min_tokens=3), [0, 1, 0, 3]) == ("ab", Stop("stop", "a"), 3)


def test_no_half_characters():
    """Half a character is held, and completed across pushes; a broken tail becomes a replacement character."""
    text = tail()
    assert text.push(8) == ("", None)
    assert text.push(7) == ("é", None)
    assert text.push(8) == ("", None)
    assert text.push(EOS) == ("\ufffd", Stop("stop"))


@given(st.lists(st.integers(0, 6), max_size=40), st.lists(st.text("abcdefg", min_size=1, max_size=4), max_size=3))
def test_shown_text_is_the_whole_text_up_to_the_first_stop(tokens: list[int], strings: list[str]):
    """Whatever the cuts: shown text equals the plain text cut at the earliest completed stop string."""
    shown, stop, taken = run(tail(strings=tuple(strings), max_tokens=len(tokens) or 1), tokens)
    whole = "".join(chr(97 + t) for t in tokens[:taken])

    if stop is not None and stop.reason == "stop":
        assert whole.startswith(shown + str(stop.stop_reason))
        assert not any(s in whole[:-1] for s in strings)
    elif tokens:
        assert shown == whole
        assert not any(s in whole for s in strings)
