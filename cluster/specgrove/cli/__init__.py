"""The command line: `specgrove serve`, `generate`, `models`, `doctor`, `train`, `bench`.

Nothing here imports torch or Ray before a command that needs them runs, so that --help is quick.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the `specgrove` script."""
    from specgrove.cli.commands import run

    sys.exit(run(sys.argv[1:]))
