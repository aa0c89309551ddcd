"""Where we print, and how an error looks: one sentence on stderr."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from specgrove.errors import ConfigError, SpecgroveError

PIPE_WIDTH = 200
"""Columns where the output is no terminal, so that tables are not folded."""


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


out = _console(stderr=False)
err = _console(stderr=True)

EXIT_CONFIG = 2
EXIT_FAILED = 1


def show_error(error: SpecgroveError) -> int:
    """Print the sentence; returns the exit status."""
    err.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
    return EXIT_CONFIG if isinstance(error, ConfigError) else EXIT_FAILED
