"""How long drafting takes: a pass for each level of the trees, spread over the drafts of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from specgrove.planning.budget import Floats

SMOOTHING = 0.1
"""Weight of the newest observation of draft and network."""
WORST_FACTOR = 10.0
"""Of one observation: a draft that was stopped for a moment must not be written off."""


@dataclass(slots=True)
class Drafting:
    """One draft: a pass for each level of its trees, over the new nodes of all of them."""

    pass_s: Mapping[int, float]
    """Seconds of a pass by new tokens, as measured by the draft; one entry is a guess for all of them."""
    factor: float = 1.0
    """Seen over predicted, lately."""
    network_s: float = 0.0
    """Of a round, lately."""

    def level_s(self, tokens: Floats) -> Floats:
        """Seconds of one level with so many new tokens."""
        known = sorted(self.pass_s)
        times = [self.pass_s[n] for n in known]
        beyond = np.zeros_like(tokens)
        if len(known) > 1:  # the last slope goes on
            slope = max(0.0, times[-1] - times[-2]) / (known[-1] - known[-2])
            beyond = np.maximum(tokens - known[-1], 0) * slope
        return self.factor * (np.interp(tokens, known, times) + beyond)

    def observe(self, levels: int, tokens: float, draft_s: float, waited_s: float) -> None:
        """A tree came. tokens: of one level, all trees of the batch together."""
        predicted = levels * float(self.level_s(np.array([tokens]))[0]) / self.factor
        self.factor += SMOOTHING * (min(WORST_FACTOR, draft_s / predicted) - self.factor)
        self.network_s += SMOOTHING * (max(0.0, waited_s - draft_s) - self.network_s)


class DraftTimes:
    """All drafts of a target. Sessions are spread over them evenly, and a round waits for the slowest."""

    def __init__(self, unknown: Drafting) -> None:
        """unknown: a draft that has not told how long its passes take."""
        self._unknown = unknown
        self._drafts: dict[str, Drafting] = {}

    def came(self, draft: str, pass_s: Mapping[int, float]) -> None:
        """A draft connected; one that comes again is measured anew."""
        self._drafts[draft] = Drafting(pass_s) if pass_s else replace(self._unknown)

    def left(self, draft: str) -> None:
        """A draft disconnected."""
        self._drafts.pop(draft, None)

    def observe(self, draft: str, levels: int, tokens: float, *, draft_s: float, waited_s: float) -> None:
        """A tree came. tokens: of one level, of all drafts' trees together."""
        one = self._drafts.setdefault(draft, replace(self._unknown))
        one.observe(levels, max(1.0, tokens / len(self._drafts)), draft_s, waited_s)

    def round_s(self, tokens: Floats, levels: int) -> Floats:
        """Seconds until the trees of all sessions are there. tokens: of one level, all trees together."""
        drafts = list(self._drafts.values()) or [self._unknown]
        share = np.maximum(tokens / len(drafts), np.minimum(tokens, 1.0))
        each = np.array([levels * one.level_s(share) + one.network_s for one in drafts])
        slowest: Floats = each.max(axis=0)
        return slowest
