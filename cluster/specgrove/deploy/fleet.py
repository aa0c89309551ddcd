"""The ingress's live view of the replicas: who is there, how loaded, and one open client to each target."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from specgrove.core.cards import ReplicaCard
from specgrove.core.request import GenerateRequest
from specgrove.router.affinity import PrefixMemory, prompt_tokens
from specgrove.router.replicas import Candidate, shortest_wait, unreachable
from specgrove.rpc.clients import TargetClient
from specgrove.state import Announcement, Snapshot

log = logging.getLogger("specgrove.ingress")

WATCH_S = 0.5
"""Longest wait for news; loads are at most so much older than the replicas' own reports."""
SUSPECT_S = 2.0
"""A replica that failed a request gets no other for so long, unless it is the only one."""


class Watching(Protocol):
    """The part of the registry that a fleet needs."""

    async def watch(self, version: int, *, wait_s: float) -> Snapshot:
        """The replicas as soon as they change, at the latest after `wait_s` seconds."""


class Fleet:
    """Follows the registry; never asks it on the way of a request."""

    def __init__(self, registry: Watching, connect: Callable[[ReplicaCard], TargetClient], *, node: str = "") -> None:
        """node: address of this process's node, as in the replicas' cards."""
        self._registry = registry
        self._node = node
        self._connect = connect
        self._snapshot = Snapshot(version=-1, taken_at=0.0)
        self._received_at = time.time()
        self._clients: dict[tuple[str, str], TargetClient] = {}
        self._in_flight: Counter[str] = Counter()
        self._prefixes = PrefixMemory()
        self._suspects: dict[str, float] = {}
        self._told: set[str] = set()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the registry."""
        self._task = asyncio.create_task(self._follow(), name="ingress follows the registry")

    async def close(self) -> None:
        """Stop following and close all clients."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    @property
    def alive(self) -> bool:
        """Still following."""
        return self._task is not None and not self._task.done()

    @property
    def replicas(self) -> tuple[Announcement, ...]:
        """Live replicas, targets and drafts, ordered by name."""
        return self._snapshot.replicas

    def since(self, one: Announcement) -> int:
        """Unix seconds at which a replica registered."""
        return int(self._received_at - (self._snapshot.taken_at - one.registered_at))

    def pick(
        self, model: str, *, request: GenerateRequest | None = None, exclude: Collection[str] = ()
    ) -> ReplicaCard | None:
        """The live target with the shortest predicted wait; suspects only when nobody else is left.

        request: what it is wanted for, if its prompt is to be computed there.
        """
        candidates = [Candidate(one.card, one.load) for one in self._snapshot.replicas if self._reachable(one.card)]
        now = time.monotonic()
        suspects = {name for name, until in self._suspects.items() if until > now}
        held = self._prefixes.held(request) if request is not None else {}
        tokens = prompt_tokens(request) if request is not None else 0
        for excluded in ({*exclude, *suspects}, exclude):
            chosen = shortest_wait(
                model, candidates, in_flight=self._in_flight, prompt_tokens=tokens, held=held, exclude=excluded
            )
            if chosen is not None:
                if request is not None:
                    self._prefixes.remember(request, chosen.card.replica)
                return chosen.card
        return None

    def _reachable(self, card: ReplicaCard) -> bool:
        why = unreachable(card.generate_address, node=card.node, here=self._node)
        if why is not None and card.replica not in self._told:
            self._told.add(card.replica)
            log.error("cannot reach target %s: %s", card.replica, why)
        return why is None

    def client(self, card: ReplicaCard) -> TargetClient:
        """The open client of a target."""
        key = (card.replica, card.generate_address)
        if key not in self._clients:
            self._clients[key] = self._connect(card)
        return self._clients[key]

    @contextmanager
    def tracked(self, replica: str) -> Iterator[None]:
        """Counts one request of ours on a replica."""
        self._in_flight[replica] += 1
        try:
            yield
        finally:
            self._in_flight[replica] -= 1
            if not self._in_flight[replica]:
                del self._in_flight[replica]

    def suspect(self, replica: str) -> None:
        """A request on this replica has just failed."""
        self._suspects[replica] = time.monotonic() + SUSPECT_S

    async def news(self, wait_s: float) -> None:
        """Wait for the next snapshot, at most `wait_s` seconds."""
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            return

    async def _follow(self) -> None:
        failing = False
        while True:
            try:
                snapshot = await self._registry.watch(self._snapshot.version, wait_s=WATCH_S)
                failing = False
            except Exception as error:  # actor loop: without news we go on with what we know
                if not failing:
                    log.warning("cannot reach the registry, going on with the replicas known so far: %s", error)
                failing = True
                await asyncio.sleep(WATCH_S)
                continue
            await self._adopt(snapshot)

    async def _adopt(self, snapshot: Snapshot) -> None:
        known = {(one.card.replica, one.card.generate_address) for one in snapshot.replicas}
        self._snapshot, self._received_at = snapshot, time.time()
        news, self._news = self._news, asyncio.Event()
        news.set()
        for key in [key for key in self._clients if key not in known and not self._in_flight[key[0]]]:
            await self._clients.pop(key).close()
