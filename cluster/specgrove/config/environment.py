"""The one place that reads the environment and the files that configuration values refer to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from specgrove.errors import ConfigError

RECOMMENDED: Mapping[str, str] = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
}
"""Variables that every Ray node should have before it starts: requests go straight into the ingress replica, which
makes both doors several times faster and delivers every cancel (Serve's Python gRPC proxy loses some)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the environment says to us."""

    ray_address: str | None = None
    """RAY_ADDRESS: the cluster to join; None: start a local one."""
    ray_auth_mode: str | None = None
    """RAY_AUTH_MODE, left alone when set."""
    api_key: str | None = None
    """SPECGROVE_API_KEY: the key that the command-line client sends."""
    server: str | None = None
    """SPECGROVE_SERVER: host:port of the gRPC door that the command-line client calls."""
    missing: tuple[str, ...] = ()
    """Recommended variables that this process lacks."""

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The environment of this process."""
        return cls(
            ray_address=environ.get("RAY_ADDRESS") or None,
            ray_auth_mode=environ.get("RAY_AUTH_MODE") or None,
            api_key=environ.get("SPECGROVE_API_KEY") or None,
            server=environ.get("SPECGROVE_SERVER") or None,
            missing=tuple(name for name, value in RECOMMENDED.items() if environ.get(name) != value),
        )


def secret(reference: str, *, key: str, environ: Mapping[str, str] = os.environ) -> str:
    """The value behind `env:NAME` or `file:PATH`; anything else is the value itself.

    Raises ConfigError that names `key` when the variable or the file is missing or empty; never shows a value.
    """
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = environ.get(name, "")
        where = f"the environment variable {name}"
    elif kind == "file":
        try:
            value = Path(name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"config {key}: cannot read the file {name}", param=key) from None
        where = f"the file {name}"
    else:
        value, where = reference, "the value"
    if not value:
        raise ConfigError(f"config {key}: {where} is empty or not set", param=key)
    return value
