"""Growth: one tree on its way, as a state machine. The propose loop runs the model; a growth decides what to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specgrove.core.speculate import DraftPlan
from specgrove.core.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Children:
    """The best continuations of one node, best first: token ids and their noised scores, up to a constant."""

    tokens: Sequence[int]
    scores: Sequence[float]


class Growth(Protocol):
    """Grow a tree level by level: run the frontier through the draft, give back its children, until done."""

    plan: DraftPlan
    tokens: list[int]
    parents: list[int]
    depths: list[int]
    """Depth of each node; 1 for children of the root."""
    frontier: list[int]
    """Nodes whose children are asked for next, in node order; [-1] is the root. Empty when the tree is done."""

    @property
    def width(self) -> int:
        """How many children of each frontier node are needed."""

    def extend(self, children: Sequence[Children]) -> None:
        """Take the children of every frontier node, in the frontier's order. Changes all four lists."""

    def tree(self) -> TokenTree:
        """The tree as grown so far."""

    def deepen(self, levels: int) -> None:
        """Go on below the best leaves of a finished tree, for at most so many levels: sets the frontier."""

    def reroot(self, node: int) -> dict[int, int]:
        """Keep what is below `node`, which becomes the root, and go on to the plan's depth.

        Returns the new number of each node that is kept. Changes all four lists.
        """
