"""TargetReplica: the step loop on its device thread, behind the Backend and DraftHub interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specgrove.core.cards import PROTOCOL_VERSION, Load, ReplicaCard
from specgrove.core.protocols import ModelStatus, TargetObserver
from specgrove.core.request import Finished, GenerateEvent, GenerateRequest
from specgrove.core.speculate import DraftMessage, DraftPlan, Update
from specgrove.engine.runner import Engine
from specgrove.errors import (
    CapacityError,
    ModelNotFound,
    ProtocolError,
    RequestError,
    SpecgroveError,
    Unauthenticated,
    Unavailable,
)
from specgrove.planning.acceptance import AcceptanceEstimate
from specgrove.planning.planner import Planner
from specgrove.sampling.noise import NOISE_VERSION
from specgrove.target.accept import accept
from specgrove.target.drafts import Drafts, Link
from specgrove.target.guesses import LookupOptions
from specgrove.target.job import Job
from specgrove.target.plans import Plans
from specgrove.target.step_loop import StepLoop

log = logging.getLogger("specgrove.target")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """What a target replica needs besides its engine."""

    card: ReplicaCard
    cluster_token: str
    """What a draft must present in its hello."""
    plan: DraftPlan | None = None
    """The most that drafts are asked for; None: this target always decodes plainly."""
    planner: Planner | None = None
    """Decides how much of `plan` is asked for at a time; None: always all of it."""
    draft_ahead: int | None = 0
    """Levels that drafts grow on while a tree is verified; None: some, where they are on other nodes."""
    lookup: LookupOptions | None = None
    """Guess also from what a session has said before; None: not."""
    contrary: bool = False
    """Whether requests may ask for drafts that are wrong on purpose: they spoil what is known of good ones."""
    max_tree_wait_s: float | None = None
    """Longest wait of a session for its tree; None: the rule of docs/adr/0001."""
    max_num_seqs: int = 64
    """Most choices that decode at once."""
    max_num_batched_tokens: int = 512
    """Most rows in one forward pass."""
    max_waiting: int = 1024
    """Most requests that wait for a place; one more is refused with CapacityError."""
    created: int = field(default_factory=lambda: int(time.time()))


def _profile(kept: Mapping[str, Any]) -> dict[str, AcceptanceEstimate]:
    """What an equal replica knows by workload class; empty when it is not in this version's form."""
    try:
        return {kind: AcceptanceEstimate.from_mapping(counts) for kind, counts in kept.items()}
    except (KeyError, TypeError, ValueError):
        return {}


class _Outlet:
    """Carries a job's events from the device thread to the coroutine that asked."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[GenerateEvent | SpecgroveError] = asyncio.Queue()

    def emit(self, events: Sequence[GenerateEvent | SpecgroveError]) -> None:
        """Called from the device thread."""
        try:
            self._loop.call_soon_threadsafe(self._put, tuple(events))
        except RuntimeError:  # the asking loop is closed: nobody is left to read
            log.debug("dropped %d events of a closed loop", len(events))

    def _put(self, events: Sequence[GenerateEvent | SpecgroveError]) -> None:
        for event in events:
            self.queue.put_nowait(event)


class TargetReplica:
    """Implements core.protocols.Backend and core.protocols.DraftHub for one engine."""

    def __init__(self, engine: Engine, options: TargetOptions, observer: TargetObserver) -> None:
        self.engine = engine
        self.options = options
        self._drafts = Drafts(
            vocab_size=engine.card.vocab_size,
            observer=observer,
            max_wait_s=options.max_tree_wait_s,
            plans=Plans(
                options.planner,
                observer,
                guess_tokens=options.lookup.tokens if options.lookup else None,
                ahead=options.draft_ahead,
            ),
            node=options.card.node,
        )
        self._loop = StepLoop(
            engine,
            self._drafts,
            observer,
            plan=options.plan,
            max_num_seqs=options.max_num_seqs,
            max_batched_tokens=options.max_num_batched_tokens,
        )
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._draining = False
        self._drained: asyncio.Event | None = None
        self._live: dict[int, Job] = {}
        self._draft_cards: tuple[ReplicaCard, ...] = ()
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="specgrove-target", daemon=True)

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the device thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step; requests that still run end with Unavailable."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout=30)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new requests and wait for live ones; true when all ended within `grace_s` seconds."""
        self._draining = True
        self._drained = asyncio.Event()
        if self._live:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), grace_s)
        return not self._live

    def healthy(self, *, stuck_after_s: float = 60.0) -> bool:
        """The device thread lives, and no step has been running for `stuck_after_s` seconds."""
        return self._thread.is_alive() and (not self._live or time.monotonic() - self._beat < stuck_after_s)

    def load(self) -> Load:
        """What the heartbeat reports."""
        stats = self.engine.pool.stats()
        jobs = list(self._live.values())
        running = [job for job in jobs if job.sequence is not None or job.prefilled]
        return Load(
            running=sum(max(1, len(job.unfinished)) for job in running),
            waiting=len(jobs) - len(running),
            queued_tokens=sum(len(job.prompt) if not job.prefilled else job.request.n for job in jobs),
            kv_slots_used=stats.referenced,
            kv_slots_total=stats.total,
            draining=self._draining,
            drafts=tuple(card.replica for card in self._draft_cards),
        )

    async def share(self, others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Tell the planner what equal replicas know of their drafts; returns what this one knows, by workload class.

        What another version has written in another form is left out.
        """
        readable = [found for found in map(_profile, others) if found]
        loop, known = asyncio.get_running_loop(), asyncio.Future[dict[str, Any]]()

        def answer(found: dict[str, Any]) -> None:
            if not known.done():
                known.set_result(found)

        def exchange() -> None:
            planner = self.options.planner
            if planner is not None:
                planner.adopt(readable)
            loop.call_soon_threadsafe(answer, planner.known() if planner is not None else {})

        self._post(exchange)
        return await known

    # -- Backend ------------------------------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """Events of one request, ending with Finished. Closing the iterator cancels the request."""
        self._check_open(request)
        outlet = _Outlet()
        job = await asyncio.to_thread(
            accept,
            request,
            self.engine,
            plan=self.options.plan,
            max_num_seqs=self.options.max_num_seqs,
            emit=outlet.emit,
            lookup=self.options.lookup,
            contrary=self.options.contrary,
        )
        self._live[id(job)] = job
        self._post(lambda: self._loop.submit(job))
        ended = False
        try:
            while not ended:
                event = await outlet.queue.get()
                if isinstance(event, SpecgroveError):
                    ended = True
                    raise event
                ended = isinstance(event, Finished)
                yield event
        finally:
            self._live.pop(id(job), None)
            if self._drained is not None and not self._live:
                self._drained.set()
            if not ended:
                self._post(lambda: self._loop.cancel(job))

    def _check_open(self, request: GenerateRequest) -> None:
        if request.model not in self.options.card.served_names:
            names = ", ".join(self.options.card.served_names)
            raise ModelNotFound(f"model {request.model!r} is not served here; served: {names}", param="model")
        if self._draining or self._stopping:
            raise Unavailable("this replica is draining; ask another one")
        if len(self._live) >= self.options.max_waiting + self.options.max_num_seqs:
            raise CapacityError(f"{len(self._live)} requests are waiting or running; try again later")

    async def models(self) -> Sequence[ModelStatus]:
        """The one model of this replica."""
        return [
            ModelStatus(
                name=name,
                replicas=(self.options.card,),
                loads=(self.load(),),
                drafts=self._draft_cards,
                state="unavailable" if self._draining else "ready",
                created=self.options.created,
            )
            for name in self.options.card.served_names
        ]

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of a text. A long one takes seconds, so it must not hold up the loop that hears the drafts."""
        return await asyncio.to_thread(self.engine.codec.encode, text, add_special_tokens=add_special_tokens)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids."""
        if (wrong := next((t for t in tokens if not 0 <= t < self.engine.card.vocab_size), None)) is not None:
            raise RequestError(f"token id {wrong} is outside the vocabulary", param="tokens")
        return await asyncio.to_thread(self.engine.codec.decode, tokens, skip_special_tokens=False)

    # -- DraftHub -----------------------------------------------------------------------------------------------------

    def attach(self, card: ReplicaCard, token: str, send: Callable[[Sequence[Update]], None]) -> Link:
        """Accept a draft that pairs with this target."""
        if not hmac.compare_digest(token.encode(), self.options.cluster_token.encode()):
            raise Unauthenticated(f"draft {card.replica} did not present the cluster's token")
        if why := self._cannot_pair(card):
            raise ProtocolError(why)
        link = Link(card, send, self._draft_sent)
        self._draft_cards = (*self._draft_cards, card)
        self._post(lambda: self._joined(link))
        log.info("draft %s connected", card.replica)
        return link

    def _cannot_pair(self, card: ReplicaCard) -> str | None:
        mine = self.options.card
        if card.protocol_version != PROTOCOL_VERSION:
            return f"draft {card.replica} speaks protocol {card.protocol_version}, this target {PROTOCOL_VERSION}"
        if card.noise_version != NOISE_VERSION:
            return f"draft {card.replica} has noise version {card.noise_version}, this target {NOISE_VERSION}"
        if mine.draft_pools and card.pool not in mine.draft_pools:
            return f"draft pool {card.pool} may not serve target pool {mine.pool}"
        return card.model.cannot_draft_for(mine.model)

    def _draft_sent(self, link: Link, messages: Sequence[DraftMessage] | None) -> None:
        if messages is None:
            self._draft_cards = tuple(card for card in self._draft_cards if card is not link.card)
            log.info("draft %s disconnected", link.card.replica)
            self._post(lambda: self._lost(link))
        else:
            self._post(lambda: self._drafts.receive(link, messages, time.perf_counter()))

    def _joined(self, link: Link) -> None:
        self._drafts.add(link)
        if self.options.planner is not None:
            self.options.planner.draft_came(link.card.replica, link.card.pass_s)

    def _lost(self, link: Link) -> None:
        if self.options.planner is not None:
            self.options.planner.draft_left(link.card.replica)
        for session in self._drafts.remove(link):
            if session.finished is None and session.job.prefilled:
                self._drafts.open(session, wants_tree=True, now=time.perf_counter())

    # -- device thread ------------------------------------------------------------------------------------------------

    def _post(self, event: Callable[[], None]) -> None:
        with self._wake:
            self._inbox.append(event)
            self._wake.notify()

    def _run(self) -> None:
        pause: float | None = None
        while True:
            with self._wake:
                if not self._inbox and not self._stopping and pause != 0.0:
                    self._wake.wait(pause)
                if self._stopping:
                    break
                arrived = [self._inbox.popleft() for _ in range(len(self._inbox))]
            self._beat = time.monotonic()
            try:
                for event in arrived:
                    event()
                pause = self._loop.step(time.perf_counter())
            except Exception as error:  # the actor loop: a bad step ends its requests, never the replica
                log.exception("target step failed; its requests end with an error")
                known = error if isinstance(error, SpecgroveError) else SpecgroveError("the target's step failed")
                self._loop.fail_all(known)
                pause = 0.0
        self._loop.fail_all(Unavailable("the replica stopped"))
