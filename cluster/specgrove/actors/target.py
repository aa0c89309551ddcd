"""A target replica as a Serve deployment: engine, step loop, two gRPC listeners and a place in the registry."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from specgrove.actors.identity import Identity, token_of, tune_process
from specgrove.actors.membership import Membership
from specgrove.actors.registry import Registry
from specgrove.config import Config, TargetConfig
from specgrove.core.cards import ReplicaCard
from specgrove.core.speculate import DraftPlan
from specgrove.rpc.servers import GenerateServer, SpeculateServer
from specgrove.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from specgrove.engine.runner import Engine
    from specgrove.planning.planner import Planner
    from specgrove.target.guesses import LookupOptions
    from specgrove.target.replica import TargetOptions

log = logging.getLogger("specgrove.target")

FIRST_LEVEL = 0.3
"""A level of drafting, before a draft has told, in steps of the target over one token."""
SHARE_S = 10.0
PROFILE_FORM = 2
"""Part of the key of what replicas share; another number for another form."""
PROFILE_AGE_S = 600.0
"""Age from which what another replica knew of its drafts is not taken over: they may have changed."""
"""Between two exchanges of what is known of the drafts."""
STOP_MARGIN_S = 5.0
"""Part of drain_timeout_s kept back for closing the listeners: Serve kills a replica when its time is over."""


def draft_plan(pool: TargetConfig) -> DraftPlan | None:
    """What this pool asks of drafts; None when it decodes plainly."""
    asked = pool.speculative_config
    if asked is None or not asked.shape:
        return None
    return DraftPlan(
        method="chain" if asked.kind == "chain" else "tree",
        branching=asked.shape,
        max_nodes=asked.nodes,
    )


def lookup_options(pool: TargetConfig) -> LookupOptions | None:
    """How this pool's targets guess from the text itself; None: not."""
    from specgrove.target.guesses import LookupOptions

    asked = pool.speculative_config
    if asked is None or not asked.looks_up:
        return None
    tokens = asked.num_speculative_tokens if asked.kind == "ngram" else None
    return LookupOptions(asked.prompt_lookup_min, asked.prompt_lookup_max, tokens)


def max_tree_wait_s(pool: TargetConfig) -> float | None:
    """The pool's own limit on waiting for a tree, in seconds; None: the rule of docs/adr/0001."""
    asked = pool.speculative_config
    if asked is None or asked.max_tree_wait_ms is None:
        return None
    return asked.max_tree_wait_ms / 1e3


class TargetServer:
    """Serve's user class. Serve places, watches and replaces it; requests go straight to its gRPC listener."""

    async def __init__(self, pool: str, config: Mapping[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        # Only the replica's own process loads torch; whoever deploys this class does not.
        from specgrove.actors.loading import load_engine
        from specgrove.target.replica import TargetReplica

        self._config = Config.from_mapping(config)
        self._pool = self._config.targets[pool]
        tune_process(self._config)
        self._identity = Identity.of_this_process()
        self._stopped = False
        self._registry = Registry(self._identity.app, token_of(self._config))
        token = await self._registry.token()
        engine = await load_engine(self._config, self._pool)
        self._metrics = Metrics(model_name=self._pool.served_names[0], replica=self._identity.replica)
        card = self._card(pool, engine)
        planner = await self._planner(engine)
        self._replica = TargetReplica(engine, self._options(card, token, planner), self._metrics)
        self._replica.start()
        card = await self._listen(card, token)
        self._membership = Membership(
            self._registry,
            card,
            self._replica.load,
            heartbeat_s=self._config.state.heartbeat_s,
            lease_s=self._config.state.lease_s,
        )
        await self._membership.join()
        self._sharing = asyncio.create_task(self._share(planner is not None), name="target shares its profile")
        log.info("target ready", extra={"replica": card.replica, "generate": card.generate_address})

    def _card(self, pool: str, engine: Engine) -> ReplicaCard:
        return ReplicaCard(
            replica=self._identity.replica,
            role="target",
            pool=pool,
            model=engine.card,
            served_names=self._pool.served_names,
            draft_pools=self._config.draft_pools(pool),
            node=self._identity.node,
        )

    async def _planner(self, engine: Engine) -> Planner | None:
        """Plans from what this machine can do, measured now or by an equal replica before; None for a fixed shape."""
        asked = self._pool.speculative_config
        if asked is None or asked.kind != "planned":
            return None
        from specgrove.actors.profiling import latency_model
        from specgrove.planning.drafting import Drafting
        from specgrove.planning.planner import Planner

        model = await latency_model(self._registry, engine, threads=self._pool.cpu_threads, compiled=self._pool.compile)
        guess = Drafting({1: FIRST_LEVEL * model.at_knots[0]})
        return Planner(model, most_nodes=asked.nodes, most_depth=len(asked.shape), drafting=guess)

    def _options(self, card: ReplicaCard, token: str, planner: Planner | None) -> TargetOptions:
        from specgrove.target.replica import TargetOptions

        return TargetOptions(
            card=card,
            cluster_token=token,
            plan=draft_plan(self._pool) if card.draft_pools else None,
            planner=planner,
            draft_ahead=None if self._pool.speculative_config is None else self._pool.speculative_config.draft_ahead,
            lookup=lookup_options(self._pool),
            contrary=self._pool.speculative_config is not None and self._pool.speculative_config.allow_contrary,
            max_tree_wait_s=max_tree_wait_s(self._pool),
            max_num_seqs=self._pool.max_num_seqs,
            max_num_batched_tokens=self._pool.max_num_batched_tokens,
        )

    async def _listen(self, card: ReplicaCard, token: str) -> ReplicaCard:
        """Open the two listeners; returns the card with their addresses."""
        listeners = self._config.listeners
        host = self._identity.node if listeners.replica_host == "node" else listeners.replica_host
        generate, speculate = (
            _own_order(ports, card.replica) for ports in (listeners.generate_range, listeners.speculate_range)
        )
        self._generate = GenerateServer(self._replica, host=host, ports=generate, api_keys=(token,))
        self._speculate = SpeculateServer(
            self._replica, card, host=host, ports=speculate, count=self._metrics.speculated
        )
        return replace(
            card,
            generate_address=await self._generate.start(),
            speculate_address=await self._speculate.start(),
        )

    async def _share(self, planned: bool) -> None:
        """Exchange what is known of the drafts with equal replicas, now and then."""
        prefix = f"acceptance/{PROFILE_FORM}/{self._replica.engine.card.weights_digest[:16]}/"
        key = prefix + self._identity.replica
        while planned:
            try:
                kept = await self._registry.kept(prefix)
                recent = [
                    profile["kinds"]
                    for other, profile in kept.items()
                    if other != key and time.time() - profile["at"] < PROFILE_AGE_S
                ]
                if known := await self._replica.share(recent):
                    await self._registry.keep(key, {"at": time.time(), "kinds": known})
            except Exception as error:  # actor loop: an unreachable registry costs knowledge only
                log.warning("could not share what is known of the drafts: %s", error)
            await asyncio.sleep(SHARE_S)

    async def metrics(self) -> str:
        """This replica's exposition in Prometheus' text format."""
        self._metrics.observe_load(self._replica.load())
        return self._metrics.exposition().decode()

    async def check_health(self) -> None:
        """Serve replaces the replica when this raises."""
        if not self._replica.healthy():
            raise RuntimeError(f"the step loop of {self._identity.replica} does not move any more")

    async def __del__(self) -> None:
        """Serve calls this once when the replica is told to stop, and kills the process when drain_timeout_s is over.

        Serve does not see the sessions on our own listener, so this is where they are waited for.
        """
        if self._stopped or not hasattr(self, "_membership"):
            return
        self._stopped = True
        self._sharing.cancel()
        draining = asyncio.create_task(self._replica.drain(max(0.0, self._config.drain_timeout_s - STOP_MARGIN_S)))
        await asyncio.sleep(0)  # drain() refuses new sessions from its first step on
        try:
            await self._membership.beat()
        except Exception as error:  # actor loop: an unreachable registry must not keep us from draining
            log.warning("could not announce the draining: %s", error)
        if not await draining:
            log.warning("stopping %s with live sessions: drain_timeout_s is over", self._identity.replica)
        await self._membership.leave()
        await self._generate.stop(1.0)
        await self._speculate.stop(0.5)
        await asyncio.to_thread(self._replica.stop)


def _own_order(ports: range, replica: str) -> list[int]:
    """The same ports, each replica beginning elsewhere, so that replicas of one node seldom try a taken one."""
    first = crc32(replica.encode()) % len(ports)
    return [*ports[first:], *ports[:first]]
