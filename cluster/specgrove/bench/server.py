"""A server of its own for a measurement: `specgrove serve` in another process, on free loopback ports."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from specgrove.client import Client
from specgrove.errors import SpecgroveError, Unavailable


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(config: Mapping[str, Any], *, start_s: float = 300.0) -> Iterator[Client]:
    """Serve `config` for the length of the block; yields a client of its gRPC door.

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
                yield client
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
