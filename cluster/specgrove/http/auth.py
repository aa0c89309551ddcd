"""API keys: `Authorization: Bearer KEY`, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256

from specgrove.errors import ConfigError, Unauthenticated


class KeyRing:
    """The keys that open the door. Only digests are kept, so that equal lengths are compared."""

    def __init__(self, keys: Sequence[str]) -> None:
        for key in keys:
            if not key or not key.isascii() or not key.isprintable() or key != key.strip():
                raise ConfigError(
                    "an API key must be visible ASCII without spaces around it, or no client could send it",
                    param="api_keys",
                )
        self._digests = tuple(sha256(key.encode()).digest() for key in keys)

    def check(self, authorization: str | None) -> None:
        """Raise Unauthenticated unless the header's value carries one of the keys. No keys: everybody may pass."""
        if not self._digests:
            return
        if not authorization:
            raise Unauthenticated("no API key; send the header Authorization: Bearer YOUR_KEY")
        scheme, _, key = authorization.partition(" ")
        given = sha256(key.strip().encode()).digest()
        # Every key is compared, so that the time does not tell which one was close.
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise Unauthenticated("the API key is not valid here; send the header Authorization: Bearer YOUR_KEY")
