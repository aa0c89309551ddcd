"""A server that is stopped or killed at any moment of its life leaves no process behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.live import eventually

from specgrove.deploy.ports import unused
from specgrove.deploy.processes import Process, alive, descendants, naming, title

ROOT = Path(__file__).parents[2] / "cluster"
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")
"""Processes of Ray's that outlive a killed server for about a minute."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Run:
    """`specgrove serve` on the bundled models, the head of a process group of its own."""

    def __init__(self, output: Path) -> None:
        http, grpc = unused(2)
        self._mark = f"specgrove-test-{uuid.uuid4().hex}"
        self._seen: set[Process] = set()
        self.output = output
        with output.open("wb") as sink:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "specgrove.cli", "serve", f"--port={http}", f"--grpc-port={grpc}"],
                stdout=sink,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local", "SPECGROVE_TEST": self._mark},
                start_new_session=True,
            )

    def processes(self) -> set[Process]:
        """All that it has started, as far as anybody can tell, and that still run."""
        self._seen |= {*descendants(self.server.pid), *naming(self._mark)}
        return {one for one in self._seen if alive(one)}

    def ends(self, *, within_s: float, besides: Sequence[str] = ()) -> None:
        """Fails when processes with other names than `besides` still run after `within_s` seconds."""
        limit = time.monotonic() + within_s
        while left := {name: one.pid for one in self.processes() if (name := title(one)) not in ("", *besides)}:
            assert time.monotonic() < limit, f"left: {left}\n{self.output.read_text()}"
            time.sleep(0.1)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A server that has just been started; whatever the test leaves is killed."""
    run = Run(tmp_path / "output")
    yield run
    for one in run.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    run.server.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.5, 2.5, 4.0, 8.0, 14.0, 45.0])
def test_a_signal_to_the_group_leaves_no_process(run: Run, after_s: float, number: signal.Signals):
    """As a shell, a terminal or `timeout` sends it: Ray's own processes get it too, some of them before us."""
    time.sleep(after_s)
    run.processes()
    assert run.server.poll() is None, run.output.read_text()

    os.killpg(run.server.pid, number)

    run.server.wait(40)
    run.ends(within_s=10.0)


def test_a_killed_server_leaves_no_process(run: Run):
    """Nobody can clean up then; Linux does, because every process is bound to the one that started it.

    Two agents of Ray's that hold nothing of ours notice it in their own time, after a minute or so.
    """
    eventually(lambda: "Ctrl-C stops everything" in run.output.read_text(), within_s=200.0)
    assert any("haproxy" in title(one) for one in run.processes())

    run.server.kill()

    run.server.wait(10)
    run.ends(within_s=20.0, besides=AGENTS)


def test_a_server_whose_ray_died_says_so_and_ends(run: Run):
    """It would wait for ever in front of doors that nobody answers."""
    eventually(lambda: "Ctrl-C stops everything" in run.output.read_text(), within_s=200.0)
    [heart] = [one for one in run.processes() if title(one) == "gcs_server"]

    os.kill(heart.pid, signal.SIGKILL)

    assert run.server.wait(40) == 1
    assert "Ray has died" in run.output.read_text()
    run.ends(within_s=10.0)
