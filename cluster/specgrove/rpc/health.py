"""grpc.health.v1, for our own servers and for Serve's gRPC port, which does not have it by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

SERVICE = "specgrove.v1.GenerationService"
WATCH_S = 0.5
"""How often Watch looks."""


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Check and Watch, for the whole server ("") and for our service.

    The context parameter has the name by which Serve recognises it.
    """

    def __init__(self, serving: Callable[[], bool]) -> None:
        self._serving = serving

    async def Check(self, request: pb.HealthCheckRequest, grpc_context: Any) -> pb.HealthCheckResponse:
        """The state now; NOT_FOUND for a service that we do not have."""
        if request.service not in ("", SERVICE):
            grpc_context.set_code(grpc.StatusCode.NOT_FOUND)
            grpc_context.set_details(f"there is no service {request.service}")
            return pb.HealthCheckResponse()
        return pb.HealthCheckResponse(status=self._state(request.service))

    async def List(self, request: pb.HealthListRequest, grpc_context: Any) -> pb.HealthListResponse:
        """The state of all that we have."""
        statuses = {name: pb.HealthCheckResponse(status=self._state(name)) for name in ("", SERVICE)}
        return pb.HealthListResponse(statuses=statuses)

    async def Watch(self, request: pb.HealthCheckRequest, grpc_context: Any) -> AsyncIterator[pb.HealthCheckResponse]:
        """The state now and after every change, until the client goes away."""
        told: int | None = None
        while True:
            state = self._state(request.service)
            if state != told:
                told = state
                yield pb.HealthCheckResponse(status=state)
            await asyncio.sleep(WATCH_S)

    def _state(self, service: str) -> Any:
        if service not in ("", SERVICE):
            return pb.HealthCheckResponse.SERVICE_UNKNOWN
        return pb.HealthCheckResponse.SERVING if self._serving() else pb.HealthCheckResponse.NOT_SERVING
