"""The ingress deployment: the HTTP app and the gRPC methods, both over one IngressBackend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from specgrove.actors.identity import Identity, token_of, tune_process
from specgrove.actors.registry import Registry
from specgrove.config import Config, Environment, secret
from specgrove.core.cards import ReplicaCard
from specgrove.deploy.backend import IngressBackend
from specgrove.deploy.fleet import Fleet
from specgrove.http.app import create_app
from specgrove.rpc.clients import TargetClient
from specgrove.rpc.doors import ServedGeneration
from specgrove.rpc.health import HealthServicer
from specgrove.telemetry.exposition import merge

log = logging.getLogger("specgrove.ingress")

METRICS_WAIT_S = 5.0
"""A replica that does not answer for so long is left out of /metrics."""


@serve.ingress()
class Ingress(ServedGeneration, HealthServicer):
    """Serve's user class. Serve calls a gRPC method by its name; HTTP goes to the app from __serve_build_asgi_app__."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, config: Mapping[str, Any], pools: Mapping[str, DeploymentHandle[Any]]
    ) -> None:
        self._config = Config.from_mapping(config)
        tune_process(self._config)
        _name_missing_switches()
        self._pools = pools
        self._keys = tuple(secret(key, key="api_keys") for key in self._config.api_keys)
        identity = Identity.of_this_process()
        registry = Registry(identity.app, token_of(self._config))
        connect = partial(_connect, token=await registry.token())
        self._fleet = Fleet(registry, connect, node=identity.node)
        self._fleet.start()
        self._front = IngressBackend(self._config, self._fleet)
        max_bytes = self._config.ingress.max_body_bytes
        ServedGeneration.__init__(self, self._front, api_keys=self._keys, max_bytes=max_bytes)
        HealthServicer.__init__(self, self._serving)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The HTTP door; Serve asks for it by this name."""
        return create_app(
            self._front,
            api_keys=self._keys,
            metrics=self.metrics,
            max_body_bytes=self._config.ingress.max_body_bytes,
        )

    async def metrics(self) -> str:
        """The expositions of all replicas of all pools as one text."""
        texts = await asyncio.gather(*(self._expositions(name) for name in self._pools))
        return merge([text for pool in texts for text in pool])

    async def _expositions(self, pool: str) -> list[str]:
        try:
            answers = self._pools[pool].broadcast("metrics")
            return await asyncio.wait_for(answers.results_async(timeout_s=METRICS_WAIT_S), METRICS_WAIT_S + 1.0)
        except Exception as error:  # the middleware of /metrics: one pool that is away must not hide the others
            log.warning("no metrics from %s: %s", pool, error)
            return []

    def _serving(self) -> bool:
        return self._front.ready

    async def check_health(self) -> None:
        """Serve replaces the replica when this raises."""
        if not self._fleet.alive:
            raise RuntimeError("the ingress does not follow the registry any more")

    async def __del__(self) -> None:
        """Serve has waited for the requests of both doors before it calls this."""
        if hasattr(self, "_front"):
            await self._fleet.close()


def _name_missing_switches() -> None:
    """A replica has the environment of its node, so this is where it shows how the cluster was started."""
    if missing := Environment.read().missing:
        names = " ".join(f"{name}=1" for name in missing)
        log.warning("this node's Ray was started without %s: all works, but both doors are several times slower", names)


def _connect(card: ReplicaCard, *, token: str) -> TargetClient:
    """Replicas take requests from the cluster's own ingress only, or API keys could be bypassed."""
    return TargetClient(card.generate_address, replica=card.replica, api_key=token)
