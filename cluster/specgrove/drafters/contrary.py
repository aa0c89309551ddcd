"""A draft that is wrong on purpose: for measuring what a bad draft costs."""

from __future__ import annotations

from collections.abc import Sequence

from specgrove.drafters.growth import Children
from specgrove.drafters.tree import TreeGrowth

LEFT_OUT = 2
"""Best guesses that are left out at every node."""


class ContraryGrowth(TreeGrowth):
    """Trees of the usual shape and cost, without the best guesses of any node; so hardly anything is accepted."""

    @property
    def width(self) -> int:
        """More children are looked at than are used."""
        return super().width + LEFT_OUT

    def extend(self, children: Sequence[Children]) -> None:
        """Add one level of worse guesses."""
        super().extend([Children(kids.tokens[LEFT_OUT:], kids.scores[LEFT_OUT:]) for kids in children])
