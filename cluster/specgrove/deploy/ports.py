"""Free and taken ports of this machine."""

from __future__ import annotations

import socket

from specgrove.config import ListenerConfig
from specgrove.errors import ConfigError


def check_free(listeners: ListenerConfig) -> None:
    """Raises ConfigError that names the first public port that somebody else listens on."""
    for key, option, port in (
        ("http_port", "--port", listeners.http_port),
        ("grpc_port", "--grpc-port", listeners.grpc_port),
    ):
        if not _free(listeners.host, port):
            raise ConfigError(
                f"port {port} on {listeners.host} is in use; stop what listens there or pick another with {option}",
                param=f"listeners.{key}",
            )
    if listeners.http_port == listeners.grpc_port:
        raise ConfigError("HTTP and gRPC need two ports; change --port or --grpc-port", param="listeners.grpc_port")


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


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
