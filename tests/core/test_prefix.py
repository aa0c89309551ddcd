"""PrefixHash: chained per token, whatever the cuts."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from specgrove.core.prefix import PrefixHash

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=30)


@given(tokens, tokens)
def test_cuts_do_not_show(first: list[int], second: list[int]):
    """One extend or several: the same value and length."""
    cut = PrefixHash(first)
    assert cut.extend(second) == cut.value == PrefixHash(first + second).value
    assert cut.length == len(first) + len(second)


@given(tokens, tokens)
def test_different_prefixes_differ(first: list[int], second: list[int]):
    """Order and content count."""
    assert (PrefixHash(first).value == PrefixHash(second).value) == (first == second)


def test_known_answer():
    """blake2b-64 over int32 little endian, read as an unsigned little-endian number: peers must agree on it."""
    raw = bytes.fromhex("01000000f1500200")
    wanted = int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
    assert PrefixHash([1, 151_793]).value == wanted
    assert PrefixHash().value == int.from_bytes(hashlib.blake2b(b"", digest_size=8).digest(), "little")
    assert 0 <= wanted < 2**64


def test_copy_is_independent():
    """A copy goes on alone."""
    one = PrefixHash([1, 2])
    two = one.copy()
    two.extend([3])
    assert (one.length, two.length) == (2, 3)
    assert one.value == PrefixHash([1, 2]).value
    assert two.value == PrefixHash([1, 2, 3]).value
