"""From a configuration to the one Serve application: ingress, and every pool bound into its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application, Deployment

from specgrove.actors.draft import DraftServer
from specgrove.actors.identity import actor_options
from specgrove.actors.target import TargetServer
from specgrove.config import Config, IngressConfig, PoolConfig
from specgrove.deploy.ingress import Ingress
from specgrove.deploy.preflight import check_visible, only_bundled

HEALTH_PERIOD_S = 5.0
HEALTH_TIMEOUT_S = 20.0


def build(args: Mapping[str, Any]) -> Application:
    """The application of a configuration. Raises ConfigError in one sentence for whatever cannot work.

    A draft pool that no target may use is refused here too: it would load weights for nothing.
    """
    config = Config.from_mapping(args) if args else Config.bundled()
    if not only_bundled(config):
        check_visible(config)
    mapping = config.to_mapping()
    pools = {}
    for name, target in config.targets.items():
        pools[f"target-{name}"] = _pool(TargetServer, f"target-{name}", target, config).bind(name, mapping)
    for name, draft in config.drafts.items():
        pools[f"draft-{name}"] = _pool(DraftServer, f"draft-{name}", draft, config).bind(name, mapping)
    return _ingress(config.ingress, config).bind(mapping, pools)


def _pool(replica: type[Any], name: str, pool: PoolConfig, config: Config) -> Deployment:
    make = serve.deployment(
        name=name,
        num_replicas=pool.replicas,
        # Only metrics and broadcasts come through Serve; sessions have their own listener and admission.
        max_ongoing_requests=100,
        max_surge_percent=pool.max_surge_percent,
        ray_actor_options=actor_options(pool),
        health_check_period_s=HEALTH_PERIOD_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=config.drain_timeout_s,
    )
    return make(replica)


def _ingress(ingress: IngressConfig, config: Config) -> Deployment:
    make = serve.deployment(
        name="ingress",
        num_replicas=ingress.replicas,
        max_ongoing_requests=ingress.max_ongoing_requests,
        max_surge_percent=100,
        ray_actor_options={"num_cpus": ingress.num_cpus},
        health_check_period_s=HEALTH_PERIOD_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=config.drain_timeout_s,
    )
    return make(Ingress)
