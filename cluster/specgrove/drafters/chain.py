"""Chain drafting: one path, each token the draft's best (noised) guess."""

from __future__ import annotations

from dataclasses import replace

from specgrove.core.speculate import DraftPlan
from specgrove.drafters.tree import TreeGrowth


class ChainGrowth(TreeGrowth):
    """A tree with one child per node; the plan's depth is the number of speculative tokens."""

    def __init__(self, plan: DraftPlan) -> None:
        super().__init__(replace(plan, branching=(1,) * plan.max_depth))
