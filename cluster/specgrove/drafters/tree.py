"""Tree drafting: a fixed number of children per node at each depth, cut to the best nodes of each level."""

from __future__ import annotations

from collections.abc import Sequence

from specgrove.core.speculate import DraftPlan
from specgrove.core.tree import ROOT, TokenTree
from specgrove.drafters.growth import Children


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

    @property
    def width(self) -> int:
        """Children per frontier node at this level."""
        return self.plan.branching[self._level]

    def extend(self, children: Sequence[Children]) -> None:
        """Add one level: the best candidates of all frontier nodes."""
        candidates = [
            (self._path_score(parent, kids, rank), parent, kids.tokens[rank])
            for parent, kids in zip(self.frontier, children, strict=True)
            for rank in range(min(self.plan.branching[self._level], len(kids.tokens)))
        ]
        levels_below = len(self.plan.branching) - self._level - 1
        room = self.plan.max_nodes - len(self.tokens)
        kept = self._best(candidates, max(min(1, room), room - levels_below))
        first = len(self.tokens)
        self._level += 1
        for score, parent, token in kept:
            self.tokens.append(token)
            self.parents.append(parent)
            self.depths.append(self._level)
            self._score.append(score)
        self.frontier = (
            list(range(first, len(self.tokens))) if levels_below and len(self.tokens) < self.plan.max_nodes else []
        )

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
