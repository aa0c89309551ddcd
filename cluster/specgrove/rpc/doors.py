"""`grpc_servicer_functions` for Serve: our services on its gRPC port, with a guard against lost cancels.

Serve calls these in every process that listens on the gRPC port, and replaces our handlers by its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from grpc_health.v1 import health_pb2_grpc

from specgrove.v1 import generation_pb2_grpc

_END = object()
"""Stands for the end of the stream in the queue."""


def add_generation_service(servicer: Any, server: Any) -> None:
    """specgrove.v1.GenerationService."""
    _add(generation_pb2_grpc.add_GenerationServiceServicer_to_server, servicer, server)


def add_health_service(servicer: Any, server: Any) -> None:
    """grpc.health.v1.Health, which Serve does not have by itself."""
    _add(health_pb2_grpc.add_HealthServicer_to_server, servicer, server)


def _add(add: Callable[[Any, Any], None], servicer: Any, server: Any) -> None:
    factory = getattr(server, "service_handler_factory", None)
    if factory is None or type(getattr(factory, "__self__", None)).__name__ != "gRPCProxy":
        # A replica that listens itself (direct ingress) hears every cancel; only the proxy needs the guard.
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


def guard(handler: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    """The same stream, which passes on every cancel.

    Serve's Python proxy forwards a cancel only when it comes while it waits for the replica; one that comes while it
    writes to the client is lost and the replica works to the end for nobody. Here a task does nothing but wait for the
    replica, and the writing happens outside of it, so that ending the task always finds it waiting.
    """

    async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
        items: asyncio.Queue[Any] = asyncio.Queue()

        async def pump() -> None:
            try:
                async with aclosing(handler(request, context)) as stream:  # type: ignore[type-var]  # a generator
                    async for item in stream:
                        items.put_nowait(item)
            except Exception as error:
                items.put_nowait(error)
            items.put_nowait(_END)

        pumping = asyncio.create_task(pump())
        try:
            while (item := await items.get()) is not _END:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            pumping.cancel()
            await asyncio.wait([pumping])

    return guarded
