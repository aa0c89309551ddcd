"""Starts that cannot work end with one sentence, before Ray runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specgrove.deploy.ports import unused


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`specgrove serve ...` with a Ray of its own, to its end."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "cluster"), "RAY_ADDRESS": "local"}
    command = [sys.executable, "-m", "specgrove.cli", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environ)


def error(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence."""
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


def test_a_taken_port():
    """Known at once."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert f"port {port} on 127.0.0.1 is in use" in error(start("--port", str(port)))


@pytest.mark.timeout(240)
def test_a_missing_directory_and_an_unknown_key(tmp_path: Path):
    """Each by its name."""
    http, grpc = unused(2)
    doors = ("--port", str(http), "--grpc-port", str(grpc))
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": "/nonexistent/m"}, "targets": {"t": {"model": "m", "nope": 1}}}))

    assert "config targets.t.nope: unknown key" in error(start("--config", str(path)))
    assert "/nonexistent/model does not exist" in error(start("/nonexistent/model", *doors))
