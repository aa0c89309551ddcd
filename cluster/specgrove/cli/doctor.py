"""`specgrove doctor`: what is here, what fits together, what answers."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.markup import escape

from specgrove.cli.console import err, out
from specgrove.config import RECOMMENDED, Config, Environment
from specgrove.errors import SpecgroveError

PACKAGES = ("specgrove", "torch", "transformers", "ray", "grpcio", "protobuf", "fastapi", "pydantic")
_MARKS = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "bad": "[red]bad [/]"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `bad` means that something will not work."""

    state: Literal["ok", "note", "bad"]
    text: str


def examine(config: Path | None, server: str, api_key: str | None) -> int:
    """Print all findings; returns 1 when one is bad."""
    asked = Config.from_yaml(config) if config else Config.bundled()
    parts: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("versions", _versions),
        ("devices", _devices),
        ("environment", _environment),
        ("models and pairs", lambda: _pairs(asked)),
        ("server", lambda: _server(server, api_key, asked)),
    )
    worst = 0
    for title, look in parts:
        out.print(f"[bold]{title}[/]")
        with err.status(f"looking at {title}"):
            findings = list(look())
        for finding in findings:
            out.print(f"  {_MARKS[finding.state]} {escape(finding.text)}", soft_wrap=True)
            worst |= finding.state == "bad"
    return int(worst)


def _versions() -> Iterator[Finding]:
    yield Finding("ok", f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in PACKAGES:
        try:
            yield Finding("ok", f"{name} {version(name)}")
        except PackageNotFoundError:
            # Run from a source tree, our own package is there without being installed.
            yield Finding("note" if name == "specgrove" else "bad", f"{name} is not installed")


def _devices() -> Iterator[Finding]:
    import torch

    yield Finding("ok", f"{os.cpu_count()} CPUs, torch uses {torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        yield Finding("ok", "no CUDA device: device auto means cpu")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Finding("ok", f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def _environment() -> Iterator[Finding]:
    found = Environment.read()
    if found.missing:
        names = " and ".join(f"{name}={RECOMMENDED[name]}" for name in found.missing)
        yield Finding("note", f"on clusters of your own, start every Ray node with {names} (specgrove serve does it)")
    else:
        yield Finding("ok", "the recommended Ray Serve variables are set")
    if found.ray_address is not None:
        yield Finding("note", f"RAY_ADDRESS={found.ray_address}: specgrove serve joins that cluster")
    if found.ray_auth_mode is not None:
        yield Finding("note", f"RAY_AUTH_MODE={found.ray_auth_mode} is left as it is")


def _pairs(config: Config) -> Iterator[Finding]:
    from specgrove.deploy.preflight import check_all

    try:
        pairs = check_all(config)
    except SpecgroveError as error:
        yield Finding("bad", error.message)
        return
    for name, model in config.models.items():
        yield Finding("ok", f"model {name} ({model.source})")
    for pair in pairs:
        if pair.equal:
            yield Finding("ok", f"draft {pair.draft} and target {pair.target}: same vocabulary")
        else:
            yield Finding("note", f"draft {pair.draft} does not serve target {pair.target}: different vocabularies")
    for target in config.targets:
        if not any(pair.target == target and pair.equal for pair in pairs):
            yield Finding("note", f"target {target} has no draft and decodes plainly")


def _server(server: str, api_key: str | None, config: Config) -> Iterator[Finding]:
    from specgrove.client import Client

    if not _listens(server):
        yield Finding("note", f"no server listens at {server}; start one with specgrove serve, or see --server")
        return
    try:
        with Client(server, api_key=api_key, max_attempts=1, timeout_s=5.0) as client:
            served = client.models()
    except SpecgroveError as error:
        yield Finding("bad", f"the server at {server} does not answer: {error.message}")
        return
    for status in served:
        replicas, drafts = len(status.replicas), len(status.drafts)
        state: Literal["ok", "bad"] = "ok" if status.state == "ready" else "bad"
        yield Finding(state, f"{status.name}: {status.state}, {replicas} replicas, {drafts} drafts connected")
    web = f"{config.listeners.host}:{config.listeners.http_port}"
    yield Finding(
        "ok" if _listens(web) else "note", f"HTTP at {web}: {'listens' if _listens(web) else 'nobody listens'}"
    )


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except (OSError, ValueError):
        return False
