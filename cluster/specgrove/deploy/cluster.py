"""Which Ray to use: one that runs, or one of our own. Imports nothing heavy."""

from __future__ import annotations

import socket
from pathlib import Path

from specgrove.config import Environment

CURRENT = Path("/tmp/ray/ray_current_cluster")
"""Where `ray start` notes its address."""


def running_cluster(environment: Environment, current: Path = CURRENT) -> str | None:
    """Address of the cluster to join: RAY_ADDRESS, or the one that `ray start` left running on this machine.

    None: there is none, or RAY_ADDRESS=local asks for one of our own.
    """
    if environment.ray_address is not None:
        return None if environment.ray_address == "local" else environment.ray_address
    try:
        address = current.read_text(encoding="utf-8").strip()
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=1.0):
            return address
    except (OSError, ValueError):
        return None
