"""The tree that gains most: Sequoia's dynamic program, and best-first growth where that is the same.

Words as in the paper (Chen et al., arXiv 2402.12374): `nodes` and `levels` count the root, which is the last committed
token; `acceptance[k]` is the probability that the child of rank k is the one accepted, given that its parent
was; a matrix has one such row per level, row 0 for the root's children. The expected tokens of a round are
F(tree) = sum over nodes of the product of acceptances on the way to it; the root's 1 is the correction or bonus token.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specgrove.core.tree import ROOT
from specgrove.errors import ConfigError

Floats = NDArray[np.float64]
Acceptance = Sequence[float] | Sequence[Sequence[float]] | Floats
"""By rank, [ranks]; or by depth of the parent and rank, [depths, ranks]."""

_NOTHING = -np.inf


@dataclass(frozen=True, slots=True)
class Shape:
    """A tree without tokens. `parents` is that of a TokenTree: one entry per drafted node, -1 below the root."""

    expected_tokens: float
    parents: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        """Nodes, root included."""
        return len(self.parents) + 1

    @property
    def levels(self) -> int:
        """Levels, root included."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(2 if parent == ROOT else depths[parent] + 1)
        return max(depths, default=1)


def checked(acceptance: Acceptance) -> Floats:
    """The acceptance as an array, [ranks] or [levels, ranks]. Raises ConfigError where it is no probability."""
    try:
        rows = np.asarray(acceptance, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError("acceptance is numbers, and every row of a matrix has as many", param="acceptance") from None
    if rows.ndim not in (1, 2) or rows.size == 0:
        raise ConfigError(
            "acceptance is a list of probabilities by rank, or a list of these by level", param="acceptance"
        )
    if not (np.isfinite(rows).all() and (rows >= 0).all() and (rows.sum(-1) <= 1 + 1e-9).all()):
        raise ConfigError("acceptances by rank are probabilities of at most 1 together", param="acceptance")
    return rows


class ShapeTable:
    """Optimal trees for every size up to `nodes` and every number of levels up to `levels`, by dynamic programming.

    acceptance: [ranks], or [levels - 1, ranks]; below a matrix's last row nothing is accepted.  Costs
    O(nodes² · levels · ranks). With a matrix only the full number of levels can be asked for: the row of a node depends
    on its distance from the root (papers/algorithms.md, 1b.2).
    """

    def __init__(self, acceptance: Acceptance, nodes: int, levels: int | None = None):
        rows = checked(acceptance)
        if nodes < 1 or (levels is not None and levels < 1):
            raise ConfigError("a tree has at least one node and one level", param="nodes")
        self.by_level = rows.ndim == 2
        deepest = min(nodes, len(rows) + 1) if self.by_level else nodes
        self.levels = min(deepest, levels or deepest)
        self.nodes = nodes
        self._rows = rows if self.by_level else np.broadcast_to(rows, (max(1, self.levels - 1), len(rows)))
        self._best = np.full((self.levels + 1, nodes + 1), _NOTHING)
        self._children = np.zeros((self.levels + 1, nodes + 1), dtype=np.int64)
        """Children of the root of the best tree of each (levels, nodes)."""
        self._last: list[NDArray[np.int64]] = [np.zeros((0, 0), dtype=np.int64)]
        """Per level: [ranks + 1, nodes + 1], nodes of the last child's sub-tree."""
        for level in range(1, self.levels + 1):
            self._fill(level)

    def _fill(self, level: int) -> None:
        """Best trees of at most `level` levels, from those of one level less (T and Tmax of the paper)."""
        ranks = self._rows.shape[1]
        last = np.zeros((ranks + 1, self.nodes + 1), dtype=np.int64)
        partial = np.full((ranks + 1, self.nodes + 1), _NOTHING)  # with exactly so many children
        partial[0, 1] = 1.0
        if level > 1:
            row = self._rows[self.levels - level]
            possible = self._best[level - 1] > 0
            below = np.where(possible, self._best[level - 1], 0.0)
            for rank in range(ranks):
                child = np.where(possible, row[rank] * below, _NOTHING)
                partial[rank + 1], last[rank + 1] = _max_plus(partial[rank], child)
        self._last.append(last)
        self._children[level] = partial.argmax(0)
        self._best[level] = partial.max(0)

    def shape(self, nodes: int | None = None, levels: int | None = None) -> Shape:
        """The best tree of at most `nodes` nodes and `levels` levels; the table's own by default.

        Of equally good trees the smallest. Raises ConfigError for other levels than the table's with a matrix.
        """
        nodes, levels = nodes or self.nodes, min(levels or self.levels, self.levels)
        if self.by_level and levels != self.levels:
            raise ConfigError("a table for a matrix holds for its own number of levels alone", param="levels")
        size = int(self._best[levels, : nodes + 1].argmax())
        return Shape(float(self._best[levels, size]), self._parents(levels, size))

    def _parents(self, levels: int, size: int) -> tuple[int, ...]:
        """Breadth first, elder siblings first."""
        parents: list[int] = []
        open_nodes = deque([(ROOT, levels, size)])
        while open_nodes:
            node, level, count = open_nodes.popleft()
            for below in self._split(level, count):
                open_nodes.append((len(parents), level - 1, below))
                parents.append(node)
        return tuple(parents)

    def _split(self, level: int, size: int) -> list[int]:
        """Nodes below each child, the child included, of the best tree of `size` nodes."""
        sizes: list[int] = []
        for rank in range(int(self._children[level, size]), 0, -1):
            sizes.append(int(self._last[level][rank, size]))
            size -= sizes[-1]
        return sizes[::-1]


def _max_plus(a: Floats, b: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """out[n] = max over m of a[n - m] + b[m], and the m; m and n - m are at least 1. a, b: [nodes + 1]."""
    n = np.arange(len(a))
    rest = n[:, None] - n[None, :]
    sums = np.where((rest >= 1) & (n[None, :] >= 1), a[np.maximum(rest, 0)] + b[None, :], _NOTHING)
    best = sums.argmax(1)
    return sums[n, best], best


def best_tree(acceptance: Acceptance, nodes: int, levels: int | None = None) -> Shape:
    """The tree of at most `nodes` nodes and `levels` levels with the most expected tokens. Raises ConfigError."""
    rows = checked(acceptance)
    if (np.diff(rows, axis=-1) <= 0).all():
        return grown(acceptance, nodes, levels)
    return ShapeTable(acceptance, nodes, levels).shape()


def grown(acceptance: Acceptance, nodes: int, levels: int | None = None) -> Shape:
    """The `nodes` likeliest nodes, best first; the optimum whenever no row of the acceptance ever increases.

    Then a node is never likelier than its parent or its elder sibling, so the likeliest ones are a tree
    (papers/algorithms.md, 1b.4). O(nodes · ranks · log nodes). Raises ConfigError.
    """
    rows = checked(acceptance)
    if nodes < 1 or (levels is not None and levels < 1):
        raise ConfigError("a tree has at least one node and one level", param="nodes")
    deepest = min(levels or nodes, len(rows) + 1) if rows.ndim == 2 else levels or nodes
    table = rows.tolist() if rows.ndim == 2 else [rows.tolist()] * max(1, deepest - 1)
    parents: list[int] = []
    depth_of: list[int] = []
    total, order = 1.0, 0
    heap: list[tuple[float, int, int, int, float]] = []  # -value, order of arrival, parent, rank, value of the parent

    def offer(parent: int, rank: int, above: float) -> None:
        nonlocal order
        level = 0 if parent == ROOT else depth_of[parent]
        if level + 1 < deepest and rank < len(table[level]) and (value := above * table[level][rank]) > 0:
            order += 1
            heapq.heappush(heap, (-value, order, parent, rank, above))

    offer(ROOT, 0, 1.0)
    while heap and len(parents) + 1 < nodes:
        negative, _, parent, rank, above = heapq.heappop(heap)
        depth_of.append(1 if parent == ROOT else depth_of[parent] + 1)
        parents.append(parent)
        total -= negative
        offer(len(parents) - 1, 0, -negative)
        offer(parent, rank + 1, above)
    return Shape(total, _breadth_first(parents, depth_of))


def _breadth_first(parents: Sequence[int], depths: Sequence[int]) -> tuple[int, ...]:
    """The same tree, level by level; siblings stay in order."""
    order = sorted(range(len(parents)), key=lambda node: depths[node])
    renamed = {ROOT: ROOT} | {node: place for place, node in enumerate(order)}
    return tuple(renamed[parents[node]] for node in order)
