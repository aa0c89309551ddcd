"""Exact checkers: each makes a function from the model's text to whether the answer is right.

They look at the answer alone, not at the wording around it where a kind allows several wordings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

Check = Callable[[str], bool]

_ANSWER = re.compile(r"^Answer: (-?\d+)$", re.MULTILINE)


def final_number(expected: int) -> Check:
    """The last `Answer: N` line carries `expected`, and nothing follows it."""

    def check(text: str) -> bool:
        found = _ANSWER.findall(text)
        return bool(found) and int(found[-1]) == expected and text.rstrip().endswith(f"Answer: {expected}")

    return check


def same_text(expected: str) -> Check:
    """The text is `expected`, apart from white space at both ends."""
    return lambda text: text.strip() == expected


def last_line(expected: str) -> Check:
    """The text ends with this line; what is thought before it is free."""
    return lambda text: text.strip().rsplit("\n", 1)[-1] == expected


def numbers_in_order(expected: Sequence[int]) -> Check:
    """The text holds exactly these numbers, comma separated, in this order."""
    wanted = ", ".join(str(number) for number in expected)
    return same_text(wanted)


def json_equal(expected: Mapping[str, object]) -> Check:
    """The text is one JSON object equal to `expected`, keys in any order, no key twice."""

    def check(text: str) -> bool:
        try:
            pairs = json.loads(text, object_pairs_hook=list)
        except ValueError:
            return False
        if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
            return False
        return len(pairs) == len(expected) and dict(pairs) == dict(expected)

    return check


def numbered_members(count: int, members: Sequence[str]) -> Check:
    """The text is `1. x` to `count. x`, one a line, with different x that are all members."""

    def check(text: str) -> bool:
        lines = text.strip().split("\n")
        if len(lines) != count:
            return False
        heads = [f"{number}. " for number in range(1, count + 1)]
        if not all(line.startswith(head) for line, head in zip(lines, heads, strict=True)):
            return False
        named = [line[len(head) :].strip() for line, head in zip(lines, heads, strict=True)]
        return len(set(named)) == count and set(named) <= set(members)

    return check
