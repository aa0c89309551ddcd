"""What a target guesses for a session by itself, without a draft and at no network cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specgrove.drafters.lookup import LONGEST, SHORTEST, Lookup, Prediction

MOST_INDEXED = 32768
"""Prompt tokens that are searched, the last ones: an index of more costs more memory than its guesses are worth."""
HOPE = 0.5
"""Of lookups of other lengths."""
MEMORY = 60.0
"""Guessed tokens after which an observation weighs 1/e."""
PRIOR_TRIALS = 6.0
PREDICTION = "prediction"
"""The kind of guesses that come from the client's prediction."""
HOPES = {PREDICTION: 0.9, "lookup 4": 0.7, "lookup 3": 0.55, "lookup 2": 0.4}
"""Chance that a guessed token is right, before anything was seen: of predictions, and of lookups by their match."""


@dataclass(frozen=True, slots=True)
class LookupOptions:
    """How a session's own text is searched."""

    shortest: int = SHORTEST
    """Fewest tokens that must occur again."""
    longest: int = LONGEST
    """Most tokens that are looked up."""
    tokens: int | None = None
    """Tokens of every guess; None: as many as pay."""


class Guesses:
    """Sources of one session: the client's prediction first, then its own text."""

    def __init__(self, prompt: Sequence[int], *, lookup: LookupOptions | None, prediction: Sequence[int] = ()) -> None:
        self._lookup = None
        if lookup is not None:
            self._lookup = Lookup(prompt[-MOST_INDEXED:], shortest=lookup.shortest, longest=lookup.longest)
        self._prediction = Prediction(prediction) if prediction else None

    def fork(self) -> Guesses:
        """For another choice of the same prompt."""
        made = Guesses((), lookup=None)
        made._lookup = self._lookup.fork() if self._lookup is not None else None
        made._prediction = self._prediction.fork() if self._prediction is not None else None
        return made

    def extend(self, tokens: Iterable[int]) -> None:
        """Follow the output."""
        tokens = tuple(tokens)
        for source in (self._prediction, self._lookup):
            if source is not None:
                source.extend(tokens)

    def guess(self, count: int) -> tuple[tuple[int, ...], str]:
        """At most `count` tokens, and the kind of guess that they are."""
        if self._prediction is not None and (found := self._prediction.guess(count)).tokens:
            return found.tokens, PREDICTION
        if self._lookup is not None and (found := self._lookup.guess(count)).tokens:
            return found.tokens, f"lookup {found.matched}"
        return (), ""


class Chances:
    """How often guessed tokens were right, by kind of guess, given that those before them were."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, float]] = {}

    def observe(self, kind: str, offered: int, right: int) -> None:
        """Count a round: `right` of the `offered` tokens were the target's own; the first wrong one counts as well."""
        trials = min(right + 1, offered)
        keep = max(0.0, 1 - trials / MEMORY)
        hits, tried = self._counts.get(kind, (0.0, 0.0))
        self._counts[kind] = (hits * keep + right, tried * keep + trials)

    def of(self, kind: str) -> float:
        """The chance, from 0 to 1."""
        hits, tried = self._counts.get(kind, (0.0, 0.0))
        return (hits + PRIOR_TRIALS * HOPES.get(kind, HOPE)) / (tried + PRIOR_TRIALS)
