"""`specgrove serve`: our application on a local Ray that lives as long as we do, or on a cluster that already runs.

Call switches.prepare() before this module is imported.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions, gRPCOptions
from ray.serve.schema import ApplicationStatusOverview

from specgrove.config import Config, Environment
from specgrove.deploy import APP_NAME, GRPC_SERVICES
from specgrove.deploy.builder import build
from specgrove.deploy.preflight import check_all, only_bundled
from specgrove.deploy.processes import Process, alive, descendants, end, naming, title
from specgrove.errors import ConfigError, SpecgroveError, Unavailable

log = logging.getLogger("specgrove.deploy")

POLL_S = 0.3
OBJECT_STORE_BYTES = 80 * 2**20
"""Ray's least; nothing of ours goes through its object store."""
STOP_S = 20.0
"""Longest graceful stop; after it, what is left of our own Ray is killed."""

Progress = Callable[[Mapping[str, str]], None]
"""Gets the state of every deployment by name whenever one changes."""


class LocalServer:
    """One deployment of our application; close() undoes what start() did and nothing else."""

    def __init__(self, config: Config, *, address: str | None, scratch: Path) -> None:
        self._config = config
        self._address = address
        self._scratch = scratch
        self._connected = False
        self._head: list[Process] = []
        """The heart of a Ray of our own; empty where there is no /proc to find it in."""
        self._threads: list[threading.Thread] = []

    @property
    def owns_ray(self) -> bool:
        """Ray runs for us alone."""
        return self._address is None

    @property
    def died(self) -> bool:
        """A Ray of our own is gone; what it served is, too."""
        return bool(self._head) and not any(map(alive, self._head))

    def start(self, progress: Progress, heed: Callable[[], None]) -> None:
        """Start Ray if need be, then Serve, then the application; returns when every replica is ready.

        `heed` is called again and again in this thread and breaks off the start by raising. Raises ConfigError and
        UnsupportedModel from a replica, Unavailable when the cluster cannot be reached.
        """
        if self.owns_ray and not only_bundled(self._config):
            progress({"models": "checking"})
            check_all(self._config)
            progress({"models": "ready"})
        application = build(self._config.to_mapping())
        progress({"ray": "starting" if self.owns_ray else "connecting"})
        self._connect()
        heed()
        progress({"ray": "ready", "serve": "starting"})
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        self._aside(self._start_serve, heed)
        self._aside(
            lambda: serve.run(application, name=APP_NAME, route_prefix="/"), heed, watch=lambda: progress(_states())
        )

    def _start_serve(self) -> None:
        listeners = self._config.listeners
        serve.start(
            proxy_location="HeadOnly" if self.owns_ray else "EveryNode",
            http_options=HTTPOptions(host=listeners.host, port=listeners.http_port),
            grpc_options=gRPCOptions(port=listeners.grpc_port, grpc_servicer_functions=list(GRPC_SERVICES)),
        )

    def _connect(self) -> None:
        """In this very thread: Linux ends the processes of a Ray of our own with the thread that started them."""
        handlers = _handlers()
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": True, "logging_level": logging.ERROR}
        try:
            if self._address is not None:
                ray.init(address=self._address, namespace=APP_NAME, **quiet)
            else:
                ray.init(address="local", **quiet, **_own_ray(self._config, self._scratch))
        except ConnectionError as error:
            raise Unavailable(f"cannot reach the Ray cluster at {self._address}: {error}") from None
        self._connected = True
        if self.owns_ray:
            self._head = [one for one in descendants() if title(one) == "gcs_server"]
        _restore(handlers)

    def _aside(self, work: Callable[[], Any], heed: Callable[[], None], watch: Callable[[], Any] | None = None) -> None:
        """Run `work` in a thread, `watch` every POLL_S seconds in another, and wait so that a signal is heard at once.

        Ray's calls end neither at a signal nor when Ray has died under them. Raises what `heed` raises here, and what
        `work` raised, explained.
        """
        failure: list[BaseException] = []
        over = threading.Event()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # carried to the caller below
                failure.append(error)
            finally:
                over.set()

        def look() -> None:
            while watch is not None and not over.wait(POLL_S):
                watch()

        self._threads = [threading.Thread(target=job, name=job.__name__, daemon=True) for job in (run, look)]
        for thread in self._threads:
            thread.start()
        try:
            while not over.wait(POLL_S):
                heed()
        finally:
            over.set()
        if failure:
            raise _explain(failure[0])

    def missing_switches(self) -> tuple[str, ...]:
        """Recommended variables that Ray was started without; call it after start()."""
        if self.owns_ray:
            return Environment.read().missing
        # Another cluster has an environment of its own.
        found: tuple[str, ...] = ray.get(ray.remote(num_cpus=0)(_missing_here).remote())
        return found

    def close(self) -> bool:
        """Stop the application, and Ray too when it is our own. Safe to call at any time, also twice.

        False when this process must end without its exit handlers, where Ray would wait for what is gone.
        """
        ours = descendants() if self.owns_ray else []
        for thread in self._threads:
            thread.join(2 * POLL_S)
        # A start that was broken off goes on in its thread, and starts another Ray when it finds ours stopped.
        broken_off = any(thread.is_alive() for thread in self._threads)
        if self._connected and not (broken_off and self.owns_ray):
            self._stop_in_time()
        self._connected = False
        clean = not (broken_off or self.died)
        if self.owns_ray:
            end(list(dict.fromkeys([*ours, *descendants()])), within_s=5.0 if clean else 0.0)
            end(naming(f"{self._scratch}/"), within_s=0.0)
        shutil.rmtree(self._scratch, ignore_errors=True)
        return clean

    def _stop_in_time(self) -> None:
        stopping = threading.Thread(target=self._stop, name="stop", daemon=True)
        # Ray complains on stdout that it has killed what we asked it to kill.
        with contextlib.redirect_stdout(io.StringIO()):
            stopping.start()
            limit = time.monotonic() + STOP_S
            while stopping.is_alive() and not self.died and time.monotonic() < limit:
                stopping.join(POLL_S)

    def _stop(self) -> None:
        try:
            if self.owns_ray:
                serve.shutdown()
            else:
                serve.delete(APP_NAME)
        finally:
            ray.shutdown()


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """Ray has put its own signal handlers in the place of ours; they end the process on the spot."""
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _missing_here() -> tuple[str, ...]:
    return Environment.read().missing


def _own_ray(config: Config, scratch: Path) -> dict[str, Any]:
    """Arguments of ray.init for a Ray on this machine that always has room for the configured replicas."""
    pools = [*config.targets.values(), *config.drafts.values()]
    cpus = sum(pool.replicas * pool.resources.num_cpus for pool in pools)
    custom: dict[str, float] = {}
    for pool in pools:
        for name, amount in pool.resources.custom.items():
            custom[name] = custom.get(name, 0.0) + 2 * pool.replicas * amount
    return {
        "num_cpus": max(os.cpu_count() or 1, int(2 * cpus + config.ingress.replicas * config.ingress.num_cpus) + 1),
        "resources": custom,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "_temp_dir": str(scratch),
        "runtime_env": {"worker_process_setup_hook": "specgrove.deploy.loopback.install"}
        if config.listeners.host in ("127.0.0.1", "localhost", "::1")
        else None,
    }


def _overview() -> ApplicationStatusOverview | None:
    """Serve's view of our application; None when Serve is not there yet, or not any more."""
    try:
        return serve.status().applications.get(APP_NAME)
    except Exception as error:
        log.debug("no status of Serve: %s", error)
        return None


def _states() -> dict[str, str]:
    """Deployment name -> `starting`, `ready` or `failing`."""
    found = _overview()
    words = {"HEALTHY": "ready", "UNHEALTHY": "failing", "DEPLOY_FAILED": "failing"}
    return {name: words.get(one.status.value, "starting") for name, one in found.deployments.items()} if found else {}


def _explain(error: BaseException) -> SpecgroveError:
    """The sentence of our own error inside a replica's traceback, as that error; else what Serve says."""
    if isinstance(error, SpecgroveError):
        return error
    texts = [str(error)]
    if (found := _overview()) is not None:
        texts += [found.message, *(one.message for one in found.deployments.values())]
    for line in (line.strip() for text in texts for line in text.splitlines()):
        name, _, sentence = line.partition(": ")
        if name.startswith("specgrove.errors.") and sentence:
            return ConfigError(sentence)
    return SpecgroveError(f"the application did not start: {max(texts, key=len).strip()}")
