"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Server = Annotated[
    str, typer.Option("--server", envvar="SPECGROVE_SERVER", help="host:port of a running server's gRPC door.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="SPECGROVE_API_KEY", help="Key to present.", show_default=False)
]
JsonOut = Annotated[Path | None, typer.Option("--json", help="Write the report with raw runs here.")]
DEFAULT_SERVER = "127.0.0.1:9000"
