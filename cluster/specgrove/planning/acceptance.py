"""How often drafted children are accepted, by rank and depth, estimated from the rounds of the recent past.

At every node that a round's walk visits, the target follows the child of some rank, or none. A node with k children
says nothing about rank k and further ones, and a node that is not visited says nothing at all: estimates are censored
(papers/serving.md, 0.3). So what is estimated is the chance of each rank after all elder ones were refused, hits over
trials; the acceptance of a rank follows from these and adds up to at most 1 (Kaplan and Meier, 1958).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specgrove.core.tree import ROOT, TokenTree

Floats = NDArray[np.float64]

RANKS, DEPTHS = 8, 16
"""Ranks and depths that are kept apart; what is beyond is not counted."""
MEMORY = 200.0
"""Rounds after which an observation weighs 1/e."""
PRIOR = (0.7, 0.3, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1)
"""Chance of each rank after the elder ones were refused, before anything was seen."""
PRIOR_TRIALS = 4.0
POOLING = 30.0
"""So many trials of a rank at one depth weigh as much as that rank's trials at all depths."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A node on the path of a round: its depth (0 is the root), its children, and the rank of the one taken."""

    depth: int
    children: int
    taken: int | None


def visits(tree: TokenTree, accepted: Sequence[int]) -> list[Visit]:
    """Of one round. accepted: nodes of the accepted path, from the first level down."""
    children = tree.children()
    seen: list[Visit] = []
    for depth, node in enumerate((ROOT, *accepted)):
        below = children[node + 1]
        taken = below.index(accepted[depth]) if depth < len(accepted) else None
        if below:
            seen.append(Visit(depth, len(below), taken))
    return seen


class AcceptanceEstimate:
    """Counts of one (draft, exit, target, workload class), fading as rounds go by. Not thread-safe."""

    def __init__(self, *, memory: float = MEMORY) -> None:
        self._keep = np.exp(-1.0 / memory)
        self._hits = np.zeros((DEPTHS, RANKS))
        self._trials = np.zeros((DEPTHS, RANKS))
        self.rounds = 0
        """Rounds observed here."""

    def observe(self, seen: Sequence[Visit]) -> None:
        """Count one round."""
        self.rounds += 1
        self._hits *= self._keep
        self._trials *= self._keep
        for visit in seen:
            if visit.depth >= DEPTHS:
                return
            tried = min(visit.children if visit.taken is None else visit.taken + 1, RANKS)
            self._trials[visit.depth, :tried] += 1
            if visit.taken is not None and visit.taken < RANKS:
                self._hits[visit.depth, visit.taken] += 1

    def fade(self, amount: float) -> None:
        """Let what was counted weigh exp(-amount) of what it did."""
        self._hits *= np.exp(-amount)
        self._trials *= np.exp(-amount)

    def merge(self, other: AcceptanceEstimate) -> None:
        """Add what another replica counted."""
        self._hits += other._hits
        self._trials += other._trials

    @property
    def weight(self) -> float:
        """Rounds that the estimate rests on, old ones counting less."""
        return float(self._trials[0, 0])

    def vector(self) -> Floats:
        """Acceptance by rank, whatever the depth; never increasing: [RANKS]."""
        return _acceptance(self._pooled(), self._trials.sum(0) + PRIOR_TRIALS)

    def matrix(self, levels: int) -> Floats:
        """Acceptance by depth of the parent and rank: [levels, RANKS]. Depths with few trials lean on all depths."""
        pooled = self._pooled()
        rows = min(levels, DEPTHS)
        weights = self._trials[:rows] + POOLING
        chances = (self._hits[:rows] + POOLING * pooled) / weights
        made = [_acceptance(*row) for row in zip(chances, weights, strict=True)]
        rows_made: Floats = np.stack([*made, *[made[-1]] * (levels - rows)])
        return rows_made

    def deviation(self) -> float:
        """Standard error of the first rank's acceptance."""
        chance = self._pooled()[0]
        return float(np.sqrt(chance * (1 - chance) / (self._trials[:, 0].sum() + PRIOR_TRIALS)))

    def _pooled(self) -> Floats:
        """Chance of each rank after the elder ones were refused, over all depths: [RANKS]."""
        hits: Floats = self._hits.sum(0) + PRIOR_TRIALS * np.array(PRIOR)
        trials: Floats = self._trials.sum(0) + PRIOR_TRIALS
        return hits / trials

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, to be kept and shared."""
        return {"hits": self._hits.tolist(), "trials": self._trials.tolist(), "rounds": self.rounds}

    @classmethod
    def from_mapping(cls, kept: Mapping[str, Any], *, memory: float = MEMORY) -> AcceptanceEstimate:
        """What to_mapping gave. Raises ValueError for another shape."""
        made = cls(memory=memory)
        hits, trials = np.array(kept["hits"], dtype=np.float64), np.array(kept["trials"], dtype=np.float64)
        if hits.shape != made._hits.shape or trials.shape != made._trials.shape:
            raise ValueError(f"counts of shape {hits.shape}, expected {made._hits.shape}")
        made._hits, made._trials, made.rounds = hits, trials, int(kept["rounds"])
        return made


def _acceptance(chances: Floats, trials: Floats) -> Floats:
    """Acceptance of each rank from its chance after the elder ones were refused; noise in the tail is levelled.

    Trials never increase with the rank, so levelling by their weight adds nothing to the sum.
    """
    refused = np.concatenate([[1.0], np.cumprod(1 - chances)[:-1]])
    return _levelled(chances * refused, trials)


def _levelled(values: Floats, weights: Floats) -> Floats:
    """The closest sequence that never increases, in weighted squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (a, u, n), (b, v, m) = blocks[-2:]
            blocks[-2:] = [((a * u + b * v) / (u + v), u + v, n + m)]
    return np.concatenate([np.full(count, value) for value, _, count in blocks])
