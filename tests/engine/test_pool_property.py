"""Any interleaving of what sessions do to the pool keeps its books balanced and the logits right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.engine import zoo

from specgrove.engine.kv_pool import KVPool, KVSequence
from specgrove.engine.kv_slots import SlotTable
from specgrove.engine.kv_store import KVStore
from specgrove.errors import CapacityError

SLOTS = 80
LONGEST = 48


class PoolMachine(RuleBasedStateMachine):
    """Sessions over a pool that is far too small for them."""

    model = "llama"

    def __init__(self) -> None:
        super().__init__()
        self.network = zoo.model(self.model)
        self.engine = zoo.passes(self.network, slots=SLOTS)
        self.live: list[KVSequence] = []
        self.texts: list[list[int]] = []

    @initialize()
    def start(self) -> None:
        """An empty pool."""

    def pick(self, index: int) -> tuple[KVSequence, list[int]]:
        """One live sequence and what it should hold."""
        return self.live[index % len(self.live)], self.texts[index % len(self.live)]

    def judge(self, logits, paths) -> None:
        """The logits equal those of uncached passes over the same tokens."""
        expected = zoo.plain_last(self.network, paths)
        assert float((logits - expected).abs().max() / expected.std()) < 5e-5, "wrong logits"

    @precondition(lambda self: len(self.live) < 6)
    @rule(family=st.integers(0, 2), cut=st.integers(1, LONGEST - 8), own=st.integers(0, 3), size=st.integers(1, 20))
    def open(self, family: int, cut: int, own: int, size: int) -> None:
        """A prompt that shares its head with others of its family; prefilled in chunks."""
        head = np.random.default_rng(family).integers(3, zoo.VOCAB, size=cut).tolist()
        tokens = [*head, *range(3 + own, 3 + 2 * own)]
        sequence = self.engine.pool.open(tokens)
        assert sequence.length <= len(tokens) - 1 or not sequence.length
        self.live.append(sequence)
        self.texts.append(tokens[: sequence.length])
        try:
            logits = self.engine.prefill(sequence, tokens[sequence.length :], chunk=size)
        except CapacityError:
            self.texts[-1][:] = tokens[: sequence.length]
            sequence.rollback()
            return
        self.texts[-1][:] = tokens
        self.judge(logits, [tokens])

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 5), seed=st.integers(0, 99), size=st.integers(0, 7), keep=st.integers(0, 8))
    def tree(self, index: int, seed: int, size: int, keep: int) -> None:
        """A pending token and a tree; all rows judged, one path committed (or nothing)."""
        sequence, text = self.pick(index)
        rng = np.random.default_rng(seed)
        tree, pending = zoo.random_tree(rng, size), int(rng.integers(3, zoo.VOCAB))
        if len(text) > LONGEST:
            return
        try:
            segment = zoo.tree_segment(sequence, pending, tree)
        except CapacityError:
            assert not sequence.reserved
            return
        logits = self.engine.forward([segment])
        self.judge(logits, [text + path for path in zoo.paths(pending, tree)])
        if keep == 8:
            sequence.rollback()
            return
        deepest = max(range(-1, len(tree)), key=lambda n: len(tree.path(n)))
        nodes = tree.path(keep - 1 if keep <= len(tree) else deepest)
        kept = [pending, *(tree.tokens[n] for n in nodes)]
        sequence.commit([0, *(n + 1 for n in nodes)], kept)
        text += kept
        self.look(sequence, text)

    def look(self, sequence: KVSequence, text: list[int]) -> None:
        """One more token, judged and rolled back."""
        try:
            segment = zoo.chunk(sequence, [5])
        except CapacityError:
            return
        self.judge(self.engine.forward([segment]), [[*text, 5]])
        sequence.rollback()

    @precondition(lambda self: self.live)
    @rule(seed=st.integers(0, 99))
    def step(self, seed: int) -> None:
        """One token for every session in one pass."""
        rng = np.random.default_rng(seed)
        segments, paths = [], []
        for sequence, text in zip(self.live, self.texts, strict=True):
            token = int(rng.integers(3, zoo.VOCAB))
            if len(text) > LONGEST:
                continue
            try:
                segments.append(zoo.chunk(sequence, [token]))
            except CapacityError:
                continue
            text.append(token)
            paths.append(text)
        if segments:
            self.judge(self.engine.forward(segments), paths)
        for segment in segments:
            segment.sequence.commit([0], segment.tokens)

    @precondition(lambda self: 0 < len(self.live) < 6)
    @rule(index=st.integers(0, 5))
    def fork(self, index: int) -> None:
        """A branch."""
        sequence, text = self.pick(index)
        self.live.append(sequence.fork())
        self.texts.append(list(text))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 5), share=st.floats(0, 1))
    def truncate(self, index: int, share: float) -> None:
        """Back to an earlier length."""
        sequence, text = self.pick(index)
        length = int(share * len(text))
        sequence.truncate(length)
        del text[length:]

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 5))
    def release(self, index: int) -> None:
        """The end of a session; twice, as a cancel and a finish may both do it."""
        sequence, _ = self.pick(index)
        place = index % len(self.live)
        del self.live[place], self.texts[place]
        sequence.release()
        sequence.release()

    @invariant()
    def books(self) -> None:
        """The pool's own check, and what each sequence holds."""
        self.engine.pool.check()
        for sequence, text in zip(self.live, self.texts, strict=True):
            assert list(sequence.tokens) == text, "a sequence lost its tokens"
            assert sequence.length == len(text), "a sequence has another length than tokens"
            slots = sequence.slots
            run = slots[sequence.linear :]
            assert (np.diff(run) == 1).all(), "a sequence says that its slots lie in one run"

    def teardown(self) -> None:
        """All given back: nothing is referenced."""
        for sequence in self.live:
            sequence.release()
        self.engine.pool.check()
        stats = self.engine.pool.stats()
        assert stats.referenced == 0, "released sequences still hold slots"
        self.engine.pool.clear()
        assert self.engine.pool.stats().free == SLOTS, "a cleared pool is not empty"


class WindowMachine(PoolMachine):
    """The same with sliding windows."""

    model = "gemma3"


def run(machine: type[PoolMachine], examples: int, *, seek: bool = False) -> None:
    """Run a machine; when seeking a fault, without shrinking it."""
    phases = (Phase.generate,) if seek else (Phase.explicit, Phase.generate, Phase.shrink)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            phases=phases,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )


@pytest.mark.parametrize("machine", [PoolMachine, WindowMachine])
def test_any_interleaving(machine):
    """Open, prefill, tree, commit, rollback, fork, truncate, release and eviction in any order."""
    run(machine, 15)


def backwards(self, sources, targets):
    """Rows moved one by one, the last one first: a source may be overwritten before it is read."""
    for source, target in reversed(list(zip(sources, targets, strict=True))):
        for group in self._groups:
            group[:, target] = group[:, source]


def rewriting(self, slots):
    """A release that forgets that others still hold the slots."""
    self.refs[slots] = 0
    self.referenced -= len(slots)
    self._free(slots[self.pins[slots] == 0])


def careless(self, slots):
    """A release that frees slots that the prefix index still points to."""
    self.refs[slots] -= 1
    idle = slots[self.refs[slots] == 0]
    self.referenced -= len(idle)
    self._free(idle)


def uncounted(self, block):
    """A found prefix that is not counted as used."""
    if block.users == 0:
        del self._idle[block.key]
    block.users += 1


FAULTS = {
    "shared slots freed": (SlotTable, "drop", rewriting),
    "cached slots freed": (SlotTable, "drop", careless),
    "prefix not counted": (KVPool, "hold", uncounted),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_pool_is_caught(fault, monkeypatch):
    """Negative controls: each fault makes the property test fail."""
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, IndexError, KeyError)):
        run(PoolMachine, 60, seek=True)


def test_wrong_rows_show_in_the_logits(monkeypatch):
    """Negative control: a commit that moves rows in the wrong order leaves the books balanced."""
    monkeypatch.setattr(KVStore, "move", backwards)
    with pytest.raises(AssertionError, match="wrong logits"):
        run(PoolMachine, 60, seek=True)
