"""A real server for tests: `specgrove serve` in a process of its own, with its own Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from specgrove.client import Client
from specgrove.config import Config
from specgrove.deploy.ports import unused
from specgrove.deploy.processes import Process, alive, descendants
from specgrove.errors import SpecgroveError

START_S = 300.0
"""A loaded machine of two cores starts seven Python processes that import torch or Ray."""


@dataclass(slots=True)
class Live:
    """A running server."""

    http: str
    """`http://host:port`."""
    grpc: str
    """`host:port`."""
    pid: int
    config: Config
    output: Path
    """What it has printed."""

    def client(self) -> Client:
        """A client of the gRPC door."""
        return Client(self.grpc)

    def replicas(self, deployment: str) -> list[Process]:
        """Processes of a deployment's replicas, such as `draft-grove-draft`."""
        title = f"ray::ServeReplica:specgrove:{deployment}"
        return [one for one in descendants(self.pid) if _title(one) == title]

    def kill(self, deployment: str) -> None:
        """Kill its replicas as a crash would."""
        for one in self.replicas(deployment):
            os.kill(one.pid, signal.SIGKILL)


def _title(one: Process) -> str:
    try:
        raw = Path(f"/proc/{one.pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip().split(".")[0]


def unreadable(live: Live) -> dict[str, tuple[grpc.StatusCode, str]]:
    """(status, details) of the gRPC door for bytes that are no message, by what is wrong with them."""
    found = {}
    with grpc.insecure_channel(live.grpc) as channel:
        service = "/specgrove.v1.GenerationService"
        for name, call, sent in (
            ("torn stream", channel.unary_stream(f"{service}/Generate"), b"\xff\xff\xff"),
            ("torn call", channel.unary_unary(f"{service}/Tokenize"), b"\xff\xff\xff"),
            ("invalid UTF-8", channel.unary_unary(f"{service}/Tokenize"), b"\x0a\x02\xff\xfe"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                list(call(sent, timeout=30))
            found[name] = (caught.value.code(), caught.value.details())
    return found


@contextlib.contextmanager
def serving(config: Mapping[str, Any], folder: Path, **environ: str) -> Iterator[Live]:
    """Serve a configuration for the length of the block, on free loopback ports; afterwards no process is left."""
    http_port, grpc_port = unused(2)
    whole = Config.from_mapping({**config, "listeners": {"http_port": http_port, "grpc_port": grpc_port}})
    path, output = folder / "config.yaml", folder / "output"
    path.write_text(yaml.safe_dump(whole.to_mapping()))
    command = [sys.executable, "-m", "specgrove.cli", "serve", "--config", str(path)]
    root = Path(__file__).parents[1] / "cluster"
    with output.open("wb") as sink:
        server = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(root), "RAY_ADDRESS": "local", **environ},
        )
    live = Live(f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}", server.pid, whole, output)
    started: list[Process] = []
    try:
        _await_ready(live, server)
        yield live
    finally:
        started = descendants(server.pid)
        server.send_signal(signal.SIGINT)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise
    left = [one for one in started if alive(one)]  # what has ended may wait for init to take note of it
    assert not left, f"left behind: {left}"


def _await_ready(live: Live, server: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_S
    drafts = bool(live.config.drafts)
    while time.monotonic() < limit:
        if server.poll() is not None:
            raise AssertionError(f"the server ended:\n{live.output.read_text()[-2000:]}")
        with contextlib.suppress(SpecgroveError), Client(live.grpc, max_attempts=1, timeout_s=5.0) as client:
            served = client.models()
            if all(one.state == "ready" and (one.drafts or not drafts) for one in served):
                return
        time.sleep(0.5)
    raise AssertionError(f"the server is not ready after {START_S:.0f} s:\n{live.output.read_text()[-2000:]}")


def eventually(true: Any, within_s: float = 10.0) -> None:
    """Wait until `true()` holds; AssertionError after `within_s` seconds."""
    limit = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < limit, f"not within {within_s} s"
        time.sleep(0.05)
