"""Descendants of this process, so that an interrupted start or stop leaves none behind."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process by id and start time, because ids are used again."""

    pid: int
    started: str


def descendants(root: int | None = None) -> list[Process]:
    """All live descendants of `root` (this process), children first. Empty where there is no /proc."""
    parents: dict[int, int] = {}
    found: dict[int, Process] = {}
    for directory in _PROC.glob("[0-9]*"):
        if (fields := _fields(directory)) is not None:
            pid = int(directory.name)
            parents[pid] = int(fields[1])
            found[pid] = Process(pid, fields[19])
    mine = [root or os.getpid()]
    for pid in mine:  # grows while we walk
        mine += [child for child, parent in parents.items() if parent == pid]
    return [found[pid] for pid in mine[1:]]


def naming(text: str) -> list[Process]:
    """Processes whose command line or first environment names `text`, orphans too; without this one."""
    found = []
    for directory in _PROC.glob("[0-9]*"):
        try:
            said = (directory / "cmdline").read_bytes() + (directory / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in said and int(directory.name) != os.getpid() and (fields := _fields(directory)) is not None:
            found.append(Process(int(directory.name), fields[19]))
    return found


def title(one: Process) -> str:
    """Name of the program, at most 15 characters; empty when the process is gone."""
    try:
        return (_PROC / str(one.pid) / "comm").read_text().strip() if alive(one) else ""
    except OSError:
        return ""


def end(processes: list[Process], *, within_s: float) -> None:
    """Wait for these to end by themselves for `within_s` seconds, then kill those that have not."""
    for one in _left(processes, within_s):
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _left(processes, 2.0)


def _left(processes: list[Process], within_s: float) -> list[Process]:
    """Wait until all have ended, at most `within_s` seconds; those that have not."""
    limit = time.monotonic() + within_s
    while (left := [one for one in processes if alive(one)]) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def alive(one: Process) -> bool:
    """Is it still running?"""
    fields = _fields(_PROC / str(one.pid))
    return fields is not None and fields[19] == one.started and fields[0] != "Z"


def _fields(directory: Path) -> list[str] | None:
    """Fields of /proc/PID/stat behind the name: state, parent, ..., start time at index 19."""
    try:
        text = (directory / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
