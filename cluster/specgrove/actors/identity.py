"""Who and where this replica is, and how its process must be tuned before it serves."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import ray
from ray import serve

from specgrove.config import Config, PoolConfig, secret
from specgrove.telemetry.logs import setup_logging

SWITCH_INTERVAL_S = 0.0005
"""The device thread and asyncio share the interpreter lock; with CPython's default (5 ms) a message can wait for a
whole slice of the other thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One replica as Serve and Ray know it."""

    app: str
    replica: str
    """Unique: deployment name and Serve's own replica id."""
    node: str
    """Address of the node."""

    @classmethod
    def of_this_process(cls) -> Identity:
        """Works inside a Serve replica only."""
        context = serve.get_replica_context()
        return cls(
            app=context.app_name,
            replica=f"{context.deployment}#{context.replica_id.unique_id}",
            node=ray.util.get_node_ip_address(),
        )


def tune_process(config: Config) -> None:
    """Logging and thread switching of a replica's process."""
    setup_logging(level=config.log.level.upper(), form=config.log.format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def token_of(config: Config) -> str | None:
    """The configured cluster token; None when one is to be made."""
    return secret(config.cluster_token, key="cluster_token") if config.cluster_token else None


def actor_options(pool: PoolConfig) -> dict[str, Any]:
    """What Ray must know to place and start one replica of a pool."""
    resources = pool.resources
    return {
        "num_cpus": resources.num_cpus,
        "num_gpus": pool.gpus,
        "resources": dict(resources.custom),
        "runtime_env": {"env_vars": thread_environment(pool.cpu_threads)},
    }


def thread_environment(threads: int) -> dict[str, str]:
    """Variables for a replica's process.

    Idle OpenMP threads must sleep beside the asyncio thread and the other replicas of the node, but spin for some ten
    microseconds first: a forward pass is hundreds of parallel loops, and waking a thread for each of them costs up to a
    quarter of its time.
    """
    counts = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return counts | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0"}
