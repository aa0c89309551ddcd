"""The target's drafts: which draft serves a session, what it is told, and what of its trees is used.

All state belongs to the device thread; `Link.received` and `Link.lost` only queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specgrove.core.cards import ReplicaCard
from specgrove.core.protocols import TargetObserver
from specgrove.core.speculate import (
    Closed,
    Committed,
    Declined,
    DraftMessage,
    DraftTree,
    Opened,
    Planned,
    Reopen,
    Update,
)
from specgrove.core.tree import TokenTree
from specgrove.errors import TreeError
from specgrove.target.plans import Plans
from specgrove.target.session import Session

JITTER_S = 0.02
"""Allowance for thread and socket scheduling on a busy machine, on top of a predicted wait; spent only when a draft is
late, and then once."""
MISS_PAUSE_STEPS, LONGEST_MISS_PAUSE_S = 16, 5.0
"""After a miss nobody waits for a draft for so many plain steps, twice as long after each further one, to a limit."""
YIELD_S = 2e-5
"""Sleep after telling drafts something: it leaves the interpreter to the thread that writes to the network."""
SMOOTHING = 0.2
"""Weight of the newest observation in the moving averages."""


@dataclass(slots=True, eq=False)
class Link:
    """One connected draft."""

    card: ReplicaCard
    send: Callable[[Sequence[Update]], None]
    queue: Callable[[Link, Sequence[DraftMessage] | None], None]
    sessions: dict[bytes, Session] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    tree_s: float | None = None
    """Moving average of the time from a commit to its tree."""
    misses: int = 0
    """Limits missed since its last tree arrived."""
    trusted_from: float = 0.0
    """Nobody waits for it before this time; moved on by every miss."""

    def received(self, messages: Sequence[DraftMessage]) -> None:
        """Queue what the draft sent."""
        self.queue(self, messages)

    def lost(self) -> None:
        """Queue the end of the stream."""
        self.queue(self, None)


class Drafts:
    """Live drafts of one target replica."""

    def __init__(
        self,
        *,
        vocab_size: int,
        observer: TargetObserver,
        max_wait_s: float | None = None,
        plans: Plans | None = None,
        node: str = "",
    ) -> None:
        """node: where the target runs, if its drafts may share its cores; empty where they cannot, or nobody knows."""
        self._node = node
        self.plans = plans or Plans()
        self.links: list[Link] = []
        self.by_session: dict[bytes, Session] = {}
        self.plain_s = 0.05
        """Moving average of a step's time; the unit in which waiting is allowed. Starts as a guess."""
        self._max_wait_s = max_wait_s
        self._vocab_size = vocab_size
        self._observer = observer

    def add(self, link: Link) -> None:
        """A draft connected."""
        self.links.append(link)
        self._count()

    def _count(self) -> None:
        self.plans.drafts = tuple(link.card for link in self.links)
        self.plans.apart = bool(self._node) and all(link.card.node != self._node for link in self.links)

    def remove(self, link: Link) -> list[Session]:
        """A draft went away; returns its sessions, which are free to be opened elsewhere."""
        if link in self.links:
            self.links.remove(link)
            self._count()
        orphans = list(link.sessions.values())
        for session in orphans:
            if session.wait_until:
                self._observer.refused_tree("lost")
            session.link, session.wait_until = None, 0.0
        link.sessions.clear()
        return orphans

    def open(self, session: Session, *, wants_tree: bool, now: float) -> None:
        """Give the session to the least loaded draft that can follow it; without one it decodes plainly."""
        session.plan = None if self.plans.pays_alone(session) else self.plans.next(session)
        if session.plan is None:
            return
        fitting = [link for link in self.links if self._fits(link, session)]
        if not fitting:
            return
        link = min(fitting, key=lambda link: (link.misses > 0, len(link.sessions)))
        session.link = link
        link.sessions[session.id] = session
        self.by_session[session.id] = session
        self._announce(link, session, wants_tree=wants_tree, now=now)

    def _announce(self, link: Link, session: Session, *, wants_tree: bool, now: float) -> None:
        assert session.plan is not None
        session.epoch += 1
        session.seq = 0
        session.known.clear()
        session.known.append((len(session.tokens), session.prefix.value, now))
        session.told = len(session.tokens)
        link.updates.append(
            Opened(
                session=session.id,
                epoch=session.epoch,
                seq=0,
                tokens=tuple(session.tokens),
                plan=session.plan,
                wants_tree=wants_tree,
            )
        )
        if wants_tree:
            self._expect(link, session, now)

    def _fits(self, link: Link, session: Session) -> bool:
        assert session.plan is not None
        return len(session.tokens) + session.plan.max_depth + 1 <= link.card.model.max_model_len

    def committed(self, session: Session, now: float) -> None:
        """Tell the session's draft what was added, and expect the next tree.

        While the session's own guesses are better than a tree its draft is not told anything; it stays open, and hears
        of all the rounds at once when it is asked again.
        """
        link = session.link
        if link is None:
            return
        if not self._fits(link, session):
            self.close(session)
            session.ceiling = session.plan = None
            return
        if self.plans.pays_alone(session):
            session.wait_until = 0.0
            return
        if not self._planned(link, session):
            return
        session.seq += 1
        session.known.append((len(session.tokens), session.prefix.value, now))
        link.updates.append(
            Committed(
                session=session.id,
                epoch=session.epoch,
                seq=session.seq,
                tokens=tuple(session.tokens[session.told :]),
                length=len(session.tokens),
                prefix_hash=session.prefix.value,
            )
        )
        session.told = len(session.tokens)
        self._expect(link, session, now)

    def _planned(self, link: Link, session: Session) -> bool:
        """Tell the draft of a new plan, or that no tree is wanted for now; false for that."""
        plan = self.plans.next(session)
        if plan is None:
            self.close(session)
            session.plan = None
            return False
        if plan is not session.plan:
            session.plan = plan
            session.seq += 1
            link.updates.append(Planned(session=session.id, epoch=session.epoch, seq=session.seq, plan=plan))
        return True

    def _expect(self, link: Link, session: Session, now: float) -> None:
        """Hold the session for its tree: the predicted time, and at most one plain step beyond it (docs/adr/0001).

        A draft level costs at most a plain step, or speculation would not pay; that bounds the prediction.
        """
        assert session.plan is not None
        if now < link.trusted_from:
            session.wait_until = now
            return
        if self._max_wait_s is not None:
            session.wait_until = now + self._max_wait_s
            return
        bound = session.plan.max_depth * self.plain_s + JITTER_S
        predicted = bound if link.tree_s is None else min(bound, 1.5 * link.tree_s + JITTER_S)
        session.wait_until = now + predicted + self.plain_s

    def missed(self, session: Session, now: float) -> None:
        """Its tree did not come in time: the session steps plainly, and nobody waits for this draft for a while."""
        session.wait_until = 0.0
        link = session.link
        if link is not None and now >= link.trusted_from:
            pause = MISS_PAUSE_STEPS * self.plain_s * 2.0 ** min(link.misses, 20)
            link.trusted_from = now + min(pause, LONGEST_MISS_PAUSE_S)
            link.misses += 1

    def close(self, session: Session) -> None:
        """The session is over, or decodes plainly from now on."""
        self.by_session.pop(session.id, None)
        link, session.link = session.link, None
        session.wait_until = 0.0
        if link is not None and link.sessions.pop(session.id, None) is not None:
            link.updates.append(Closed(session=session.id, epoch=session.epoch, seq=session.seq + 1))

    def stepped(self, seconds: float) -> None:
        """Learn how long a step takes."""
        self.plain_s += SMOOTHING * (seconds - self.plain_s)

    def flush(self) -> None:
        """Send the queued updates, one batch per draft."""
        sent = False
        for link in self.links:
            if link.updates:
                updates, link.updates = link.updates, []
                link.send(updates)
                sent = True
        if sent:
            time.sleep(YIELD_S)

    def receive(self, link: Link, messages: Sequence[DraftMessage], now: float) -> None:
        """Use, drop and count what a draft sent."""
        for message in messages:
            session = self.by_session.get(message.session)
            if session is None or session.link is not link:
                if isinstance(message, DraftTree):
                    self._observer.refused_tree("closed" if session is None else "foreign")
            elif isinstance(message, DraftTree):
                self._tree(link, session, message, now)
            elif isinstance(message, Reopen):
                self._announce(link, session, wants_tree=True, now=now)
            elif isinstance(message, Declined):
                link.sessions.pop(session.id, None)
                self.by_session.pop(session.id, None)
                session.link, session.ceiling, session.plan, session.wait_until = None, None, None, 0.0

    def _tree(self, link: Link, session: Session, message: DraftTree, now: float) -> None:
        if message.epoch != session.epoch:
            self._observer.refused_tree("stale")
            return
        link.misses, link.trusted_from = 0, 0.0
        if message.base_length == len(session.tokens):
            session.wait_until = 0.0  # it answered, be it with nonsense
        tree = self._usable(session, message)
        if tree is None:
            return
        asked = next((at for length, _, at in session.known if length == message.base_length), now)
        waited = now - asked
        link.tree_s = waited if link.tree_s is None else link.tree_s + SMOOTHING * (waited - link.tree_s)
        session.waited_s = waited
        self.plans.arrived(session, message, waited)
        if len(tree) >= len(session.drafted):
            session.set_tree(tree, draft=link.card.replica, draft_s=message.draft_s)

    def _usable(self, session: Session, message: DraftTree) -> TokenTree | None:
        """The tree re-rooted at what is committed now; None (counted) when it is hostile, unknown or stale."""
        plan = session.plan
        if message.tree is None or plan is None or message.plan_version > plan.version:
            self._observer.refused_tree("bad_tree" if message.tree is None else "unknown_plan")
            return None
        base = len(session.tokens)
        if not any((length, value) == (message.base_length, message.prefix_hash) for length, value, _ in session.known):
            session.stats.stale_trees += 1
            self._observer.refused_tree("stale")
            return None
        drafted = message.tree
        if message.plan_version < plan.version:
            drafted = drafted.trim(max_nodes=plan.max_nodes, max_depth=plan.max_depth)
        try:
            drafted.check(vocab_size=self._vocab_size, max_nodes=plan.max_nodes, max_depth=plan.max_depth)
        except TreeError:
            self._observer.refused_tree("bad_tree")
            return None
        tree = drafted.reroot(session.tokens[message.base_length : base])
        if not tree:
            session.stats.stale_trees += 1
            self._observer.refused_tree("stale")
            return None
        return tree
