"""The propose loop: all sessions that owe a tree, of all targets, drafted level by level in shared forward passes.

Runs on the one device thread of the replica. `step` is synchronous and does one forward pass; `draft/replica.py` feeds
it messages and carries its answers out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from specgrove.core.protocols import DraftObserver
from specgrove.core.speculate import Closed, Committed, Declined, DraftMessage, Opened, Planned, Reopen, Update
from specgrove.draft.session import DraftSession, SessionKey
from specgrove.drafters.growth import Children
from specgrove.engine.batch import Segment
from specgrove.engine.runner import Engine
from specgrove.errors import CapacityError, SpecgroveError
from specgrove.sampling.noise import NOISE_VERSION, NoiseKey, top_noised


@dataclass(slots=True)
class _Work:
    """One segment of a step and whose it is."""

    session: DraftSession
    segment: Segment
    catching_up: int
    """Committed tokens in the segment; 0 for frontier nodes."""


@dataclass(slots=True)
class Outbox:
    """Messages of one step, by target replica."""

    by_target: dict[str, list[DraftMessage]] = field(default_factory=dict)

    def add(self, key: SessionKey, message: DraftMessage) -> None:
        """Queue one message to the session's target."""
        self.by_target.setdefault(key[0], []).append(message)


class ProposeLoop:
    """Sessions of one draft engine."""

    def __init__(self, engine: Engine, *, max_batched_tokens: int, observer: DraftObserver) -> None:
        self.engine = engine
        self.max_batched_tokens = max_batched_tokens
        self.observer = observer
        self.sessions: dict[SessionKey, DraftSession] = {}

    def apply(self, target: str, updates: Sequence[Update], out: Outbox) -> None:
        """Follow what a target pushed, in order."""
        for update in updates:
            key = (target, update.session)
            if isinstance(update, Opened):
                self._open(key, update, out)
            elif (session := self._current(key, update, out)) is not None:
                self._follow(session, update, out)

    def forget(self, target: str) -> None:
        """Close every session of a target whose stream ended."""
        for key in [key for key in self.sessions if key[0] == target]:
            self._close(key)

    @property
    def idle(self) -> bool:
        """Nothing to run."""
        return not any(session.has_work for session in self.sessions.values())

    @property
    def owed(self) -> int:
        """Trees owed now."""
        return sum(session.owes for session in self.sessions.values())

    def step(self, out: Outbox) -> None:
        """One forward pass over all frontiers (and prompts to catch up on); finished trees go to `out`."""
        work = self._compose(out)
        if not work:
            return
        begun = time.perf_counter()
        logits = self.engine.forward([w.segment for w in work])
        asking = [w for w in work if len(w.segment.wanted)]
        spent = time.perf_counter() - begun  # on CUDA: until the work is queued; waiting for it counts as sampling
        children = self._children(asking, logits) if asking else []
        self.observer.drafted(rows=sum(len(w.segment.tokens) for w in work), seconds=spent)
        for w in work:
            if w.catching_up:
                w.session.caught_up(w.catching_up)
            w.session.ran(spent, caught_up=w.catching_up)
        for w, own in zip(asking, children, strict=True):
            self._extend(w.session, own, out)

    def _open(self, key: SessionKey, message: Opened, out: Outbox) -> None:
        self._close(key)
        if message.plan.noise_version != NOISE_VERSION:
            out.add(key, Declined(session=key[1], reason=f"noise version {message.plan.noise_version} is not ours"))
            return
        self.sessions[key] = DraftSession.open(key[0], message, self.engine.pool, time.perf_counter())

    def _current(self, key: SessionKey, update: Update, out: Outbox) -> DraftSession | None:
        """The session of an update in sequence; a gap asks the target to open it again, a repetition is ignored."""
        session = self.sessions.get(key)
        if session is None:
            if not isinstance(update, Closed):
                out.add(key, Reopen(session=key[1]))
            return None
        if update.epoch != session.epoch or update.seq > session.seq + 1:
            self._lost_track(key, out)
            return None
        if update.seq <= session.seq:
            return None
        session.seq = update.seq
        return session

    def _follow(self, session: DraftSession, update: Update, out: Outbox) -> None:
        if isinstance(update, Closed):
            self._close(session.key)
        elif isinstance(update, Planned):
            session.plan = update.plan
        elif isinstance(update, Committed):
            if not session.commit(update, time.perf_counter()):
                self._lost_track(session.key, out)
            elif session.complete:
                self._send_tree(session, out)

    def _lost_track(self, key: SessionKey, out: Outbox) -> None:
        self._close(key)
        out.add(key, Reopen(session=key[1]))

    def _close(self, key: SessionKey) -> None:
        session = self.sessions.pop(key, None)
        if session is not None:
            session.sequence.release()

    def _compose(self, out: Outbox) -> list[_Work]:
        """Segments of the next step: frontiers and short catch-ups first, then prompts, within the token budget."""
        now = time.perf_counter()
        room = self.max_batched_tokens
        work: list[_Work] = []
        for session in sorted(self.sessions.values(), key=lambda s: (not s.owes, s.behind)):
            if room <= 0 or not session.has_work:
                continue
            try:
                made = self._segment(session, room, now)
            except SpecgroveError as error:  # no KV slots left, an unknown method: this session goes on without us
                if session.ahead:  # nothing is owed
                    session.settle()
                    continue
                out.add(session.key, Declined(session=session.key[1], reason=error.message))
                self._close(session.key)
                continue
            if made is not None:
                work.append(made)
                room -= len(made.segment.tokens)
        return work

    def _segment(self, session: DraftSession, room: int, now: float) -> _Work | None:
        growth = session.growth
        if growth is not None and growth.frontier and growth.tokens:
            if session.base + growth.depths[growth.frontier[0]] >= self.engine.card.max_model_len:
                if not session.ahead:
                    raise self._too_long(session)
                session.settle()
                return None
            return _Work(session, session.expand(), 0)
        if session.end > self.engine.card.max_model_len:
            raise self._too_long(session)
        if not session.growing:
            session.settle()
        limit = min(room, session.behind if session.owes else session.behind - 1)
        if limit < 1:
            return None
        segment = session.catch_up(limit)
        if len(segment.wanted):
            session.begin(now)
        return _Work(session, segment, len(segment.tokens))

    def _too_long(self, session: DraftSession) -> CapacityError:
        longest = self.engine.card.max_model_len
        return CapacityError(f"{session.end} tokens are past the draft's context of {longest}")

    def _children(self, asking: Sequence[_Work], logits: Tensor) -> list[list[Children]]:
        """The best continuations of every frontier node of each session, read from the device once."""
        keys: list[NoiseKey] = []
        positions: list[int] = []
        temperatures: list[float] = []
        counts: list[int] = []
        for w in asking:
            count = len(w.segment.wanted)
            session_keys, session_positions = w.session.noise(count)
            keys += session_keys
            positions += session_positions
            temperatures += [w.session.plan.temperature] * count
            counts.append(count)
        widest = max(w.session.growth.width for w in asking if w.session.growth is not None)
        ids, scores = top_noised(logits, temperatures, keys, positions, widest)
        rows = [Children(i, s) for i, s in zip(ids.tolist(), scores.tolist(), strict=True)]
        edges = [0]
        for count in counts:
            edges.append(edges[-1] + count)
        return [rows[a:b] for a, b in pairwise(edges)]

    def _extend(self, session: DraftSession, children: list[Children], out: Outbox) -> None:
        growth = session.growth
        assert growth is not None
        growth.extend(children)
        if not growth.frontier and not session.ahead:
            self._send_tree(session, out)

    def _send_tree(self, session: DraftSession, out: Outbox) -> None:
        message = session.finished_tree(time.perf_counter())
        nodes = len(message.tree) if message.tree is not None else 0
        self.observer.proposed(session.key[0], nodes=nodes, seconds=message.draft_s)
        out.add(session.key, message)
