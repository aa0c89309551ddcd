"""How large a tree pays on this machine: expected tokens over the time of a round (papers/algorithms.md, 1b.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specgrove.errors import ConfigError
from specgrove.planning.tree_shape import Acceptance, Shape, ShapeTable


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """A tree and what a round with it takes. Times in the unit of the latencies."""

    shape: Shape
    round_time: float
    plain_time: float
    """Of a round without a tree, which commits one token."""

    @property
    def time_per_token(self) -> float:
        """Expected time per committed token."""
        return self.round_time / self.shape.expected_tokens

    @property
    def gain(self) -> float:
        """How many times as fast as plain decoding."""
        return self.plain_time / self.time_per_token


def best_size(
    acceptance: Acceptance,
    latency: Mapping[int, float],
    *,
    draft_cost: float,
    network: float = 0.0,
    levels: int | None = None,
) -> SizeChoice:
    """The size n and number of levels d with the largest G(n, d) / (t(n) + d * draft_cost + network).

    latency: time of a target pass over n tree nodes, root included, for every n that may be chosen; 1 must be among
    them: it is plain decoding, which costs neither drafting nor network.  draft_cost: one draft pass; a tree takes one
    for each level, since the draft also runs the leaves, or the tokens that it missed.  Raises ConfigError.
    """
    if 1 not in latency:
        raise ConfigError("latencies need an entry for 1 token, which is plain decoding", param="latency")
    if wrong := [n for n, time in latency.items() if n < 1 or not time > 0]:
        raise ConfigError(f"latency of {wrong[0]} nodes is no positive time of at least one node", param="latency")
    if draft_cost < 0 or network < 0:
        raise ConfigError("draft cost and network time are at least 0", param="draft_cost")
    best = SizeChoice(Shape(1.0), latency[1], latency[1])
    for shape, size in _shapes(acceptance, sorted(latency), levels):
        made = SizeChoice(shape, latency[size] + shape.levels * draft_cost + network, latency[1])
        if made.time_per_token < best.time_per_token:
            best = made
    return best


def _shapes(acceptance: Acceptance, sizes: Sequence[int], levels: int | None) -> Iterator[tuple[Shape, int]]:
    """The best tree of each size and number of levels, and the size that it was asked for."""
    table = ShapeTable(acceptance, sizes[-1], levels)
    for depth in range(2, table.levels + 1):
        of_depth = table if depth == table.levels or not table.by_level else ShapeTable(acceptance, sizes[-1], depth)
        for size in sizes:
            yield of_depth.shape(size, depth), size
