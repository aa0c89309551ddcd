"""The replicas' own listener takes requests from the cluster's ingress only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.live import Live

from specgrove.client import Client
from specgrove.errors import Unauthenticated


def listening(pid: int) -> list[int]:
    """Ports on which a process listens."""
    out = subprocess.run(["ls", "-l", f"/proc/{pid}/fd"], capture_output=True, text=True, check=True).stdout
    inodes = set(re.findall(r"socket:\[(\d+)\]", out))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    return [int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes]


def test_api_keys_cannot_be_bypassed(cluster: Live):
    """Whoever reaches a replica's Generate port without the cluster's token is refused."""
    first, last = (int(part) for part in cluster.config.listeners.generate_ports.split("-"))
    (replica,) = cluster.replicas("target-grove-large")
    (port,) = [port for port in listening(replica.pid) if first <= port <= last]

    with Client(f"127.0.0.1:{port}") as stranger, pytest.raises(Unauthenticated):
        stranger.complete("grove-large", "hello", max_tokens=1)
