"""Environment of the Ray that we start ourselves. Serve reads most of it when it is imported, so this comes first."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from specgrove.config import RECOMMENDED
from specgrove.deploy.ports import unused, unused_run

PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
"""Side ports of Serve's that are fixed by default, so that a second server on the machine would not start."""

INGRESS_PORTS, INGRESS_RANGE = 64, range(23_000, 30_000)
"""Ports for the gRPC listeners of ingress replicas, and where they may lie: below those of outgoing connections."""


def prepare(scratch: Path, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what is not set yet. scratch: short path of a directory of our own (unix sockets have short names)."""
    first = unused_run(INGRESS_PORTS, INGRESS_RANGE)
    wanted = {
        **RECOMMENDED,
        "RAY_AUTH_MODE": "disabled",  # token mode would write ~/.ray/auth_token for a cluster that nobody else sees
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.5",  # there is one HAProxy, on this machine
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{scratch}/h/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{scratch}/h/admin.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": f"{scratch}/h",
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{scratch}/h/server-state",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{scratch}/h/metrics.sock",
        # Serve opens these with SO_REUSEPORT: on ports of another server, clients would get either one's answers.
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(first + INGRESS_PORTS - 1),
        **{name: str(port) for name, port in zip(PORTS, unused(len(PORTS)), strict=True)},
    }
    for name, value in wanted.items():
        environ.setdefault(name, value)
