"""Field types: strict, finite, each with its range in the message.

JSON has no integers of its own, but Python has: `1` is a number and a count, `1.0` is not a count, `true` is neither.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

from pydantic import PlainValidator

from specgrove.core.limits import MAX_KEY_CHARS, MAX_METADATA, MAX_STOP_CHARS, MAX_STOPS, MAX_VALUE_CHARS

MAX_TOKEN_ID = 2**31 - 1
MAX_BIASES = 1024


def shown(value: object) -> str:
    """A short form of a value for an error message."""
    return reprlib.repr(value)[:80]


def real(low: float, high: float, *, open_low: bool = False) -> PlainValidator:
    """A finite number from `low` (left out with open_low) to `high`, as float."""
    span = f"over {low:g} and at most {high:g}" if open_low else f"from {low:g} to {high:g}"

    def check(value: Any) -> float:
        # NaN fails both comparisons. An int too large for a float is still comparable.
        if type(value) not in (int, float) or not low <= value <= high or (open_low and value == low):
            raise ValueError(f"must be a number {span}, got {shown(value)}")
        return float(value)

    return PlainValidator(check)


def whole(low: int, high: int) -> PlainValidator:
    """An integer from `low` to `high`."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"must be an integer from {low} to {high}, got {shown(value)}")
        return value

    return PlainValidator(check)


def text(max_chars: int, *, empty: bool = False) -> PlainValidator:
    """A string of at most `max_chars` characters."""

    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be a string, got {shown(value)}")
        if len(value) > max_chars or not (value or empty):
            raise ValueError(f"must have {0 if empty else 1} to {max_chars} characters, got {len(value)}")
        return value

    return PlainValidator(check)


def token_ids(max_count: int, *, empty: bool) -> PlainValidator:
    """A list of token ids, as a tuple."""

    def check(value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not are_token_ids(value):
            raise ValueError(f"must be a list of token ids from 0 to {MAX_TOKEN_ID}, got {shown(value)}")
        if len(value) > max_count or not (value or empty):
            raise ValueError(f"must hold {0 if empty else 1} to {max_count} token ids, got {len(value)}")
        return tuple(value)

    return PlainValidator(check)


def are_token_ids(values: list[Any]) -> bool:
    """Whether all values can be token ids; a bool cannot."""
    return all(type(v) is int for v in values) and (not values or (min(values) >= 0 and max(values) <= MAX_TOKEN_ID))


def _stops(value: Any) -> tuple[str, ...]:
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
        raise ValueError(f"must be a string or a list of strings, got {shown(value)}")
    if len(strings) > MAX_STOPS:
        raise ValueError(f"must hold at most {MAX_STOPS} strings, got {len(strings)}")
    if any(not 1 <= len(s) <= MAX_STOP_CHARS for s in strings):
        raise ValueError(f"each stop string must have 1 to {MAX_STOP_CHARS} characters")
    return tuple(strings)


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object from token ids to numbers, got {shown(value)}")
    if len(value) > MAX_BIASES:
        raise ValueError(f"must hold at most {MAX_BIASES} token ids, got {len(value)}")
    out: dict[int, float] = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key):
            raise ValueError(f"keys must be token ids in decimal digits, got {shown(key)}")
        if int(key) > MAX_TOKEN_ID:
            raise ValueError(f"token ids go up to {MAX_TOKEN_ID}, got {key}")
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise ValueError(f"the bias of token {key} must be a number from -100 to 100, got {shown(bias)}")
        out[int(key)] = float(bias)
    return out


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ValueError(f"must be an object from strings to strings, got {shown(value)}")
    if len(value) > MAX_METADATA or any(len(k) > MAX_KEY_CHARS or len(v) > MAX_VALUE_CHARS for k, v in value.items()):
        raise ValueError(
            f"must hold at most {MAX_METADATA} pairs, keys up to {MAX_KEY_CHARS} and values up to {MAX_VALUE_CHARS} "
            "characters"
        )
    return value


def one_of(*choices: str) -> PlainValidator:
    """One of a few words."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}; got {shown(value)}")
        return value

    return PlainValidator(check)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


def checked(check: Callable[[Any], Any]) -> PlainValidator:
    """A field whose whole check is one function; it raises ValueError with a sentence that starts with `must`."""
    return PlainValidator(check)


FLAG = checked(_flag)
STOPS = checked(_stops)
BIASES = checked(_biases)
LABELS = checked(_labels)
