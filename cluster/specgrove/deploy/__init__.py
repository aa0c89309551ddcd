"""The Serve application. `import_path: specgrove.deploy:app` in a Serve file, with our configuration as `args`.

Importing this package imports neither Ray nor torch: the switches that Serve reads from the environment must be set
before Ray is imported (see local.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve import Application

__all__ = ["APP_NAME", "GRPC_SERVICES", "app"]

APP_NAME = "specgrove"
"""Name of the one Serve application, for those who start it without a file."""

GRPC_SERVICES = ("specgrove.rpc.doors.add_generation_service", "specgrove.rpc.doors.add_health_service")
"""`grpc_servicer_functions` of the Serve file."""


def app(args: dict[str, Any]) -> Application:
    """Builder for Serve: args is a Config mapping; without any it is the bundled family. Raises ConfigError."""
    from specgrove.deploy.builder import build

    return build(args)
