"""The pool's promises one by one."""

from __future__ import annotations

import pytest
import torch

from specgrove.engine.kv_pool import BLOCK, KVPool
from specgrove.engine.kv_store import KVStore, LayerShape
from specgrove.errors import CapacityError, SpecgroveError

CPU = torch.device("cpu")


def pool(slots: int = 128) -> KVPool:
    """Two layers of unlike shape."""
    return KVPool(KVStore([LayerShape(2, 4, 4), LayerShape(1, 6, 3)], slots, torch.float32, CPU))


def grow(sequence, tokens):
    """Reserve and commit rows for tokens."""
    sequence.reserve(range(sequence.length, sequence.length + len(tokens)))
    sequence.commit(range(len(tokens)), tokens)


def counts(p):
    """(free, referenced, cached)."""
    stats = p.stats()
    return stats.free, stats.referenced, stats.cached


def test_a_growing_session_stays_in_one_run():
    """Two sessions that grow in turn do not cut each other's slots into pieces."""
    p = pool()
    a, b = p.open([]), p.open([])
    for _ in range(15):
        for sequence in (a, b):
            grow(sequence, [1, 2])

    assert (a.linear, b.linear) == (0, 0)
    p.check()


def test_commit_moves_the_kept_rows_to_the_front():
    """Rows 0, 2 and 3 of five: their keys and values follow them, in every layer."""
    p = pool()
    s = p.open([])
    grow(s, [9] * 3)
    s.reserve([3, 4, 4, 5, 5])
    for planes in (p.store.keys, p.store.values):
        for plane in planes:
            plane[torch.from_numpy(s.slots[3:])] = torch.arange(5.0)[:, None, None].expand(5, *plane.shape[1:])
    s.commit([0, 2, 3], [4, 5, 6])

    for planes in (p.store.keys, p.store.values):
        for plane in planes:
            assert plane[torch.from_numpy(s.slots[3:].copy())][:, 0, 0].tolist() == [0.0, 2.0, 3.0]
    assert (list(s.tokens), s.length, s.reserved) == ([9, 9, 9, 4, 5, 6], 6, 0)
    assert counts(p) == (122, 6, 0)


def test_commit_can_keep_other_rows_reserved():
    """Of six rows 1 and 4 are committed and 0, 2, 5 stay reserved behind them, with their values and positions."""
    p = pool()
    s = p.open([])
    grow(s, [9] * 3)
    s.reserve([3, 3, 4, 4, 4, 5])
    for planes in (p.store.keys, p.store.values):
        for plane in planes:
            plane[torch.from_numpy(s.slots[3:])] = torch.arange(6.0)[:, None, None].expand(6, *plane.shape[1:])
    s.commit([1, 4], [4, 5], keep=[0, 2, 5])

    for planes in (p.store.keys, p.store.values):
        for plane in planes:
            assert plane[torch.from_numpy(s.slots[3:].copy())][:, 0, 0].tolist() == [1.0, 4.0, 0.0, 2.0, 5.0]
    assert (list(s.tokens), s.length, s.positions) == ([9, 9, 9, 4, 5], 5, [3, 4, 5])
    assert counts(p) == (120, 8, 0)
    p.check()
    s.commit([2], [6])
    assert plane[torch.from_numpy(s.slots[3:].copy())][:, 0, 0].tolist() == [1.0, 4.0, 5.0]
    s.release()
    p.check()


@pytest.mark.parametrize(("rows", "keep"), [([0], [0, 1]), ([0], [2, 1]), ([0], [3]), ([1], [-1])])
def test_rows_that_cannot_be_kept_are_refused(rows, keep):
    """Committed and kept at once, out of order, or not there."""
    s = pool().open([])
    s.reserve([0, 1, 2])
    with pytest.raises(SpecgroveError, match="rows"):
        s.commit(rows, [5], keep=keep)


def test_prefix_of_a_live_session_is_found():
    """Full blocks are shared as soon as they are committed; the last token is always computed again."""
    p = pool()
    tokens = list(range(40))
    a = p.open(tokens)
    grow(a, tokens)

    assert p.open(tokens).length == 32
    assert p.open(tokens[:33]).length == 32
    assert p.open(tokens[:32]).length == 16
    assert p.open([7, *tokens]).length == 0
    assert p.stats().free == 88
    p.check()


def test_released_blocks_are_found_until_evicted():
    """A released session leaves its full blocks; a big reservation evicts them, oldest first."""
    p = pool(64)
    old, young = list(range(16)), list(range(50, 66))
    for tokens in (old, young):
        s = p.open(tokens)
        grow(s, [*tokens, 1])
        s.release()
    assert counts(p) == (32, 0, 32)

    big = p.open([])
    big.reserve(range(48))

    assert p.open([*old, 1]).length == 0
    assert p.open([*young, 1]).length == 16
    p.check()


def test_deeper_blocks_go_first():
    """Evicting one block of a released session leaves the head of its prefix usable."""
    p = pool(64)
    tokens = list(range(48))
    s = p.open(tokens)
    grow(s, tokens)
    s.release()
    p.open([]).reserve(range(20))

    assert 32 <= p.open([*tokens, 1]).length + 16 < 64


def test_fork_shares_and_both_go_on():
    """A fork takes no slot; each side's next rows are its own."""
    p = pool()
    a = p.open([])
    grow(a, list(range(20)))
    b = a.fork()
    assert counts(p) == (108, 20, 0)
    grow(a, [1] * 12)
    grow(b, [2] * 12)

    assert a.slots[:20].tolist() == b.slots[:20].tolist()
    assert not set(a.slots[20:]) & set(b.slots[20:])
    a.release()
    p.check()
    b.release()
    p.check()
    assert p.stats().referenced == 0


def test_same_blocks_of_two_sessions():
    """Two sessions that compute equal blocks keep one of them findable, also when its owner's copy is evicted."""
    p = pool(96)
    tokens = list(range(16))
    a, b = p.open(tokens), p.open(tokens)
    grow(a, tokens)
    grow(b, tokens)
    a.release()
    p.clear()
    assert p.open([*tokens, 1]).length == 0

    b.release()

    assert p.open([*tokens, 1]).length == 16
    p.check()


def test_no_room_takes_nothing():
    """CapacityError is retryable and leaves the books as they were."""
    p = pool(32)
    a, b = p.open([]), p.open([])
    a.reserve(range(30))
    with pytest.raises(CapacityError, match="3 KV slots wanted") as caught:
        b.reserve(range(3))

    assert caught.value.retryable
    assert counts(p) == (2, 30, 0)
    assert b.reserved == 0
    a.rollback()
    b.reserve(range(3))
    p.check()


def test_scattered_slots_are_used_when_no_run_is_left():
    """The last free slots serve, wherever they are."""
    p = pool(32)
    sequences = [p.open([]) for _ in range(8)]
    for s in sequences:
        s.reserve(range(4))
    for s in sequences[::2]:
        s.rollback()
    late = p.open([])
    late.reserve(range(16))

    assert late.linear > 0
    assert counts(p) == (0, 32, 0)
    p.check()


def test_truncate_into_a_known_block_never_rewrites_it():
    """Rows cut off stay findable; the sequence goes on in other slots."""
    p = pool()
    tokens = list(range(32))
    a = p.open(tokens)
    grow(a, tokens)
    before = a.slots.tolist()
    a.truncate(20)
    grow(a, [77] * 12)

    assert before[:20] == a.slots[:20].tolist()
    assert not set(before[20:]) & set(a.slots[20:].tolist())
    assert p.open([*tokens, 1]).length == 32
    p.check()


def test_release_is_final_and_idempotent():
    """After release only release is allowed."""
    p = pool()
    s = p.open([])
    s.reserve([0])
    s.release()
    s.release()
    with pytest.raises(SpecgroveError, match="released"):
        s.reserve([0])
    assert counts(p) == (128, 0, 0)


@pytest.mark.parametrize(("rows", "tokens"), [([1, 1], [5, 5]), ([2, 1], [5, 5]), ([0, 3], [5, 5]), ([0], [5, 5])])
def test_a_commit_that_makes_no_sense_is_refused(rows, tokens):
    """Rows must increase, exist and have one token each; nothing changes."""
    p = pool()
    s = p.open([])
    s.reserve([0, 1, 1])
    with pytest.raises(SpecgroveError):
        s.commit(rows, tokens)
    assert (s.length, s.reserved) == (0, 3)


def test_rows_are_whole_blocks_of_equal_tokens():
    """The key of a block depends on all tokens before it."""
    p = pool()
    tokens = [3] * (2 * BLOCK)
    a = p.open(tokens)
    grow(a, tokens)
    assert a.blocks[0].key != a.blocks[1].key
