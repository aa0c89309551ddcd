"""What a start leaves on this machine: ports, environment, processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specgrove.config import RECOMMENDED, Environment, ListenerConfig
from specgrove.deploy.cluster import running_cluster
from specgrove.deploy.ports import check_free, unused, unused_run
from specgrove.deploy.processes import alive, descendants, end, naming
from specgrove.deploy.switches import PORTS, prepare
from specgrove.errors import ConfigError


def test_a_taken_port_is_one_sentence():
    """It names the port, the key and the option."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = unused(2)

        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use.*--grpc-port") as caught:
            check_free(ListenerConfig(http_port=free[0], grpc_port=port))

    assert caught.value.param == "listeners.grpc_port"
    check_free(ListenerConfig(http_port=free[0], grpc_port=free[1]))


def test_two_doors_need_two_ports():
    """The same port twice is refused although it is free."""
    [port] = unused(1)

    with pytest.raises(ConfigError, match="need two ports"):
        check_free(ListenerConfig(http_port=port, grpc_port=port))


def test_the_environment_of_our_own_ray(tmp_path: Path):
    """Recommended switches, side ports that are free, files in our directory, and nothing that was set is changed."""
    environ = {"RAY_AUTH_MODE": "token"}

    prepare(tmp_path, environ)

    assert environ["RAY_AUTH_MODE"] == "token"
    assert {name: environ[name] for name in RECOMMENDED} == dict(RECOMMENDED)
    assert len({environ[name] for name in PORTS}) == len(PORTS)
    assert environ["RAY_SERVE_HAPROXY_SOCKET_PATH"].startswith(f"{tmp_path}/")
    ends = [int(environ[f"RAY_SERVE_DIRECT_INGRESS_{end}_GRPC_PORT"]) for end in ("MIN", "MAX")]
    assert 23_000 <= ends[0] < ends[1] < 30_000


def test_haproxy_takes_its_arguments_and_can_be_another_one(tmp_path: Path):
    """Ours is a script in front of the packaged one; a path that somebody has set stays."""
    ours: dict[str, str] = {}
    prepare(tmp_path, ours)
    answer = subprocess.run([ours["RAY_SERVE_HAPROXY_BINARY_PATH"], "-v"], capture_output=True, text=True, check=True)
    theirs = {"RAY_SERVE_HAPROXY_BINARY_PATH": "/opt/haproxy"}
    prepare(tmp_path, theirs)

    assert "HAProxy version" in answer.stdout
    assert theirs["RAY_SERVE_HAPROXY_BINARY_PATH"] == "/opt/haproxy"


def test_ports_in_a_row_are_free():
    """Serve would share a taken one with its owner, and each would get the other's calls."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        for _ in range(20):
            first = unused_run(2, range(port - 3, port + 4))
            assert port not in (first, first + 1)
        with pytest.raises(ConfigError, match="no 2 free ports in a row"):
            unused_run(2, range(port - 1, port + 2))


def test_orphans_are_found_by_what_they_name(tmp_path: Path):
    """A process that names our directory in its command line or its environment, whoever its parent is."""
    sleep = ["-c", "import time; time.sleep(60)"]
    told = subprocess.Popen([sys.executable, *sleep, str(tmp_path)])
    heir = subprocess.Popen([sys.executable, *sleep], env={"PLACE": f"{tmp_path}/h"})
    other = subprocess.Popen([sys.executable, *sleep])
    try:
        found = naming(str(tmp_path))
        assert {told.pid, heir.pid} == {one.pid for one in found}

        end(found, within_s=0.0)

        assert not any(alive(one) for one in found)
        assert other.poll() is None
    finally:
        for process in (told, heir, other):
            process.kill()
            process.wait()


def test_which_ray(tmp_path: Path):
    """RAY_ADDRESS first; then what `ray start` noted, if it still answers; else one of our own."""
    current = tmp_path / "ray_current_cluster"
    assert running_cluster(Environment(), current) is None
    with socket.socket() as gcs:
        gcs.bind(("127.0.0.1", 0))
        gcs.listen()
        address = f"127.0.0.1:{gcs.getsockname()[1]}"
        current.write_text(address)
        assert running_cluster(Environment(), current) == address
        assert running_cluster(Environment(ray_address="local"), current) is None
        assert running_cluster(Environment(ray_address="h:1"), current) == "h:1"

    assert running_cluster(Environment(), current) is None


def test_descendants_are_found_and_ended():
    """Children and grandchildren, by id and start time; one that ends by itself is not killed."""
    others = descendants()  # the shared server, when it runs
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        limit = time.monotonic() + 10
        while len(found := [one for one in descendants() if one not in others]) < 2 and time.monotonic() < limit:
            time.sleep(0.05)
        assert child.pid in {one.pid for one in found}
        assert len(found) == 2

        end(found, within_s=0.0)

        assert child.wait(5) == -9
    assert not set(found) & set(descendants())
