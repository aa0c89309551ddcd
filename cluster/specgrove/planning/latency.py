"""How long a forward pass takes, from measurements of this replica: a staircase in computed tokens, lines in the rest.

The SmartSpec paper's model is linear in KV tokens, computed tokens and requests. On real machines the time is a
staircase in computed tokens (kernels work in blocks), and its steps decide whether one more drafted token is free. So
the tokens get one free value at each knot, with straight lines between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specgrove.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Computed tokens at which the staircase has a free value."""
DRIFTED = 0.2
"""Mean relative error of predictions from which a replica measures again."""
SMOOTHING = 0.02
"""Weight of the newest step in the running error."""
_LINES = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass computes. `context` is the KV tokens that are read, summed over the sessions."""

    tokens: int
    sessions: int = 1
    context: int = 0

    def features(self, knots: Sequence[int]) -> list[float]:
        """[knots + lines]: weights of the two knots around `tokens`, then what the lines multiply."""
        hat = [0.0] * len(knots)
        right = min(max(1, int(np.searchsorted(knots, self.tokens))), len(knots) - 1)
        share = (self.tokens - knots[right - 1]) / (knots[right] - knots[right - 1])
        hat[right - 1], hat[right] = 1 - share, share
        return [*hat, float(self.sessions - 1), float(self.context), self.tokens * self.context / self.sessions]


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """Predicts seconds. `at_knots[i]` is the time of knots[i] tokens of one session without context."""

    knots: tuple[int, ...]
    at_knots: tuple[float, ...]
    per_session: float
    """Seconds for every further session."""
    per_context: float
    """Seconds per KV token read."""
    per_token_context: float
    """Seconds per pair of a computed token and a KV token."""

    def seconds(self, work: Work) -> float:
        """Predicted time of a pass."""
        return float(self.curve(np.array([work.tokens]), work.sessions, work.context)[0])

    def curve(self, tokens: Ints, sessions: int, context: int) -> Floats:
        """Predicted times of passes that differ in their computed tokens; past the last knot the last slope goes on."""
        (*_, before, last), (*_, low, high) = self.knots, self.at_knots
        beyond = np.maximum(tokens - last, 0) * (high - low) / (last - before)
        stairs = np.interp(tokens, self.knots, self.at_knots) + beyond
        lines = self.per_session * (sessions - 1) + self.per_context * context
        return stairs + lines + self.per_token_context * tokens * (context / sessions)

    @classmethod
    def fit(cls, measured: Iterable[tuple[Work, float]], knots: Sequence[int] = ()) -> LatencyModel:
        """The least mean relative square error. No line falls: more work never takes less time.

        measured: passes and their seconds; every knot needs one near it. knots: where the staircase has a free value;
        empty: those of KNOTS up to the largest pass. Raises ConfigError when the passes do not suffice.
        """
        passes = list(measured)
        largest = max((work.tokens for work, _ in passes), default=0)
        knots = knots or tuple(knot for knot in KNOTS if knot <= max(2, largest))
        if any(not seconds > 0 for _, seconds in passes):
            raise ConfigError("a measured pass takes a positive time")
        rows = np.array([work.features(knots) for work, _ in passes])
        seconds = np.array([seconds for _, seconds in passes])
        if len(passes) < len(knots) or not (rows[:, : len(knots)] > 0).any(0).all():
            needed = ", ".join(map(str, knots))
            raise ConfigError(f"{len(passes)} measured passes do not reach every one of {needed} tokens")
        used = _told_apart(rows / seconds[:, None], len(knots))
        while True:
            found = np.zeros(len(used))
            found[used], *_ = np.linalg.lstsq(rows[:, used] / seconds[:, None], np.ones(len(passes)), rcond=None)
            falling = (found < 0) & used
            falling[: len(knots)] = False
            if not falling.any():
                break
            used &= ~falling
        values = found.tolist()
        rising = np.maximum.accumulate(np.maximum(values[: len(knots)], 1e-9)).tolist()
        return cls(tuple(knots), tuple(rising), *values[len(knots) :])

    def refreshed(self, observed: Sequence[tuple[Work, float]], factor: float) -> LatencyModel:
        """This model brought up to date: all its times multiplied by `factor`, then bent to what was observed since.

        Where nothing was observed the scaled model stays, so that a replica which has seen small steps alone does not
        forget what large ones cost.
        """
        grid = [Work(knot * sessions, sessions, 256 * sessions) for knot in self.knots for sessions in (1, 4)]
        believed = [(work, factor * self.seconds(work)) for work in grid]
        return LatencyModel.fit([*believed, *observed], self.knots)

    def error(self, measured: Iterable[tuple[Work, float]]) -> float:
        """Mean relative error of the predictions."""
        return float(np.mean([abs(self.seconds(work) - seconds) / seconds for work, seconds in measured]))

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, to be kept and shared."""
        return {
            "knots": list(self.knots),
            "at_knots": list(self.at_knots),
            "per_session": self.per_session,
            "per_context": self.per_context,
            "per_token_context": self.per_token_context,
        }

    @classmethod
    def from_mapping(cls, kept: Mapping[str, Any]) -> LatencyModel:
        """What to_mapping gave."""
        return cls(
            tuple(kept["knots"]),
            tuple(kept["at_knots"]),
            kept["per_session"],
            kept["per_context"],
            kept["per_token_context"],
        )


def _told_apart(rows: Floats, knots: int) -> NDArray[np.bool_]:
    """The features that the passes tell apart from those before them: [features].

    Measured at one context alone, for instance, nothing says what context costs: it counts as free, not as everything.
    """
    columns = rows / np.maximum(np.abs(rows).max(0), 1e-12)
    used = np.arange(rows.shape[1]) < knots
    for line in range(knots, rows.shape[1]):
        more = used.copy()
        more[line] = True
        if np.linalg.matrix_rank(columns[:, more], tol=1e-3) > np.linalg.matrix_rank(columns[:, used], tol=1e-3):
            used = more
    return used


class Residual:
    """How far predictions are off lately: a factor that corrects them, and whether to measure again."""

    def __init__(self) -> None:
        self.factor = 1.0
        """Measured over predicted, lately; a busy machine slows every pass alike."""
        self.error = 0.0
        """Mean relative error of the uncorrected predictions, lately."""

    def observe(self, predicted: float, measured: float) -> None:
        """Count one step. Single outliers (a pause of the machine) move nothing far."""
        ratio = min(4.0, max(0.25, measured / predicted))
        self.factor += SMOOTHING * (ratio - self.factor)
        self.error += SMOOTHING * (abs(ratio - 1) - self.error)

    @property
    def drifted(self) -> bool:
        """The table no longer holds."""
        return self.error > DRIFTED
