"""One target session as its draft sees it: committed tokens, cache, and the tree that is being grown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specgrove.core.prefix import PrefixHash
from specgrove.core.speculate import Committed, DraftPlan, DraftTree, Opened
from specgrove.core.tree import ROOT
from specgrove.draft.reroot import surviving_rows
from specgrove.drafters import start
from specgrove.drafters.growth import Growth
from specgrove.engine.batch import Segment
from specgrove.engine.kv_pool import KVPool, KVSequence
from specgrove.sampling.noise import NoiseKey

FEW_ROWS = 16
"""Committed tokens that a pass may catch up on and still cost what a level costs."""
SessionKey = tuple[str, bytes]
"""Target replica and session id."""


@dataclass(slots=True)
class DraftSession:
    """State of one session. `sequence` holds KV of committed tokens, and of `expanded` nodes as reserved rows."""

    key: SessionKey
    epoch: int
    seq: int
    plan: DraftPlan
    sequence: KVSequence
    tokens: list[int]
    prefix: PrefixHash
    owes: bool
    owed_since: float
    growth: Growth | None = None
    base: int = 0
    """Committed length that the growth extends."""
    base_hash: int = 0
    expanded: list[int] = field(default_factory=list)
    """Nodes whose KV lies in the reserved rows, in row order."""
    ahead: bool = False
    """The tree was sent; the growth goes on below its leaves for the next one."""
    grown_under: int = 0
    """Version of the plan that the growth began under."""
    started: float = 0.0
    draft_s: float = 0.0
    levels: int | None = 0
    """Passes of draft_s; None: a prompt was computed in them too."""

    @classmethod
    def open(cls, target: str, message: Opened, pool: KVPool, now: float) -> DraftSession:
        """A session from its Opened message; cached prefix rows are found again."""
        return cls(
            key=(target, message.session),
            epoch=message.epoch,
            seq=message.seq,
            plan=message.plan,
            sequence=pool.open(message.tokens),
            tokens=list(message.tokens),
            prefix=PrefixHash(message.tokens),
            owes=message.wants_tree,
            owed_since=now,
        )

    @property
    def end(self) -> int:
        """Positions that the session needs once its next tree is grown."""
        return len(self.tokens) + self.plan.max_depth

    @property
    def behind(self) -> int:
        """Committed tokens without KV."""
        return len(self.tokens) - self.sequence.length

    def commit(self, message: Committed, now: float) -> bool:
        """Follow a commit; false when length or hash show that we lost track.

        A growth that the commit follows goes on, so that a slow draft still delivers (the target re-roots the tree);
        one that it leaves is dropped.
        """
        if message.length != len(self.tokens) + len(message.tokens):
            return False
        self.tokens.extend(message.tokens)
        self.prefix.extend(message.tokens)
        self.owes, self.owed_since = True, now
        if self.growth is not None and not self._follows(now):
            self.settle()
        return self.prefix.value == message.prefix_hash

    def _follows(self, now: float) -> bool:
        """Whether the growth is still of use after a commit; one that was grown ahead gets its new root."""
        if self.ahead:
            return self._reroot(now)
        return self.growing and self._on_path()

    def _reroot(self, now: float) -> bool:
        """Go on from what was grown ahead below the last committed token; false when there is nothing there.

        Rows of the committed path become committed rows, those of what is kept stay reserved.
        """
        growth = self.growth
        assert growth is not None
        new = self.tokens[self.base :]
        path = growth.tree().follow(new)
        row_of = {node: row for row, node in enumerate(self.expanded)}
        if len(path) < len(new) or path[-1] not in row_of or path[-1] not in growth.parents:
            return False
        growth.plan, self.grown_under = self.plan, self.plan.version
        renamed = growth.reroot(path[-1])
        keep = [row for row, node in enumerate(self.expanded) if node in renamed]
        self.sequence.commit([row_of[node] for node in path], new, keep=keep)
        self.expanded = [renamed[node] for node in self.expanded if node in renamed]
        self.base, self.base_hash, self.ahead = len(self.tokens), self.prefix.value, False
        self.started, self.draft_s, self.levels = now, 0.0, 0
        return True

    @property
    def complete(self) -> bool:
        """The next tree needs no further pass."""
        return self.owes and self.growth is not None and not self.ahead and not self.growth.frontier

    @property
    def has_work(self) -> bool:
        """A tree is owed, the cache is behind, or the tree that was sent can be grown on."""
        return self.owes or self.behind > 1 or (self.ahead and self.growing)

    @property
    def growing(self) -> bool:
        """A tree is on its way."""
        return self.growth is not None and bool(self.growth.frontier)

    def _on_path(self) -> bool:
        assert self.growth is not None
        return self.growth.tree().reroot(self.tokens[self.base :]) is not None

    def settle(self) -> None:
        """End the growth; keep the cache rows of drafted nodes that were committed since.

        The last committed token stays without a row: running it gives the next root's logits.
        """
        if self.growth is None:
            return
        if self.sequence.reserved:
            rows, tokens = surviving_rows(self.growth.tree(), self.expanded, self.tokens[self.base : -1])
            self.sequence.commit(rows, tokens)
        self.growth, self.expanded, self.ahead = None, [], False

    def begin(self, now: float) -> None:
        """Start the next tree from all committed tokens; the growth before it is settled."""
        self.growth, self.grown_under = start(self.plan), self.plan.version
        self.base, self.base_hash = len(self.tokens), self.prefix.value
        self.started, self.draft_s, self.levels = now, 0.0, 0

    def ran(self, seconds: float, *, caught_up: int) -> None:
        """A pass with rows of this session took so long; some of them caught up on committed tokens."""
        self.draft_s += seconds
        self.levels = None if self.levels is None or caught_up > FEW_ROWS else self.levels + 1

    def catch_up(self, limit: int) -> Segment:
        """Rows for committed tokens without KV, at most `limit`; the last one gives the root's logits."""
        first = self.sequence.length
        tokens = self.tokens[first : first + limit]
        positions = range(first, first + len(tokens))
        self.sequence.reserve(positions)
        reaches_root = first + len(tokens) == len(self.tokens)
        return Segment(self.sequence, tokens, positions, None, [len(tokens) - 1] if reaches_root and self.owes else [])

    def caught_up(self, count: int) -> None:
        """Commit the rows of the last `catch_up`."""
        first = self.sequence.length
        self.sequence.commit(range(count), self.tokens[first : first + count])

    def expand(self) -> Segment:
        """Rows for the frontier nodes, each seeing its own ancestors among the reserved rows."""
        growth = self.growth
        assert growth is not None
        frontier = growth.frontier
        positions = [self.base - 1 + growth.depths[node] for node in frontier]
        self.sequence.reserve(positions)
        self.expanded.extend(frontier)
        tokens = [growth.tokens[node] for node in frontier]
        return Segment(self.sequence, tokens, positions, self._mask(growth, frontier), range(len(frontier)))

    def _mask(self, growth: Growth, frontier: Sequence[int]) -> NDArray[np.bool_]:
        row_of = {node: row for row, node in enumerate(self.expanded)}
        mask = np.zeros((len(frontier), len(self.expanded)), dtype=np.bool_)
        for i, node in enumerate(frontier):
            while node != ROOT:
                mask[i, row_of[node]] = True
                node = growth.parents[node]
        return mask

    def noise(self, count: int) -> tuple[list[NoiseKey], list[int]]:
        """Noise key and absolute position of the children of each frontier node (`count` of them)."""
        growth = self.growth
        assert growth is not None
        positions = [self.base + (growth.depths[node] if node != ROOT else 0) for node in growth.frontier]
        return [NoiseKey(self.plan.seed, self.plan.choice)] * count, positions

    def finished_tree(self, now: float) -> DraftTree:
        """The message that answers the last commit."""
        growth = self.growth
        assert growth is not None
        self.owes = len(self.tokens) > self.base
        tree = growth.tree().trim(max_nodes=growth.plan.max_nodes, max_depth=growth.plan.max_depth)
        # What is ahead already counts: a draft that outruns its target must not grow for ever.
        levels = min(self.plan.ahead, self.plan.max_depth + self.plan.ahead - max(growth.depths, default=0))
        if levels > 0 and not self.owes:
            growth.deepen(levels)
            self.ahead = True
        return DraftTree(
            session=self.key[1],
            epoch=self.epoch,
            base_length=self.base,
            prefix_hash=self.base_hash,
            plan_version=self.grown_under,
            tree=tree,
            draft_s=self.draft_s,
            levels=self.levels or 0,
            queued_s=max(0.0, self.started - self.owed_since),
        )
