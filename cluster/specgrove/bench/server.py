"""A server of its own for a measurement: `specgrove serve` in another process, on free loopback ports."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from specgrove.client import Client
from specgrove.errors import SpecgroveError, Unavailable


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: a client of its gRPC door, and where its metrics are."""

    client: Client
    http: str
    """host:port of the HTTP door."""

    def metrics(self) -> dict[str, float]:
        """Every counter and gauge by its name, summed over replicas and labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30.0) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.type in ("counter", "gauge") and math.isfinite(sample.value):
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found


@contextlib.contextmanager
def serving(config: Mapping[str, Any], *, start_s: float = 300.0) -> Iterator[Served]:
    """Serve `config` for the length of the block.

    The listeners are ours to choose. Raises Unavailable with the end of the server's output when it does not start.
    """
    http, grpc = free_port(), free_port()
    mapping = dict(config) | {"listeners": {"http_port": http, "grpc_port": grpc}}
    with tempfile.TemporaryDirectory(prefix="specgrove-bench-") as folder:
        path, output = Path(folder, "config.yaml"), Path(folder, "server.log")
        path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
        with output.open("wb") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "specgrove.cli", "serve", "--config", str(path)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            with Client(f"127.0.0.1:{grpc}", timeout_s=30.0) as client:
                _wait(client, server, output, limit=time.monotonic() + start_s)
                yield Served(client, f"127.0.0.1:{http}")
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(timeout=60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(client: Client, server: subprocess.Popen[bytes], output: Path, *, limit: float) -> None:
    """Until every target is ready and has a draft, if it is to have one."""
    while time.monotonic() < limit and server.poll() is None:
        with contextlib.suppress(SpecgroveError):
            models = client.models()
            waits = [m for m in models if m.state != "ready" or (m.replicas[0].draft_pools and not m.drafts)]
            if models and not waits:
                return
        time.sleep(0.5)
    tail = output.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise Unavailable(f"the server did not start; the end of its output:\n{tail}")
