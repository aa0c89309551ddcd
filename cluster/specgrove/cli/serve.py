"""`specgrove serve`: start, show progress, greet with a first completion, wait, stop everything."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from specgrove.cli.console import err, out
from specgrove.cli.greeting import first_completion, how_to_call
from specgrove.config import Config, Environment, secret
from specgrove.deploy.cluster import running_cluster
from specgrove.deploy.ports import check_free
from specgrove.deploy.switches import prepare
from specgrove.errors import SpecgroveError

if TYPE_CHECKING:
    from specgrove.deploy.local import LocalServer

_MARKS = {"ready": "[green]●[/]", "failing": "[red]●[/]"}


class Stopped(Exception):  # not an error: somebody asked us to stop
    """SIGINT or SIGTERM came."""


def serve_until_stopped(config: Config) -> None:
    """Run until SIGINT or SIGTERM; leaves no process of ours behind. Raises SpecgroveError when the start fails."""
    keys = [secret(key, key="api_keys") for key in config.api_keys]
    address = running_cluster(Environment.read())
    if address is None:
        check_free(config.listeners)
    began = time.monotonic()
    with _interruptible() as stop:
        server = _start(config, address)
        try:
            _greet(config, keys, time.monotonic() - began, missing=server.missing_switches())
            stop.wait()
        finally:
            _close(server)


def _start(config: Config, address: str | None) -> LocalServer:
    """Start everything, or leave nothing behind."""
    scratch = Path(tempfile.mkdtemp(prefix="sg-", dir="/tmp" if os.name == "posix" else None))
    with _Board() as board:
        board({"ray": "loading"})
        if address is None:
            prepare(scratch)
        from specgrove.deploy.local import LocalServer  # imports Ray, so it comes after prepare

        server = LocalServer(config, address=address, scratch=scratch)
        try:
            server.start(board)
        except BaseException:
            _close(server)
            raise
    return server


def _close(server: LocalServer) -> None:
    """Stop, deaf to a second Ctrl-C: half a stop would leave processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    err.print("stopping")
    if not server.close():
        err.print("stopped; Ray had died before")
        os._exit(1)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Both signals raise Stopped in the main thread; outside of it the block just ends."""

    def raise_stopped(number: int, frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number).name)

    before = {number: signal.signal(number, raise_stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield threading.Event()
    except Stopped:
        err.print("stopped")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Board:
    """One line per part of the server, redrawn in place; plain lines where the output is no terminal."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._live = Live(console=err, transient=True, refresh_per_second=8) if err.is_terminal else None
        self._began = time.monotonic()

    def __enter__(self) -> _Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, states: Mapping[str, str]) -> None:
        changed = {name: state for name, state in states.items() if self._states.get(name) != state}
        self._states |= changed
        if self._live is not None:
            self._live.update(self._table())
            return
        for name, state in changed.items():
            err.print(f"{time.monotonic() - self._began:5.1f} s  {name}: {state}", markup=False)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for name, state in self._states.items():
            table.add_row(_MARKS.get(state, "[yellow]○[/]"), escape(name), f"[dim]{state}[/]")
        table.add_row("", f"[dim]{time.monotonic() - self._began:.0f} s[/]")
        return table


def _greet(config: Config, keys: list[str], took_s: float, *, missing: tuple[str, ...]) -> None:
    listeners = config.listeners
    http, grpc = f"http://{listeners.host}:{listeners.http_port}", f"{listeners.host}:{listeners.grpc_port}"
    names = [name for pool in config.targets.values() for name in pool.served_names]
    out.print(f"[bold green]specgrove is ready[/] [dim]({took_s:.0f} s)[/]")
    out.print(f"  HTTP    {http}/v1\n  gRPC    {grpc}\n  models  {', '.join(map(escape, names))}", highlight=False)
    if config.drafts:
        out.print(f"  drafts  {', '.join(map(escape, config.drafts))}")
    if missing:
        wanted = " ".join(f"{name}=1" for name in missing)
        out.print(f"  [yellow]note[/]    on every node, start Ray with {wanted}: both doors are then faster")
    try:
        first_completion(grpc, names[0], keys[0] if keys else None)
    except SpecgroveError as error:
        err.print(f"[bold red]error:[/] the first completion failed: {escape(error.message)}")
    how_to_call(http, grpc, names[0], needs_key=bool(keys))
    out.print("\n[dim]Ctrl-C stops everything.[/]")
