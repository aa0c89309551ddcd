"""Where a choice ends, and what text may be shown before it is known to end. Pure apart from the detokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specgrove.core.request import FinishReason


class Detokenizer(Protocol):
    """Incremental text of a token stream (engine.tokenizer.TextStream)."""

    def push(self, token: int) -> str:
        """New complete text; empty while a character is incomplete."""

    def flush(self) -> str:
        """What is left."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a choice ended."""

    reason: FinishReason
    stop_reason: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRules:
    """When a choice ends. The order of tests is: end-of-sequence and stop ids, stop strings, length."""

    eos_ids: frozenset[int]
    """Empty when the request ignores end-of-sequence."""
    stop_ids: frozenset[int]
    strings: tuple[str, ...]
    min_tokens: int
    """Stop strings are not looked for before this many tokens (end-of-sequence and stop ids are banned until then)."""
    max_tokens: int


class TextTail:
    """The text of one choice: shown, or held back because it may be the start of a stop string."""

    def __init__(self, detokenizer: Detokenizer, rules: StopRules) -> None:
        self._detokenizer = detokenizer
        self._rules = rules
        self._held = ""
        self.count = 0
        """Tokens so far, the ending one included."""

    def push(self, token: int) -> tuple[str, Stop | None]:
        """Take one token; returns text that is now safe to show, and the stop if the choice ended with this token.

        The text of a stop string, of a stop id and of end-of-sequence is never shown.
        """
        self.count += 1
        if token in self._rules.eos_ids:
            return self._end(Stop("stop"))
        if token in self._rules.stop_ids:
            return self._end(Stop("stop", token))
        self._held += self._detokenizer.push(token)
        if self.count >= self._rules.min_tokens and (found := self._find()) is not None:
            at, string = found
            return self._held[:at], Stop("stop", string)
        if self.count >= self._rules.max_tokens:
            return self._end(Stop("length"))
        return self._release(), None

    def _end(self, stop: Stop) -> tuple[str, Stop]:
        """Everything held is shown, unless the last characters complete a stop string."""
        self._held += self._detokenizer.flush()
        if self.count >= self._rules.min_tokens and (found := self._find()) is not None:
            at, string = found
            return self._held[:at], Stop("stop", string)
        return self._held, stop

    def _find(self) -> tuple[int, str] | None:
        """Earliest stop string in the held text; the longer one when two start together."""
        hits = [(at, string) for string in self._rules.strings if (at := self._held.find(string)) >= 0]
        return min(hits, key=lambda hit: (hit[0], -len(hit[1])), default=None)

    def _release(self) -> str:
        """Show all but the longest end that could begin a stop string."""
        keep = 0
        for string in self._rules.strings:
            for size in range(min(len(string) - 1, len(self._held)), keep, -1):
                if self._held.endswith(string[:size]):
                    keep = size
                    break
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown
