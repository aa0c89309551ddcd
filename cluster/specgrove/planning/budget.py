"""How many nodes each session's tree gets: the most expected tokens per second of the whole batch.

SmartSpec's goodput, generalised from one length for all to trees of different sessions. A step serves groups of
sessions that are alike; a further node goes where it brings most (expected tokens of best-first trees are concave in
the nodes), and every total is tried against the predicted time of the round, because costs are staircases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RoundTime = Callable[[Ints, int], Floats]
"""Seconds of rounds with so many tree nodes in all, one for each total, at one depth; total 0 and depth 0 are plain."""


class Gains:
    """Expected tokens of the best tree of one kind of session, by depth and nodes, the root not counted in either.

    acceptance: by rank, [ranks], or by depth of the parent and rank, [depths, ranks]; never increasing with the rank,
    so that the likeliest nodes are a tree and the best one (papers/algorithms.md, 1b.4).
    """

    def __init__(self, acceptance: Floats, *, nodes: int, depth: int) -> None:
        self.nodes, self.depth = nodes, depth
        self._tokens = np.ones((depth + 1, nodes + 1))  # [depths, nodes]
        level, likeliest = np.ones(1), np.empty(0)
        for below in range(1, depth + 1):
            row = acceptance[min(below, len(acceptance)) - 1] if acceptance.ndim == 2 else acceptance
            level = _largest(np.outer(level, row).ravel(), nodes)
            likeliest = _largest(np.concatenate([likeliest, level]), nodes)
            self._tokens[below, 1:] += _filled(likeliest.cumsum(), nodes)

    def tokens(self, depth: int, nodes: int) -> float:
        """Of a tree of at most so many levels below the root and drafted nodes."""
        return float(self._tokens[min(depth, self.depth), min(nodes, self.nodes)])

    def steps(self, depth: int, nodes: int) -> Floats:
        """What each further node brings, up to `nodes`; never increasing: [nodes]."""
        return np.diff(self._tokens[min(depth, self.depth), : min(nodes, self.nodes) + 1])


def _largest(values: Floats, count: int) -> Floats:
    """The largest `count`, in falling order."""
    return -np.sort(-values)[:count]


def _filled(values: Floats, count: int) -> Floats:
    """As many as asked for; the last one again where there are fewer."""
    return np.concatenate([values, np.full(count - len(values), values[-1])])


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions that are planned alike, within their own limits; no nodes: they decode plainly whatever it costs."""

    members: int
    gains: Gains
    most_nodes: int
    most_depth: int

    def tokens(self, depth: int, nodes: int) -> float:
        """Expected tokens of a round of all members."""
        return self.members * self.gains.tokens(min(depth, self.most_depth), min(nodes, self.most_nodes))


@dataclass(frozen=True, slots=True)
class Budget:
    """A decision: depth of all trees and nodes of each group's, and what is expected of it."""

    depth: int
    nodes: tuple[int, ...]
    tokens: float
    """Expected tokens of a round of the whole batch."""
    seconds: float

    @property
    def goodput(self) -> float:
        """Expected tokens per second."""
        return self.tokens / self.seconds

    @property
    def off(self) -> bool:
        """Nobody drafts."""
        return not any(self.nodes)


def expected(groups: Sequence[Group], nodes: Sequence[int], depth: int, round_time: RoundTime) -> Budget:
    """What a given budget is expected to bring; depth 0 without nodes is plain decoding."""
    total = sum(group.members * n for group, n in zip(groups, nodes, strict=True))
    tokens = sum(group.tokens(depth, n) for group, n in zip(groups, nodes, strict=True))
    depth = depth if total else 0
    return Budget(depth, tuple(nodes), tokens, float(round_time(np.array([total]), depth)[0]))


def best_budget(groups: Sequence[Group], round_time: RoundTime) -> Budget:
    """The budget with the largest goodput over all totals and depths; of equals the one that drafts less."""
    best = expected(groups, (0,) * len(groups), 0, round_time)
    for depth in range(1, max((group.most_depth for group in groups), default=0) + 1):
        found = _best_of_depth(groups, round_time, depth)
        if found is not None and found.goodput > best.goodput:
            best = found
    return best


def _best_of_depth(groups: Sequence[Group], round_time: RoundTime, depth: int) -> Budget | None:
    """Node by node to the group where it brings most, and of all totals on the way the best."""
    steps = [group.gains.steps(min(depth, group.most_depth), group.most_nodes) for group in groups]
    owner = np.repeat(np.arange(len(groups)), [len(of_group) for of_group in steps])
    gain = np.concatenate(steps)
    order = np.argsort(-gain, kind="stable")
    order = order[gain[order] > 0]
    if not len(order):
        return None
    members = np.array([group.members for group in groups])
    owner, gain = owner[order], gain[order]
    totals = members[owner].cumsum()
    tokens = members.sum() + (members[owner] * gain).cumsum()
    seconds = round_time(totals, depth)
    at = int((tokens / seconds).argmax())
    nodes = np.bincount(owner[: at + 1], minlength=len(groups))
    return Budget(depth, tuple(nodes.tolist()), float(tokens[at]), float(seconds[at]))
