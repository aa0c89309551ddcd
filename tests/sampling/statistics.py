"""Tests of fit whose false alarms are one in a million (papers/algorithms.md C.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

ALPHA = 1e-6


def fit(counts: Sequence[float], law: Sequence[float]) -> float:
    """p-value of Pearson's chi-square; cells expected under 5 are merged, impossible cells must be empty."""
    got, wanted = np.asarray(counts, dtype=float).ravel(), np.asarray(law, dtype=float).ravel()
    if got[wanted == 0].sum() > 0:
        return 0.0
    expected = wanted / wanted.sum() * got.sum()
    small = expected < 5
    if small.any():
        got, expected = np.append(got[~small], got[small].sum()), np.append(expected[~small], expected[small].sum())
        got, expected = got[expected > 0], expected[expected > 0]
    statistic = ((got - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, len(got) - 1))


def independence(a: np.ndarray, b: np.ndarray, cells: int = 16) -> float:
    """p-value that two samples of integers in [0, cells) are uniform and independent, jointly."""
    return fit(np.bincount(a * cells + b, minlength=cells * cells), np.ones(cells * cells))


def total_variation_bound(cells: int, samples: int, delta: float = ALPHA) -> float:
    """What the empirical total variation stays under with probability 1 - delta (mean bound plus McDiarmid)."""
    return 0.5 * math.sqrt(cells / samples) + math.sqrt(math.log(1 / delta) / (2 * samples))


def total_variation(counts: Sequence[float], law: Sequence[float]) -> float:
    """Of the empirical law."""
    got, wanted = np.asarray(counts, dtype=float).ravel(), np.asarray(law, dtype=float).ravel()
    return float(np.abs(got / got.sum() - wanted / wanted.sum()).sum() / 2)
