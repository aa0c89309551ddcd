"""A draft replica as a Serve deployment: engine and propose loop, and one stream to every target it may serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from specgrove.actors.dialer import Dialer
from specgrove.actors.identity import Identity, token_of, tune_process
from specgrove.actors.membership import Membership
from specgrove.actors.registry import Registry
from specgrove.config import Config
from specgrove.core.cards import ReplicaCard
from specgrove.planning.latency import Work
from specgrove.router.replicas import Candidate, cannot_draft_for, to_dial
from specgrove.rpc.clients import speculate
from specgrove.telemetry.metrics import DraftMetrics

log = logging.getLogger("specgrove.draft")

CONTEXT = 256
"""Context at which the card says what passes take, in tokens."""
WATCH_S = 1.0
"""Longest wait for news from the registry."""


class DraftServer:
    """Serve's user class. A draft needs no listener: it dials its targets."""

    async def __init__(self, pool: str, config: Mapping[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        # Only the replica's own process loads torch; whoever deploys this class does not.
        from specgrove.actors.loading import load_engine
        from specgrove.actors.profiling import latency_model
        from specgrove.draft.replica import DraftOptions, DraftReplica

        self._config = Config.from_mapping(config)
        self._pool = self._config.drafts[pool]
        tune_process(self._config)
        identity = Identity.of_this_process()
        self._stopped = False
        self._registry = Registry(identity.app, token_of(self._config))
        self._token = await self._registry.token()
        engine = await load_engine(self._config, self._pool)
        passes = await latency_model(
            self._registry, engine, threads=self._pool.cpu_threads, compiled=self._pool.compile
        )
        self._metrics = DraftMetrics(model_name=self._pool.model, replica=identity.replica)
        self._replica = DraftReplica(
            engine,
            DraftOptions(replica=identity.replica, max_batched_tokens=self._pool.max_num_batched_tokens),
            self._metrics,
        )
        self._replica.start()
        self._card = ReplicaCard(
            replica=identity.replica,
            role="draft",
            pool=pool,
            model=engine.card,
            draft_pools=(pool,),
            node=identity.node,
            pass_s={tokens: passes.seconds(Work(tokens, 1, CONTEXT)) for tokens in passes.knots},
        )
        self._membership = Membership(
            self._registry,
            self._card,
            self._replica.load,
            heartbeat_s=self._config.state.heartbeat_s,
            lease_s=self._config.state.lease_s,
        )
        await self._membership.join()
        self._dialer = Dialer(self._speak)
        self._told: dict[str, str] = {}
        self._following = asyncio.create_task(self._follow(), name="draft follows the registry")
        log.info("draft ready", extra={"replica": identity.replica})

    async def _speak(self, target: ReplicaCard) -> None:
        added_s = self._pool.added_rtt_ms / 1e3
        await speculate(target.speculate_address, self._card, self._token, self._replica, added_rtt_s=added_s)

    async def _follow(self) -> None:
        version = -1
        while True:
            try:
                snapshot = await self._registry.watch(version, wait_s=WATCH_S)
            except Exception as error:  # actor loop: without news the streams stay as they are
                log.warning("cannot reach the registry, trying on: %s", error)
                await asyncio.sleep(WATCH_S)
                continue
            if snapshot.version != version:
                live = [Candidate(one.card, one.load) for one in snapshot.replicas]
                self._dialer.want(to_dial(self._card, live, allowed=self._pool.targets))
                self._tell_refusals([one.card for one in live if one.card.role == "target"])
            version = snapshot.version

    def _tell_refusals(self, targets: Sequence[ReplicaCard]) -> None:
        """Log once per target why it is not dialled."""
        for target in targets:
            why = cannot_draft_for(self._card, target, allowed=self._pool.targets)
            if why is not None and self._told.get(target.replica) != why:
                self._told[target.replica] = why
                log.info("not drafting for %s: %s", target.replica, why)

    async def metrics(self) -> str:
        """This replica's exposition in Prometheus' text format."""
        self._metrics.observe_load(self._replica.load())
        return self._metrics.exposition().decode()

    async def check_health(self) -> None:
        """Serve replaces the replica when this raises."""
        if not self._replica.healthy() or self._following.done():
            raise RuntimeError(f"the propose loop of {self._card.replica} does not move any more")

    async def __del__(self) -> None:
        """Targets go on without this draft; nothing has to be waited for."""
        if self._stopped or not hasattr(self, "_following"):
            return
        self._stopped = True
        self._following.cancel()
        await self._membership.leave()
        await self._dialer.close()
        await asyncio.to_thread(self._replica.stop)
