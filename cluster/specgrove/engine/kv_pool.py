"""The KV pool: token slots shared by sequences, found again by prefix, compacted in place on commit.

Three rules keep rows from being rewritten under a reader: only free slots are handed out, only reserved rows (which
belong to one sequence alone) are written or moved, and a block enters the prefix index when it is committed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specgrove.engine.kv_slots import Slots, SlotTable
from specgrove.engine.kv_store import KVStore
from specgrove.errors import CapacityError, SpecgroveError

BLOCK = 16
"""Tokens in the unit in which prefixes are hashed and found again."""
GROWTH = 64
"""Slots of room to grow that a sequence which needs a new run may claim from the oldest cached blocks."""
_ROOT = b""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Slot counts; free + referenced + cached == total."""

    total: int
    free: int
    referenced: int
    """Held by live sequences."""
    cached: int
    """Held by no sequence, but found by a prompt with the same prefix until evicted."""


@dataclass(slots=True, eq=False)
class Block:
    """BLOCK committed tokens in the prefix index. `users` counts the live sequences that hold exactly these slots."""

    key: bytes
    slots: Slots
    users: int = 1


def block_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """128-bit hash of a block, chained from its parent's, so that equal keys mean equal prefixes."""
    return hashlib.blake2b(parent + np.asarray(tokens, dtype="<i4").tobytes(), digest_size=16).digest()


class KVPool:
    """Opens sequences over one KVStore. Not thread-safe: one device thread owns it."""

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self.table = SlotTable(store.slots)
        self._blocks: dict[bytes, Block] = {}
        self._idle: OrderedDict[bytes, Block] = OrderedDict()  # blocks without users, least recently used first
        self._live: set[KVSequence] = set()

    def open(self, tokens: Sequence[int]) -> KVSequence:
        """A sequence that holds the longest known prefix of `tokens`, at most len(tokens) - 1 of them.

        Takes no new slots.
        """
        sequence = KVSequence(self)
        key = _ROOT
        for start in range(0, len(tokens) - BLOCK, BLOCK):
            piece = tokens[start : start + BLOCK]
            key = block_key(key, piece)
            block = self._blocks.get(key)
            if block is None:
                break
            self.hold(block)
            sequence.adopt(block, piece)
        self._live.add(sequence)
        return sequence

    def stats(self) -> PoolStats:
        """Slot counts now."""
        table = self.table
        return PoolStats(total=table.total, free=table.free, referenced=table.referenced, cached=table.cached)

    def clear(self) -> None:
        """Forget every block that no live sequence uses."""
        while self._idle:
            self._evict()

    def take(self, n: int, after: int | None) -> Slots:
        """n fresh slots, evicting cached blocks if needed. Takes nothing when not enough can be freed.

        Raises CapacityError (retryable).
        """
        table = self.table
        if n > table.free + table.cached:
            raise CapacityError(
                f"{n} KV slots wanted, but {table.referenced} of {table.total} are held by live sessions; try later"
            )
        while n > table.free:
            self._evict()
        in_place = after is not None and table.fits_after(after, n)
        if not in_place:
            growth = min(GROWTH, table.total // 16)
            if self._idle and table.largest_hole() < n + growth:
                for _ in range(min(growth // BLOCK, len(self._idle))):
                    self._evict()  # neighbours in age are mostly neighbours in place
        return table.take(n, after)

    def _evict(self) -> None:
        key, block = self._idle.popitem(last=False)
        del self._blocks[key]
        self.table.unpin(block.slots)

    def register(self, key: bytes, slots: Slots) -> Block | None:
        """Make a committed block findable; None when another sequence's copy is known already."""
        if key in self._blocks:
            return None
        block = self._blocks[key] = Block(key, slots.copy())
        self.table.pin(slots)
        return block

    def hold(self, block: Block) -> None:
        """One more live sequence uses this block."""
        if block.users == 0:
            del self._idle[block.key]
        block.users += 1
        self.table.share(block.slots)

    def let_go(self, block: Block) -> None:
        """One live sequence less uses this block; the last one makes it the youngest to evict."""
        block.users -= 1
        if block.users == 0:
            self._idle[block.key] = block

    def fork(self, sequence: KVSequence) -> KVSequence:
        """See KVSequence.fork."""
        twin = sequence.copy_committed()
        self.table.share(twin.slots)
        for block in twin.blocks:
            if block is not None:
                block.users += 1
        self._live.add(twin)
        return twin

    def forget(self, sequence: KVSequence) -> None:
        """The sequence is released."""
        self._live.discard(sequence)

    @property
    def live(self) -> int:
        """Sequences that are not released."""
        return len(self._live)

    def check(self) -> None:
        """AssertionError when the books do not balance."""
        table = self.table
        table.check()
        refs, pins = np.zeros_like(table.refs), np.zeros_like(table.pins)
        users: dict[bytes, int] = {}
        for sequence in self._live:
            assert len(np.unique(sequence.slots)) == len(sequence.slots), "a sequence holds a slot twice"
            np.add.at(refs, sequence.slots, 1)
            for i, block in enumerate(sequence.blocks):
                if block is not None:
                    users[block.key] = users.get(block.key, 0) + 1
                    held = sequence.slots[i * BLOCK : (i + 1) * BLOCK]
                    assert np.array_equal(block.slots, held), "a block's slots are not its sequence's"
            fresh = sequence.slots[sequence.length :]
            assert (table.refs[fresh] == 1).all(), "a reserved row is shared"
            assert (table.pins[fresh] == 0).all(), "a reserved row can be found"
        for key, block in self._blocks.items():
            np.add.at(pins, block.slots, 1)
            assert block.users == users.get(key, 0), f"a block counts {block.users} users, {users.get(key, 0)} hold it"
            assert (key in self._idle) == (block.users == 0), "a block's place among the idle ones is wrong"
        assert np.array_equal(refs, table.refs), "slot references do not match the live sequences"
        assert np.array_equal(pins, table.pins), "slot pins do not match the prefix index"
        stats = self.stats()
        assert stats.free + stats.referenced + stats.cached == stats.total, "slot counts do not add up"


class KVSequence:
    """Rows of one session: `length` committed ones, then `reserved` ones. Row i of the committed ones is position i."""

    __slots__ = ("_keys", "_linear", "_pool", "_released", "_slots", "_tokens", "blocks", "length", "positions")

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool
        self._slots: Slots = np.zeros(4 * BLOCK, dtype=np.int64)
        self._tokens: list[int] = []
        self._keys: list[bytes] = []
        self._linear = 0
        self._released = False
        self.blocks: list[Block | None] = []
        """Per full committed block: its entry in the prefix index, or None when another copy holds the key."""
        self.length = 0
        """Committed rows."""
        self.positions: list[int] = []
        """Absolute position of each reserved row."""

    @property
    def tokens(self) -> Sequence[int]:
        """Committed tokens; a live view, not to be changed."""
        return self._tokens

    @property
    def reserved(self) -> int:
        """Rows reserved and not yet committed."""
        return len(self.positions)

    @property
    def rows(self) -> int:
        """Committed and reserved rows."""
        return self.length + len(self.positions)

    @property
    def slots(self) -> Slots:
        """[rows] slot of each row, committed first; a view that the next change invalidates."""
        return self._slots[: self.rows]

    @property
    def linear(self) -> int:
        """From this row on, all slots lie in one run."""
        return self._linear

    def reserve(self, positions: Sequence[int]) -> None:
        """Add len(positions) rows. Raises CapacityError (retryable) and takes nothing when there is no room."""
        self._alive()
        n = len(positions)
        if not n:
            return
        rows = self.rows
        last = int(self._slots[rows - 1]) if rows else None
        slots = self._pool.take(n, last)
        first = int(slots[0])
        in_one_run = int(slots[-1]) - first == n - 1 and (last is None or first == last + 1)
        self._append(slots, in_one_run=in_one_run)
        self.positions.extend(positions)

    def commit(self, rows: Sequence[int], tokens: Sequence[int], *, keep: Sequence[int] = ()) -> None:
        """Commit these reserved rows (increasing indices 0..reserved-1), compact them in place, release the others.

        `tokens` are the token ids of the committed rows. `keep`: other rows, increasing, that stay reserved and follow
        the committed ones in this order. Every full block becomes findable at once.
        """
        self._alive()
        if len(rows) != len(tokens):
            raise SpecgroveError(f"commit needs one token per row, got {len(rows)} rows and {len(tokens)} tokens")
        for name, chosen in (("commit", rows), ("keep", keep)):
            if any(a >= b for a, b in pairwise(chosen)) or (
                chosen and not 0 <= chosen[0] <= chosen[-1] < self.reserved
            ):
                raise SpecgroveError(f"rows to {name} must increase within 0..{self.reserved - 1}, got {list(chosen)}")
        if not set(rows).isdisjoint(keep):
            raise SpecgroveError(f"rows {sorted(set(rows) & set(keep))} cannot be both committed and kept reserved")
        base, end = self.length, self.rows
        moved = [(row, i) for i, row in enumerate((*rows, *keep)) if row != i]
        if moved:
            fresh = self._slots[base:end]
            self._pool.store.move([int(fresh[a]) for a, _ in moved], [int(fresh[b]) for _, b in moved])
        kept = base + len(rows) + len(keep)
        if kept < end:
            self._pool.table.drop(self._slots[kept:end])
        self.positions = [self.positions[row] for row in keep]
        self.length = base + len(rows)
        self._tokens.extend(tokens)
        self._find_run()
        if self.length // BLOCK > len(self.blocks):
            self._register(len(self.blocks))

    def rollback(self) -> None:
        """Release every reserved row."""
        if self.positions:
            self._pool.table.drop(self._slots[self.length : self.rows])
            self.positions.clear()
            self._find_run()

    def truncate(self, length: int) -> None:
        """Keep the first `length` committed rows; later ones and all reserved rows are released."""
        self._alive()
        if not 0 <= length <= self.length:
            raise SpecgroveError(f"cannot truncate a sequence of {self.length} rows to {length}")
        self.rollback()
        full = length // BLOCK
        dropped = self._slots[length : self.length].copy()
        self.length = length
        for block in reversed(self.blocks[full:]):
            if block is not None:
                self._pool.let_go(block)
        self._pool.table.drop(dropped)
        del self.blocks[full:], self._keys[full:], self._tokens[length:]
        self._find_run()

    def fork(self) -> KVSequence:
        """A sequence that shares every committed row, without a copy; reserved rows stay with this one."""
        self._alive()
        return self._pool.fork(self)

    def release(self) -> None:
        """Give everything back; full blocks stay findable until evicted. Idempotent."""
        if self._released:
            return
        self.rollback()
        self._register(0)  # a block whose twin was evicted meanwhile can take its place
        self.truncate(0)
        self._pool.forget(self)
        self._released = True

    def adopt(self, block: Block, tokens: Sequence[int]) -> None:
        """Append a block that KVPool.hold has counted for this sequence."""
        self._append(block.slots, in_one_run=False)
        self._tokens.extend(tokens)
        self._keys.append(block.key)
        self.blocks.append(block)
        self.length += BLOCK

    def copy_committed(self) -> KVSequence:
        """The same committed rows under a new name; the pool counts them."""
        twin = KVSequence(self._pool)
        twin._slots = self._slots.copy()
        twin._tokens, twin._keys, twin.blocks = self._tokens.copy(), self._keys.copy(), self.blocks.copy()
        twin.length, twin._linear = self.length, self._linear
        twin._find_run()
        return twin

    def _append(self, slots: Slots, *, in_one_run: bool) -> None:
        """Add rows; `in_one_run` when they are known to go on where the last row ends."""
        rows = self.rows
        if rows + len(slots) > len(self._slots):
            self._slots = np.concatenate([self._slots, np.zeros(rows + len(slots), dtype=np.int64)])
        self._slots[rows : rows + len(slots)] = slots
        if in_one_run:
            return
        broken = np.flatnonzero(np.diff(self._slots[max(rows - 1, 0) : rows + len(slots)]) != 1)
        if len(broken):
            self._linear = max(rows - 1, 0) + int(broken[-1]) + 1

    def _find_run(self) -> None:
        """Rows went away at the end: if the last run went with them, find the one before it."""
        if self._linear >= self.rows:
            broken = np.flatnonzero(np.diff(self.slots) != 1)
            self._linear = int(broken[-1]) + 1 if len(broken) else 0

    def _register(self, first: int) -> None:
        """Put full blocks from number `first` on into the prefix index, unless another copy holds their key."""
        for i in range(first, self.length // BLOCK):
            if i < len(self.blocks) and self.blocks[i] is not None:
                continue
            span = slice(i * BLOCK, (i + 1) * BLOCK)
            if i == len(self._keys):
                self._keys.append(block_key(self._keys[-1] if i else _ROOT, self._tokens[span]))
                self.blocks.append(None)
            self.blocks[i] = self._pool.register(self._keys[i], self._slots[span])

    def _alive(self) -> None:
        if self._released:
            raise SpecgroveError("this KV sequence was released")
