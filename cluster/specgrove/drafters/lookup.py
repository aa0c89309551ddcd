"""Guesses without a model: what followed when the last few tokens occurred before, in prompt or output.

Prompt lookup (Saxena, 2023; in transformers and vLLM as n-gram speculation), kept up to date token by token, so that a
guess costs a dictionary lookup per length and not a scan of the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

SHORTEST, LONGEST = 2, 4
"""Lengths of the token sequences that are looked up; a longer match is a better guess."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that may come next, and how many tokens before them were found again: longer is surer."""

    tokens: tuple[int, ...]
    matched: int


NO_GUESS = Guess((), 0)


class Lookup:
    """Everything that one session has said, by its n-grams. Remembers the latest place of each."""

    def __init__(self, tokens: Iterable[int] = (), *, shortest: int = SHORTEST, longest: int = LONGEST) -> None:
        self._tokens: list[int] = []
        self._lengths = range(longest, shortest - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        """Where the token after an n-gram stands; only for n-grams that something follows."""
        self.extend(tokens)

    def fork(self) -> Lookup:
        """An equal one that goes its own way."""
        made = Lookup(shortest=self._lengths[-1], longest=self._lengths[0])
        made._tokens, made._ends = self._tokens.copy(), self._ends.copy()
        return made

    def extend(self, tokens: Iterable[int]) -> None:
        """Append committed tokens."""
        said = self._tokens
        for token in tokens:
            end = len(said)
            for length in self._lengths:
                if length <= end:
                    self._ends[tuple(said[end - length :])] = end
            said.append(token)

    def guess(self, count: int) -> Guess:
        """At most `count` tokens after the latest place of the longest match.

        Where that place is near the end, the text between is expected to go round again.
        """
        said = self._tokens
        for length in self._lengths:
            if length > len(said):
                continue
            place = self._ends.get(tuple(said[-length:]))
            if place is not None:
                period = len(said) - place
                return Guess(tuple(said[place + step % period] for step in range(count)), length)
        return NO_GUESS


class Prediction:
    """An answer that the client expects: what comes after the place that the output has reached in it.

    OpenAI's `prediction`. When the output leaves the predicted text, it is looked for again by its last tokens.
    """

    def __init__(self, tokens: Iterable[int]) -> None:
        self._tokens = tuple(tokens)
        self._ends: dict[tuple[int, ...], list[int]] = {}
        for end in range(SHORTEST, len(self._tokens)):
            for length in range(SHORTEST, min(LONGEST, end) + 1):
                self._ends.setdefault(self._tokens[end - length : end], []).append(end)
        self._place = 0
        """How far the output has come; kept while it is elsewhere."""
        self._followed = True
        self._recent: tuple[int, ...] = ()

    def fork(self) -> Prediction:
        """An equal one that goes its own way; the text and its index are shared."""
        made = Prediction(())
        made._tokens, made._ends = self._tokens, self._ends
        made._place, made._followed, made._recent = self._place, self._followed, self._recent
        return made

    def extend(self, tokens: Iterable[int]) -> None:
        """Follow the output."""
        for token in tokens:
            self._recent = (*self._recent, token)[-LONGEST:]
            if self._followed and self._tokens[self._place : self._place + 1] == (token,):
                self._place += 1
            else:
                self._find_again()

    def _find_again(self) -> None:
        """The first place after the former one, else the first at all, of the longest match."""
        for length in range(len(self._recent), SHORTEST - 1, -1):
            if places := self._ends.get(self._recent[-length:]):
                self._place = places[bisect_left(places, self._place) % len(places)]
                self._followed = True
                return
        self._followed = False

    def guess(self, count: int) -> Guess:
        """At most `count` predicted tokens from here."""
        return Guess(self._tokens[self._place : self._place + count], LONGEST) if self._followed else NO_GUESS
