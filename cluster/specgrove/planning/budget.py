"""How many nodes each session's tree gets: the most expected tokens per second of the whole batch.

SmartSpec's goodput, generalised from one length for all to trees of different sessions. A step serves groups of
sessions that are alike; a further node goes where it brings most (expected tokens of best-first trees are concave in
the nodes), and every total is tried against the predicted time of the round, because costs are staircases.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specgrove.planning.tree_shape import ShapeTable

Floats = NDArray[np.float64]


class Gains:
    """Expected tokens of a group's best tree, by depth and nodes, the root not counted in either.

    acceptance: by rank, or by depth and rank; as for ShapeTable.
    """

    def __init__(self, acceptance: Floats, *, nodes: int, depth: int) -> None:
        self.nodes, self.depth = nodes, depth
        self._tokens = np.ones((depth + 1, nodes + 1))
        for below in range(1, depth + 1):
            table = ShapeTable(acceptance[:below] if acceptance.ndim == 2 else acceptance, nodes + 1, below + 1)
            best = np.array([table.shape(size, below + 1).expected_tokens for size in range(1, nodes + 2)])
            self._tokens[below] = best

    def tokens(self, depth: int, nodes: int) -> float:
        """Of a tree of at most so many levels below the root and drafted nodes."""
        return float(self._tokens[min(depth, self.depth), min(nodes, self.nodes)])


@dataclass(frozen=True, slots=True)
class Group:
    """Sessions that are planned alike. `most_nodes` is their own limit; 0: they decode plainly whatever it costs."""

    members: int
    gains: Gains
    most_nodes: int
    most_depth: int


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


RoundTime = Callable[[int, int, int], float]
"""Seconds of a round, from (tree nodes in all, sessions with trees, depth); (0, 0, 0) is a plain step."""


def budgets(groups: Sequence[Group], round_time: RoundTime) -> Iterator[Budget]:
    """Every budget worth looking at, the plain one first."""
    members = sum(group.members for group in groups)
    yield Budget(0, (0,) * len(groups), float(members), round_time(0, 0, 0))
    for depth in range(1, max((group.most_depth for group in groups), default=0) + 1):
        yield from _of_depth(groups, round_time, depth)


def best_budget(groups: Sequence[Group], round_time: RoundTime) -> Budget:
    """The budget with the largest goodput; of equals the one that drafts less."""
    return max(budgets(groups, round_time), key=lambda budget: budget.goodput)


def _of_depth(groups: Sequence[Group], round_time: RoundTime, depth: int) -> Iterator[Budget]:
    """Node by node to the group where it brings most."""
    nodes, tokens = [0] * len(groups), float(sum(group.members for group in groups))
    offers: list[tuple[float, int]] = []
    for index, group in enumerate(groups):
        _offer(offers, group, index, 0, depth)
    while offers:
        negative, index = heapq.heappop(offers)
        group = groups[index]
        nodes[index] += 1
        tokens -= negative * group.members
        drafting = [(g.members, n) for g, n in zip(groups, nodes, strict=True) if n]
        seconds = round_time(sum(m * n for m, n in drafting), sum(m for m, _ in drafting), depth)
        yield Budget(depth, tuple(nodes), tokens, seconds)
        _offer(offers, group, index, nodes[index], depth)


def _offer(offers: list[tuple[float, int]], group: Group, index: int, nodes: int, depth: int) -> None:
    """What the next node of a group's trees would bring each of its members."""
    if nodes < group.most_nodes:
        depth = min(depth, group.most_depth)
        gain = group.gains.tokens(depth, nodes + 1) - group.gains.tokens(depth, nodes)
        if gain > 0:
            heapq.heappush(offers, (-gain, index))
