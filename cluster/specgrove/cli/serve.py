"""`specgrove serve`: start, show progress, greet with a first completion, wait, stop everything."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from specgrove.cli.console import err, out, show_error
from specgrove.cli.greeting import first_completion, how_to_call
from specgrove.config import Config, Environment, secret
from specgrove.deploy.cluster import running_cluster
from specgrove.deploy.ports import check_free
from specgrove.deploy.switches import prepare
from specgrove.errors import SpecgroveError, Unavailable

if TYPE_CHECKING:
    from specgrove.deploy.local import LocalServer

_MARKS = {"ready": "[green]●[/]", "failing": "[red]●[/]"}


class Stopped(BaseException):
    """SIGINT or SIGTERM came. No Exception: whatever runs then shall not handle it."""


class _Signals:
    """Both signals raise Stopped in the main thread; outside of the block it just ends.

    The interpreter drops what is raised inside a destructor or another callback, and Ray logs some of it, so `heed`
    raises it again.
    """

    def __init__(self) -> None:
        self._came = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._raise) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, Stopped):
            err.print("stopped")
            return True
        return False

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self._came.set()
        raise Stopped(signal.Signals(number).name)

    def heed(self) -> None:
        """Raises Stopped when a signal has come."""
        if self._came.is_set():
            raise Stopped

    def wait(self, seconds: float) -> bool:
        """Wait for a signal; true when one has come."""
        return self._came.wait(seconds)


def serve_until_stopped(config: Config) -> None:
    """Run until SIGINT or SIGTERM; leaves no process of ours behind. Raises SpecgroveError when the start fails."""
    keys = [secret(key, key="api_keys") for key in config.api_keys]
    address = running_cluster(Environment.read())
    if address is None:
        check_free(config.listeners)
    began = time.monotonic()
    closed: list[bool] = []
    status = 0
    try:
        with _Signals() as signals, ExitStack() as undo:
            scratch = Path(tempfile.mkdtemp(prefix="sg-", dir="/tmp" if os.name == "posix" else None))
            undo.callback(shutil.rmtree, scratch, ignore_errors=True)
            with _Board() as board:
                server = _load(config, address, scratch, board)
                undo.callback(lambda: closed.append(_close(server)))
                server.start(board, signals.heed)
            _greet(config, keys, time.monotonic() - began, missing=server.missing_switches())
            while not signals.wait(1.0):
                if server.died:
                    raise Unavailable("Ray has died, and the server with it")
    except SpecgroveError as error:
        if all(closed):
            raise
        status = show_error(error)
    if not all(closed):
        out.file.flush()
        os._exit(status)


def _load(config: Config, address: str | None, scratch: Path, board: _Board) -> LocalServer:
    board({"ray": "loading"})
    if address is None:
        prepare(scratch)
    from specgrove.deploy.local import LocalServer  # imports Ray, so it comes after prepare

    return LocalServer(config, address=address, scratch=scratch)


def _close(server: LocalServer) -> bool:
    """Stop, deaf to a second Ctrl-C: half a stop would leave processes. As LocalServer.close."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    err.print("stopping")
    return server.close()


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
