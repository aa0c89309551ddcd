"""`grpc_servicer_functions` for Serve: our services on its gRPC port, with a guard against lost cancels.

Serve calls these in every process that listens on the gRPC port, and replaces our handlers by its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from grpc_health.v1 import health_pb2_grpc

from specgrove.rpc.servicer import GenerationServicer
from specgrove.rpc.unreadable import add_readably
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1 import generation_pb2_grpc


def add_generation_service(servicer: Any, server: Any) -> None:
    """specgrove.v1.GenerationService."""
    _add(partial(add_readably, generation_pb2_grpc.add_GenerationServiceServicer_to_server), servicer, server)


def add_health_service(servicer: Any, server: Any) -> None:
    """grpc.health.v1.Health, which Serve does not have by itself."""
    _add(health_pb2_grpc.add_HealthServicer_to_server, servicer, server)


def _add(add: Callable[[Any, Any], None], servicer: Any, server: Any) -> None:
    factory = getattr(server, "service_handler_factory", None)
    if factory is None:  # no server of Serve's: there is nothing to guard
        add(servicer, server)
        return
    server.service_handler_factory = _guarding(factory)
    try:
        add(servicer, server)
    finally:
        server.service_handler_factory = factory


def _guarding(factory: Callable[..., Any]) -> Callable[..., Any]:
    def make(service_method: str, streaming_type: Any) -> Any:
        handler = factory(service_method=service_method, streaming_type=streaming_type)
        return guard(handler) if streaming_type.name == "UNARY_STREAM" else handler

    return make


def guard(handler: Callable[[Any, Any], AsyncIterator[bytes]]) -> Callable[[Any, Any], Awaitable[None]]:
    """The same stream, which passes on every cancel.

    Serve's Python proxy forwards a cancel only when it comes while it waits for the replica; one that comes while it
    writes to the client is lost, and the replica works to the end for nobody. Here a cancel during the write makes the
    proxy wait once more and is then repeated. All of it happens before this coroutine returns, because the call's
    context must not be touched after that.
    """

    async def guarded(request: Any, context: Any) -> None:
        stream = handler(request, context)
        async for item in stream:
            if not item:  # see ServedGeneration
                continue
            try:
                await context.write(item)
            except asyncio.CancelledError:
                waiting = asyncio.ensure_future(anext(stream, None))
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
                raise

    return guarded


class ServedGeneration(GenerationServicer):
    """GenerationService for Serve's ingress.

    Serve's Python proxy learns of a status only together with a message. So a failed stream ends with an empty message
    (a real one always carries an event), which the guard does not pass on.
    """

    async def Generate(self, request: pb.GenerateRequest, grpc_context: Any) -> AsyncIterator[pb.GenerateResponse]:
        """As in the base class."""
        async with aclosing(super().Generate(request, grpc_context)) as responses:  # type: ignore[type-var]  # a generator
            async for response in responses:
                yield response
        if grpc_context.code() is not None:
            yield pb.GenerateResponse()
