"""Drafts as the target sees them: what of their trees is used, what is dropped and counted, how long it waits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from specgrove.core.cards import ModelCard, ReplicaCard
from specgrove.core.prefix import PrefixHash
from specgrove.core.speculate import Closed, Committed, Declined, DraftPlan, DraftTree, Opened, Reopen, Update
from specgrove.core.tree import TokenTree
from specgrove.target.drafts import Drafts, Link
from specgrove.target.session import Session

PROMPT = (5, 6, 7)


class Counts:
    """An observer that remembers refused trees."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def refused_tree(self, reason: str) -> None:
        """Remember."""
        self.refused.append(reason)


def model(**changes: Any) -> ModelCard:
    """A card of a small model."""
    base: dict[str, Any] = {
        "name": "m",
        "architecture": "x",
        "parameters": 1,
        "layers": 1,
        "hidden_size": 1,
        "vocab_size": 50,
        "vocab_hash": "h",
        "weights_digest": "d",
        "dtype": "float32",
        "max_model_len": 64,
    }
    return ModelCard(**(base | changes))


class Bench:
    """One target with one draft and one session."""

    def __init__(self, *, context: int = 64) -> None:
        self.counts = Counts()
        self.drafts = Drafts(vocab_size=50, observer=self.counts)  # type: ignore[arg-type]
        self.sent: list[Update] = []
        self.link = self.connect("d1", context=context)
        self.session = self.make_session()

    def connect(self, name: str, *, context: int = 64) -> Link:
        """Connect one more draft."""
        card = ReplicaCard(replica=name, role="draft", pool="p", model=model(max_model_len=context))
        link = Link(card, self._send, lambda *_: None)
        self.drafts.add(link)
        return link

    def _send(self, updates: Sequence[Update]) -> None:
        self.sent.extend(updates)

    def make_session(self) -> Session:
        """A session that drafts may follow."""
        job: Any = SimpleNamespace(prompt=PROMPT, max_tokens=99)
        nothing: Any = None
        return Session(
            job=job,
            choice=0,
            tokens=list(PROMPT),
            sequence=nothing,
            sampler=SimpleNamespace(warp=SimpleNamespace(append=lambda _: None)),  # type: ignore[arg-type]
            text=nothing,
            ceiling=DraftPlan(branching=(2, 2), max_nodes=4),
        )

    def open(self, now: float = 0.0) -> Opened:
        """Open the session; returns the message."""
        self.drafts.open(self.session, wants_tree=True, now=now)
        return self.flushed()[-1]  # type: ignore[return-value]

    def commit(self, *tokens: int, now: float = 0.0) -> None:
        """Commit tokens by a plain step."""
        self.session.extend(tokens)
        self.drafts.committed(self.session, now)

    def flushed(self) -> list[Update]:
        """What was sent since the last call."""
        self.drafts.flush()
        sent, self.sent[:] = list(self.sent), []
        return sent

    def tree(self, tree: TokenTree | None, *, base: Sequence[int] = PROMPT, now: float = 0.1, **changes: Any) -> None:
        """Let the draft send a tree that extends `base`."""
        message: dict[str, Any] = {
            "session": self.session.id,
            "epoch": self.session.epoch,
            "base_length": len(base),
            "prefix_hash": PrefixHash(base).value,
            "plan_version": 0,
            "tree": tree,
        }
        self.drafts.receive(self.link, [DraftTree(**(message | changes))], now)


FORK = TokenTree((1, 2, 3), (-1, -1, 0))


def test_a_tree_in_time_is_used():
    """The tree of the current base becomes the session's tree and ends the waiting."""
    bench = Bench()
    bench.open()
    assert bench.session.wait_until > 0

    bench.tree(FORK)

    assert bench.session.tree == FORK
    assert bench.session.wait_until == 0
    assert bench.counts.refused == []


def test_a_draft_that_is_not_needed_for_a_while_hears_of_it_later():
    """While good guesses make trees superfluous nothing is sent and nobody waits; then all rounds come as one."""
    bench, alone = Bench(), False
    bench.drafts.plans.pays_alone = lambda _: alone  # type: ignore[method-assign]  # as if guesses were that good
    bench.open()
    bench.tree(FORK)
    alone = True
    bench.commit(1, 3)
    bench.commit(4)

    assert bench.flushed() == []
    assert bench.session.wait_until == 0
    assert bench.session.link is bench.link

    alone = False
    bench.commit(5)
    [told] = bench.flushed()
    assert isinstance(told, Committed)
    assert (told.tokens, told.length, told.seq) == ((1, 3, 4, 5), len(PROMPT) + 4, 1)
    assert told.prefix_hash == PrefixHash([*PROMPT, 1, 3, 4, 5]).value
    assert bench.session.wait_until > 0


def test_a_late_tree_is_rerooted():
    """After a plain step along one of its paths, the rest of a late tree is used."""
    bench = Bench()
    bench.open()
    bench.commit(1)

    bench.tree(FORK)

    assert bench.session.tree == TokenTree((3,), (-1,))
    assert bench.session.wait_until > 0, "the tree of the current base is still awaited"


def test_a_tree_that_the_text_left_is_stale():
    """A late tree without the committed token is dropped and counted."""
    bench = Bench()
    bench.open()
    bench.commit(9)

    bench.tree(FORK)

    assert len(bench.session.tree) == 0
    assert bench.counts.refused == ["stale"]
    assert bench.session.stats.stale_trees == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tree": None, "fault": "a cycle"}, "bad_tree"),
        ({"tree": TokenTree((1, 1), (-1, -1))}, "bad_tree"),
        ({"tree": TokenTree((50,), (-1,))}, "bad_tree"),
        ({"tree": TokenTree((-1,), (-1,))}, "bad_tree"),
        ({"tree": TokenTree.chain([1, 2, 3])}, "bad_tree"),
        ({"tree": TokenTree((1, 2, 3, 4, 5), (-1,) * 5)}, "bad_tree"),
        ({"prefix_hash": 1}, "stale"),
        ({"base_length": 2}, "stale"),
        ({"base_length": 60}, "stale"),
        ({"plan_version": 7}, "unknown_plan"),
        ({"epoch": 0}, "stale"),
        ({"session": b"0" * 16}, "closed"),
    ],
)
def test_hostile_trees_are_dropped_and_counted(changes: dict[str, Any], reason: str):
    """Whatever a draft sends: dropped, counted by reason, and nothing of it reaches the session."""
    bench = Bench()
    bench.open()

    bench.tree(**({"tree": FORK} | changes))

    assert bench.counts.refused == [reason]
    assert len(bench.session.tree) == 0


def test_nonsense_for_the_current_base_ends_the_wait():
    """A hostile answer doesn't hold the session until its limit."""
    bench = Bench()
    bench.open()

    bench.tree(TokenTree((50,), (-1,)))

    assert bench.session.wait_until == 0


def test_a_draft_cannot_answer_for_another():
    """Trees for a session that another draft serves are foreign."""
    bench = Bench()
    bench.open()
    mine, bench.link = bench.link, bench.connect("d2")

    bench.tree(FORK)

    assert bench.counts.refused == ["foreign"]
    assert bench.session.link is mine


def test_an_older_larger_plan_is_trimmed():
    """A tree grown under an older, larger plan is no offence."""
    bench = Bench()
    bench.open()
    bench.session.ceiling = bench.session.plan = DraftPlan(version=1, branching=(2,), max_nodes=2)

    bench.tree(FORK)

    assert bench.session.tree == TokenTree((1, 2), (-1, -1))
    assert bench.counts.refused == []


def test_messages_are_numbered_and_hashed():
    """Opened starts a new epoch at 0; commits count up and carry length and hash; Closed ends it."""
    bench = Bench()
    opened = bench.open()
    bench.commit(1, 2)
    bench.drafts.close(bench.session)
    committed, closed = bench.flushed()

    assert (opened.seq, opened.tokens) == (0, PROMPT)
    assert committed == Committed(
        session=bench.session.id,
        epoch=opened.epoch,
        seq=1,
        tokens=(1, 2),
        length=5,
        prefix_hash=PrefixHash([*PROMPT, 1, 2]).value,
    )
    assert closed == Closed(session=bench.session.id, epoch=opened.epoch, seq=2)


def test_a_reopened_session_has_a_new_epoch():
    """A draft that lost track gets all tokens again; trees of the old epoch are stale."""
    bench = Bench()
    old = bench.open()
    bench.commit(1)
    bench.flushed()
    bench.drafts.receive(bench.link, [Reopen(session=bench.session.id)], 0.0)
    (again,) = bench.flushed()

    assert isinstance(again, Opened)
    assert again.tokens == (*PROMPT, 1)
    assert again.epoch > old.epoch


def test_a_lost_draft_frees_its_sessions():
    """Losing the stream ends the waiting, and another draft takes over with all tokens."""
    bench = Bench()
    bench.open()
    other = bench.connect("d2")
    orphans = bench.drafts.remove(bench.link)
    assert orphans == [bench.session]
    assert bench.counts.refused == ["lost"]
    assert bench.session.wait_until == 0

    assert bench.open().tokens == PROMPT
    assert bench.session.link is other


def test_declined_means_plain():
    """A session that its draft declined is not offered again."""
    bench = Bench()
    bench.open()
    bench.drafts.receive(bench.link, [Declined(session=bench.session.id, reason="full")], 0.0)
    bench.drafts.open(bench.session, wants_tree=True, now=0.0)

    assert bench.session.link is None
    assert bench.flushed() == []


def test_text_past_the_drafts_context_is_decoded_plainly():
    """A session is closed for a draft whose context it outgrows, and never opened for one that is too short."""
    bench = Bench(context=8)
    bench.open()
    bench.commit(1, 2, 3)

    assert isinstance(bench.flushed()[-1], Closed)
    assert bench.session.link is None


def test_wait_is_bounded_by_plain_steps():
    """Unknown draft: at most depth plain steps and one more. A measured draft: 1.5 times its pace and one more."""
    bench = Bench()
    bench.drafts.plain_s = 1.0
    bench.open(now=10.0)
    assert bench.session.wait_until == pytest.approx(10 + 2 + 1, abs=0.03)

    bench.tree(FORK, now=10.5)
    bench.commit(1, now=20.0)

    assert bench.session.wait_until == pytest.approx(20 + 0.75 + 1, abs=0.03)


def test_a_fixed_wait_replaces_the_rule():
    """max_tree_wait_ms holds whatever was measured."""
    bench = Bench()
    bench.drafts = Drafts(vocab_size=50, observer=bench.counts, max_wait_s=9.0)  # type: ignore[arg-type]
    bench.drafts.add(bench.link)
    bench.open(now=10.0)

    assert bench.session.wait_until == 19.0


def test_nobody_waits_for_a_late_draft_until_it_answers():
    """After a missed limit sessions of that draft step plainly at once; its next tree ends that."""
    bench = Bench()
    bench.open()
    bench.drafts.missed(bench.session, 1.0)
    bench.commit(1, now=1.1)
    assert bench.session.wait_until == 1.1

    bench.tree(TokenTree((4,), (-1,)), base=(*PROMPT, 1), now=1.2)
    bench.commit(4, now=1.3)

    assert bench.session.wait_until > 1.3


def test_a_silent_draft_is_tried_again_ever_more_rarely():
    """A draft that never answers costs one wait, then one after twice the pause, up to one in five seconds."""
    bench = Bench(context=10**6)
    bench.drafts.plain_s = 0.01
    bench.open()
    now, waits = 0.0, []
    while now < 60.0:
        if bench.session.wait_until > now:
            waits.append(now)
            now = bench.session.wait_until
            bench.drafts.missed(bench.session, now)
        now += 0.01
        bench.commit(1, now=now)

    gaps = [b - a for a, b in pairwise(waits)]
    assert gaps[0] == pytest.approx(0.16 + 0.07, abs=0.05)
    assert gaps[1] == pytest.approx(0.32 + 0.07, abs=0.05)
    assert 4.9 < gaps[-1] < 5.2
    assert len(waits) < 20
