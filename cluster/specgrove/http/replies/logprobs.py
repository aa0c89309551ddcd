"""Log-probabilities in OpenAI's two forms: entries with bytes (chat) and columns with offsets (completions)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from specgrove.core.request import TokenLogprob

IMPOSSIBLE = -9999.0
"""OpenAI's number for a token without any probability: JSON has no infinity."""


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Entries of `logprobs.content`."""
    return [_entry(token) | {"top_logprobs": [_entry(other) for other in token.top]} for token in tokens]


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": _number(token.logprob), "bytes": list(token.raw)}


def _number(logprob: float | None) -> float:
    return IMPOSSIBLE if logprob is None or logprob < IMPOSSIBLE else logprob


class Columns:
    """The columns of one choice. `text_offset` counts characters of the choice's `text`, an echoed prompt included.

    Offsets come from the tokens' bytes: a token that starts inside a character gets the offset of that character.
    """

    def __init__(self) -> None:
        self.all: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def add(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Append tokens; returns their columns alone."""
        new: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token in tokens:
            first = token.logprob is None  # nothing stands before the first prompt token
            new["tokens"].append(token.text)
            new["token_logprobs"].append(None if first else _number(token.logprob))
            new["top_logprobs"].append(None if first else _best(token))
            new["text_offset"].append(self._offset)
            self._offset += len(self._decoder.decode(token.raw))
        for name, column in new.items():
            self.all[name] += column
        return new


def _best(token: TokenLogprob) -> dict[str, float]:
    """Text to log-probability; the emitted token is always there. Of two tokens with one text the better one stays."""
    best: dict[str, float] = {}
    for other in (*token.top, token):
        best.setdefault(other.text, _number(other.logprob))
    return best
