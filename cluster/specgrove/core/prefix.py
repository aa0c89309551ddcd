"""64-bit hash of a token prefix, chained per token, so that it does not depend on how commits were cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


class PrefixHash:
    """Incremental blake2b-64 over token ids as int32, little endian."""

    __slots__ = ("_hash", "length")

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self.length = 0
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> int:
        """Append tokens; returns the new value."""
        ids = np.fromiter(tokens, dtype="<i4")
        self._hash.update(ids.tobytes())
        self.length += len(ids)
        return self.value

    @property
    def value(self) -> int:
        """The hash of all tokens so far, as an unsigned 64-bit number."""
        return int.from_bytes(self._hash.digest(), "little")

    def copy(self) -> PrefixHash:
        """An independent hash that goes on from here."""
        twin = PrefixHash()
        twin._hash, twin.length = self._hash.copy(), self.length
        return twin
