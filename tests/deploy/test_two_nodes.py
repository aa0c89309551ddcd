"""`serve deploy` on a Ray cluster of two nodes: placement, and a new configuration under traffic. Slow: two Rays."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live import Live, eventually

from specgrove.client import Client
from specgrove.core.request import Speculation
from specgrove.deploy import GRPC_SERVICES
from specgrove.deploy.ports import unused
from specgrove.deploy.processes import descendants, end
from specgrove.deploy.switches import prepare
from specgrove.errors import SpecgroveError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BIN = Path(sys.executable).parent
PROMPT = "Count from 3 to 17."


@dataclass(slots=True)
class Nodes:
    """A head node for targets and a second node for drafts, on one machine."""

    scratch: Path
    environ: dict[str, str] = field(default_factory=dict)
    head: subprocess.Popen[bytes] | None = None
    second: subprocess.Popen[bytes] | None = None
    dashboard: int = 0
    http: int = 0
    grpc: int = 0

    def ray(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`ray start ...` in the foreground of a process of its own."""
        return subprocess.Popen(
            [str(BIN / "ray"), "start", *arguments, "--block", "--disable-usage-stats"],
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def serve(self, *arguments: str) -> None:
        """A command of Serve's own."""
        environ = self.environ | {"RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{self.dashboard}"}
        subprocess.run([str(BIN / "serve"), *arguments], env=environ, check=True, capture_output=True, timeout=300)

    def deploy(self, args: dict[str, Any]) -> None:
        """`serve deploy` of a configuration."""
        path = self.scratch / "serve.yaml"
        application = {"name": "specgrove", "route_prefix": "/", "import_path": "specgrove.deploy:app", "args": args}
        path.write_text(
            yaml.safe_dump(
                {
                    "proxy_location": "HeadOnly",
                    "http_options": {"host": "127.0.0.1", "port": self.http},
                    "grpc_options": {"port": self.grpc, "grpc_servicer_functions": list(GRPC_SERVICES)},
                    "applications": [application],
                }
            )
        )
        self.serve("deploy", str(path))


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two Ray nodes with a dashboard; the first has the resource `target_node`, the second `draft_node`."""
    scratch = Path(tempfile.mkdtemp(prefix="sgt-", dir="/tmp"))
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "cluster")}
    prepare(scratch, environ)
    gcs, dashboard, client, http, grpc = unused(5)
    nodes = Nodes(scratch, environ, dashboard=dashboard, http=http, grpc=grpc)
    common = ("--num-cpus=8", "--object-store-memory=100000000")
    nodes.head = nodes.ray(
        "--head", f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}",
        f"--temp-dir={scratch}/r", '--resources={"target_node": 100}', "--min-worker-port=25000",
        "--max-worker-port=26999", *common,
    )  # fmt: skip
    try:
        eventually(lambda: _answers(nodes), within_s=120)
        nodes.second = nodes.ray(
            f"--address=127.0.0.1:{gcs}", '--resources={"draft_node": 100}', "--min-worker-port=27000",
            "--max-worker-port=28999", *common,
        )  # fmt: skip
        yield nodes
    finally:
        with contextlib.suppress(subprocess.SubprocessError):
            nodes.serve("shutdown", "-y")
        for node in (nodes.second, nodes.head):
            if node is not None:
                started = descendants(node.pid)
                node.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    node.wait(40)
                end(started, within_s=5.0)
        shutil.rmtree(scratch, ignore_errors=True)


def _answers(nodes: Nodes) -> bool:
    with contextlib.suppress(subprocess.SubprocessError):
        nodes.serve("status")
        return True
    return False


def configuration(max_num_seqs: int) -> dict[str, Any]:
    """Targets on one node, the draft on the other."""

    def pool(model: str, node: str, **fields: Any) -> dict[str, Any]:
        resources = {"num_cpus": 0.1, "custom": {node: 1.0}}
        return {"model": model, "dtype": "float32", "threads": 1, "resources": resources, **fields}

    return {
        "models": {name: name for name in ("grove-large", "grove-small", "grove-draft")},
        "targets": {
            "grove-large": pool("grove-large", "target_node", max_num_seqs=max_num_seqs),
            "grove-small": pool("grove-small", "target_node", max_num_seqs=max_num_seqs, max_surge_percent=100),
        },
        "drafts": {"grove-draft": pool("grove-draft", "draft_node")},
        "ingress": {"wait_for_replica_s": 240.0},
    }


def ready(nodes: Nodes) -> bool:
    """Every model has a replica and a draft."""
    with contextlib.suppress(SpecgroveError), Client(f"127.0.0.1:{nodes.grpc}", max_attempts=1, timeout_s=5) as client:
        return all(one.state == "ready" and one.drafts for one in client.models())
    return False


def replicas(nodes: Nodes) -> dict[str, set[str]]:
    """Replica names by model."""
    with Client(f"127.0.0.1:{nodes.grpc}") as client:
        return {one.name: {card.replica for card in one.replicas} for one in client.models()}


def test_draft_and_target_are_on_separate_nodes(nodes: Nodes):
    """Where the resources say so; and they work together all the same."""
    nodes.deploy(configuration(8))
    eventually(lambda: ready(nodes), within_s=300)
    assert nodes.head is not None
    assert nodes.second is not None
    config: Any = None
    head, second = (Live("", "", node.pid, config, nodes.scratch) for node in (nodes.head, nodes.second))

    assert head.replicas("target-grove-large")
    assert not head.replicas("draft-grove-draft")
    assert second.replicas("draft-grove-draft")
    assert not second.replicas("target-grove-large")
    with Client(f"127.0.0.1:{nodes.grpc}") as client:
        reply = client.complete("grove-large", PROMPT, max_tokens=24, temperature=0.0, ignore_eos=True)
    assert reply.choices[0].stats.num_drafts > 0


@contextlib.contextmanager
def traffic(nodes: Nodes) -> Iterator[None]:
    """Streams of all models for the length of the block; each must end with the right text."""
    asked = {"max_tokens": 200, "temperature": 0.7, "seed": 5, "ignore_eos": True}
    expected: dict[str, str] = {}
    with Client(f"127.0.0.1:{nodes.grpc}") as client:
        for model in (one.name for one in client.models()):
            expected[model] = client.complete(model, PROMPT, speculation=Speculation(mode="off"), **asked).text
    outcomes: list[str] = []
    stop = threading.Event()

    def ask(model: str) -> None:
        with Client(f"127.0.0.1:{nodes.grpc}", max_attempts=1) as client:
            while not stop.is_set():
                try:
                    same = client.complete(model, PROMPT, timeout_s=300.0, **asked).text == expected[model]
                    outcomes.append("right" if same else "wrong text")
                except SpecgroveError as error:
                    outcomes.append(f"{model}: {error.code}: {error.message}")

    threads = [threading.Thread(target=ask, args=(model,)) for model in expected for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
        eventually(lambda: len(outcomes) > 8, within_s=200)  # some began before, and some after what happened
    finally:
        stop.set()
        for thread in threads:
            thread.join(320)
    assert len(outcomes) > 8
    assert set(outcomes) == {"right"}, json.dumps(sorted(set(outcomes)))


def test_a_new_configuration_under_traffic_fails_no_request(nodes: Nodes):
    """Live streams end with the right text while all replicas are replaced, with and without surge."""
    before = replicas(nodes)

    def replaced() -> bool:
        now = replicas(nodes)
        return all(now[model] and not now[model] & before[model] for model in before) and ready(nodes)

    with traffic(nodes):
        nodes.deploy(configuration(16))
        eventually(replaced, within_s=400)


def test_stopping_a_replica_finishes_its_streams(nodes: Nodes):
    """One of two targets goes away under traffic."""
    two, one = configuration(16), configuration(16)
    two["targets"]["grove-small"]["replicas"] = 2
    nodes.deploy(two)
    eventually(lambda: ready(nodes) and len(replicas(nodes)["grove-small"]) == 2, within_s=300)

    with traffic(nodes):
        nodes.deploy(one)
        eventually(lambda: len(replicas(nodes)["grove-small"]) == 1, within_s=200)
