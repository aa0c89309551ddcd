"""What a rule says about a tree, and where a rule that needs luck gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one round."""

    accepted: tuple[int, ...]
    """Nodes of the accepted path, first level first."""
    emitted: tuple[int, ...]
    """Their tokens and then one correction or bonus token."""


class Chance(Protocol):
    """The random decisions of one walk. `depth` is the number of tokens that the walk accepted before this one.

    Every decision is fresh: none may depend on an earlier one or on the draft's own noise (papers/algorithms.md B8).
    """

    def accept(self, depth: int, token: int, ratio: float) -> bool:
        """True with probability min(1, ratio): u < ratio, strictly, for a uniform u of this depth and token."""

    def draw(self, depth: int, law: Tensor) -> int:
        """A token of `law` ([vocab], non-negative, any positive sum)."""
