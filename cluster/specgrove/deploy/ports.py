"""Free and taken ports of this machine."""

from __future__ import annotations

import random
import socket

from specgrove.config import ListenerConfig
from specgrove.errors import ConfigError


def check_free(listeners: ListenerConfig) -> None:
    """Raises ConfigError for two equal public ports, or naming the first that somebody else listens on."""
    if listeners.http_port == listeners.grpc_port:
        raise ConfigError("HTTP and gRPC need two ports; change --port or --grpc-port", param="listeners.grpc_port")
    for key, option, port in (
        ("http_port", "--port", listeners.http_port),
        ("grpc_port", "--grpc-port", listeners.grpc_port),
    ):
        if not _free(listeners.host, port):
            raise ConfigError(
                f"port {port} on {listeners.host} is in use; stop what listens there or pick another with {option}",
                param=f"listeners.{key}",
            )


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def unused_run(count: int, within: range) -> int:
    """First of `count` neighbouring ports of the loopback interface that are free now, at a random place.

    Raises ConfigError when a hundred places were tried in vain.
    """
    for _ in range(100):
        first = random.randrange(within.start, within.stop - count)
        if all(_free("127.0.0.1", port) for port in range(first, first + count)):
            return first
    raise ConfigError(f"found no {count} free ports in a row between {within.start} and {within.stop}")


def unused(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
