"""DraftReplica: the propose loop on its device thread, fed by Speculate streams."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specgrove.core.cards import Load, ReplicaCard
from specgrove.core.protocols import DraftObserver
from specgrove.core.speculate import Declined, DraftMessage, Update
from specgrove.draft.propose_loop import Outbox, ProposeLoop
from specgrove.engine.runner import Engine

log = logging.getLogger("specgrove.draft")

Send = Callable[[Sequence[DraftMessage]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftOptions:
    """What a draft replica needs besides its engine."""

    replica: str
    max_batched_tokens: int = 512
    """Most rows in one draft forward pass; longer prompts are computed in chunks."""


class DraftReplica:
    """Implements core.protocols.ProposeSink. All session state belongs to the device thread."""

    def __init__(self, engine: Engine, options: DraftOptions, observer: DraftObserver) -> None:
        self.options = options
        self.engine = engine
        self._loop = ProposeLoop(engine, max_batched_tokens=options.max_batched_tokens, observer=observer)
        self._sends: dict[str, Send] = {}
        self._inbox: deque[tuple[str, Sequence[Update] | None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._beat = time.monotonic()
        self._seen = (0, 0, True)  # sessions, trees owed, idle: written by the device thread, read by others
        self._thread = threading.Thread(target=self._run, name="specgrove-draft", daemon=True)

    def start(self) -> None:
        """Start the device thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the device thread after the step it is in."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def healthy(self, *, stuck_after_s: float = 30.0) -> bool:
        """The device thread lives and is not stuck in a step."""
        return self._thread.is_alive() and (self._seen[2] or time.monotonic() - self._beat < stuck_after_s)

    def load(self) -> Load:
        """Sessions and KV use, for the heartbeat."""
        stats = self.engine.pool.stats()
        sessions, owed, _ = self._seen
        return Load(
            running=sessions,
            waiting=owed,
            kv_slots_used=stats.referenced,
            kv_slots_total=stats.total,
        )

    def connected(self, target: ReplicaCard, send: Send) -> None:
        """A target accepted our hello."""
        self._sends[target.replica] = send
        log.info("drafting for target %s", target.replica)

    def received(self, target: str, updates: Sequence[Update]) -> None:
        """Queue what a target pushed."""
        self._put(target, updates)

    def lost(self, target: str) -> None:
        """The stream of a target ended: close its sessions."""
        self._sends.pop(target, None)
        self._put(target, None)

    def _put(self, target: str, updates: Sequence[Update] | None) -> None:
        with self._wake:
            self._inbox.append((target, updates))
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._inbox and self._loop.idle and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    return
                arrived = [self._inbox.popleft() for _ in range(len(self._inbox))]
            self._beat = time.monotonic()
            self._seen = (*self._seen[:2], False)
            out = Outbox()
            try:
                self._turn(arrived, out)
            except Exception:  # the actor loop: one bad step must not end the replica
                log.exception("draft step failed; its sessions go on without this draft")
                self._decline_all(out)
            self._seen = (len(self._loop.sessions), self._loop.owed, self._loop.idle)
            self._send(out)

    def _turn(self, arrived: Sequence[tuple[str, Sequence[Update] | None]], out: Outbox) -> None:
        """Follow what arrived, then step until there is something to send or to follow."""
        for target, updates in arrived:
            if updates is None:
                self._loop.forget(target)
            else:
                self._loop.apply(target, updates, out)
        self._loop.step(out)
        while not (out.by_target or self._inbox or self._loop.idle or self._stopping):
            self._beat = time.monotonic()
            self._loop.step(out)

    def _decline_all(self, out: Outbox) -> None:
        for target, session in list(self._loop.sessions):
            out.add((target, session), Declined(session=session, reason="the draft's forward pass failed"))
        for target in {target for target, _ in self._loop.sessions}:
            self._loop.forget(target)

    def _send(self, out: Outbox) -> None:
        for target, messages in out.by_target.items():
            if (send := self._sends.get(target)) is not None:
                send(messages)
