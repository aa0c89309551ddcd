"""Tree drafting: a fixed number of children per node at each depth, cut to the best nodes of each level."""

from __future__ import annotations

from collections.abc import Sequence

from specgrove.core.speculate import DraftPlan
from specgrove.core.tree import ROOT, TokenTree
from specgrove.drafters.growth import Children

AHEAD_WIDTH = 1
"""Children per node beyond the plan."""
AHEAD_LEAVES = 2
"""Leaves below which a tree is grown on."""
AHEAD_NODES = 8
"""Most nodes of a level beyond the plan."""


class TreeGrowth:
    """Level d gives each node of level d - 1 its `branching[d]` best children, within `max_nodes` in all.

    When the level does not fit, the nodes with the best path score stay. One node is kept back for every deeper level,
    so that a wide top never makes the tree shallow. Under `match` any choice of nodes is lossless (papers A.5).
    """

    def __init__(self, plan: DraftPlan) -> None:
        self.plan = plan
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.frontier: list[int] = [ROOT]
        self._score: list[float] = []
        self._level = 0
        """Depth of the frontier; 0 is the root."""
        self._ahead = 0
        """Levels that may still be grown beyond the plan."""

    @property
    def width(self) -> int:
        """Children per frontier node at this level."""
        return self._width

    @property
    def _width(self) -> int:
        depths = self.plan.branching
        return depths[self._level] if self._level < len(depths) else AHEAD_WIDTH

    def extend(self, children: Sequence[Children]) -> None:
        """Add one level: the best candidates of all frontier nodes."""
        candidates = [
            (self._path_score(parent, kids, rank), parent, kids.tokens[rank])
            for parent, kids in zip(self.frontier, children, strict=True)
            for rank in range(min(self._width, len(kids.tokens)))
        ]
        first = len(self.tokens)
        kept = self._best(candidates, self._room())
        self._level += 1
        for score, parent, token in kept:
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self._level)
            self._score.append(score)
        self._ahead = max(0, self._ahead - 1) if self._level > len(self.plan.branching) else self._ahead
        self.frontier = list(range(first, len(self.tokens))) if self._goes_on() else []

    def _room(self) -> int:
        """Nodes of this level: one is kept back for every deeper level of the plan."""
        below = len(self.plan.branching) - self._level - 1
        if below < 0:
            return AHEAD_NODES
        room = self.plan.max_nodes - len(self.tokens)
        return max(min(1, room), room - below)

    def _goes_on(self) -> bool:
        if self._level < len(self.plan.branching):
            return len(self.tokens) < self.plan.max_nodes
        return self._ahead > 0

    def deepen(self, levels: int) -> None:
        """Go on below the best of the deepest nodes."""
        self._ahead = levels
        deepest = [node for node, depth in enumerate(self.depths) if depth == self._level]
        best = sorted(deepest, key=lambda node: (-self._score[node], node))[:AHEAD_LEAVES]
        self.frontier = sorted(best) if levels and self._level else []

    def reroot(self, node: int) -> dict[int, int]:
        """Keep what is below `node`, which becomes the root, and go on to the plan's depth."""
        renamed = {node: ROOT}
        for old, parent in enumerate(self.parents):
            if parent in renamed and old != node:
                renamed[old] = len(renamed) - 1
        kept = [old for old in renamed if old != node]
        base, score = self.depths[node], self._score[node]
        waiting = {renamed[old] for old in self.frontier if old in renamed and old != node}
        self.tokens = [self.tokens[old] for old in kept]
        self.parents = [renamed[self.parents[old]] for old in kept]
        self.depths = [self.depths[old] - base for old in kept]
        self._score = [self._score[old] - score for old in kept]
        self._level, self._ahead = max(self.depths, default=0), 0
        deepest = [new for new, depth in enumerate(self.depths) if depth == self._level]
        self.frontier = [new for new in deepest if new in waiting] or deepest
        if not self._goes_on():
            self.frontier = []
        return {old: new for old, new in renamed.items() if old != node}

    def tree(self) -> TokenTree:
        """The tree as grown so far."""
        return TokenTree(tuple(self.tokens), tuple(self.parents))

    def _path_score(self, parent: int, kids: Children, rank: int) -> float:
        """How far each step of the path is behind its best sibling, summed; 0 for the draft's own favourite path.

        The target follows the best child unless the two models disagree, so margins rank paths better than their
        probability, which punishes a path for every flat distribution on its way.
        """
        above = self._score[parent] if parent != ROOT else 0.0
        return above + kids.scores[rank] - kids.scores[0]

    @staticmethod
    def _best(candidates: list[tuple[float, int, int]], room: int) -> list[tuple[float, int, int]]:
        """The `room` best candidates, in their first order (by parent, elder siblings first)."""
        if len(candidates) <= room:
            return candidates
        order = sorted(range(len(candidates)), key=lambda i: (-candidates[i][0], i))
        return [candidates[i] for i in sorted(order[:room])]
