"""The guard against cancels that Serve's Python proxy loses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from enum import Enum
from typing import Any

import grpc
import pytest

from specgrove.errors import ModelNotFound
from specgrove.rpc.doors import ServedGeneration, add_generation_service, guard
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1.generation_pb2_grpc import GenerationServiceServicer


class Proxy:
    """Like Serve's proxy: an inner wait passes a cancel on, a cancel at `yield` is lost."""

    def __init__(self) -> None:
        self.passed_on = 0
        self.waiting = asyncio.Event()

    async def handler(self, request: int, context: Any) -> AsyncIterator[int]:
        for item in range(request):
            await self._wait(0)
            yield item
        await self._wait(60)

    async def _wait(self, seconds: float) -> None:
        self.waiting.set()
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.passed_on += 1
            raise


class Context:
    """The writing half of a call."""

    def __init__(self, slow: bool = False) -> None:
        self.written: list[int] = []
        self.writing = asyncio.Event()
        self._slow = slow

    async def write(self, item: int) -> None:
        self.written.append(item)
        self.writing.set()
        if self._slow:
            await asyncio.sleep(60)


async def test_a_cancel_while_a_message_is_written_is_passed_on():
    """The proxy is made to wait once more, and hears it there."""
    proxy, context = Proxy(), Context(slow=True)
    call = asyncio.create_task(guard(proxy.handler)(3, context))
    await context.writing.wait()

    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    assert proxy.passed_on == 1


async def test_without_the_guard_that_cancel_is_lost():
    """Negative control: the bug."""
    proxy = Proxy()
    async with aclosing(proxy.handler(1, None)) as stream:
        await anext(stream)

    assert proxy.passed_on == 0


async def test_a_cancel_between_messages_is_passed_on():
    """As without the guard."""
    proxy = Proxy()
    call = asyncio.create_task(guard(proxy.handler)(0, Context()))
    await proxy.waiting.wait()

    call.cancel()
    await asyncio.wait([call])

    assert proxy.passed_on == 1


async def test_items_and_errors_come_through_in_order():
    """The guard changes nothing else."""

    async def handler(request: int, context: Any) -> AsyncIterator[int]:
        yield request
        yield request + 1
        raise RuntimeError("broken")

    context = Context()

    with pytest.raises(RuntimeError, match="broken"):
        await guard(handler)(5, context)
    assert context.written == [5, 6]


class Streaming(Enum):
    """Serve's gRPCStreamingType, by the names of its members."""

    UNARY_UNARY = 1
    UNARY_STREAM = 2


class FakeServer:
    """The part of Serve's gRPC server that we use."""

    def __init__(self, factory: Callable[..., Any]) -> None:
        self.service_handler_factory = factory
        self.made: list[Any] = []

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        for kind in (Streaming.UNARY_STREAM, Streaming.UNARY_UNARY):
            self.made.append(self.service_handler_factory(service_method="/s/m", streaming_type=kind))

    def add_registered_method_handlers(self, name: str, handlers: Any) -> None:
        """The newer way in."""


class Owner:
    """Serve's proxy, or a replica that listens itself."""

    def factory(self, service_method: str, streaming_type: Any) -> Any:
        return lambda request, context: streaming_type


def test_only_streams_are_guarded():
    """Unary calls have no such gap; Serve's server is left as it was."""
    server = FakeServer(Owner().factory)
    factory = server.service_handler_factory

    add_generation_service(GenerationServiceServicer(), server)

    stream, unary = server.made[:2]
    assert stream.__qualname__.startswith("guard")
    assert unary.__qualname__.startswith("Owner.factory")
    assert server.service_handler_factory == factory


class ServeContext(Context):
    """RayServegRPCContext: remembers the status."""

    def __init__(self) -> None:
        super().__init__()
        self._code: Any = None

    def code(self) -> Any:
        return self._code

    def set_code(self, code: Any) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        """Not needed here."""

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Not needed here."""

    def invocation_metadata(self) -> list[Any]:
        return []


class Refusing:
    """A backend that knows no model."""

    async def generate(self, request: Any) -> AsyncIterator[Any]:
        raise ModelNotFound("no such model")
        yield


async def test_a_failed_stream_ends_with_an_empty_message_that_nobody_sees():
    """The proxy learns of the status with it, the guard drops it."""
    served, context = ServedGeneration(Refusing()), ServeContext()  # type: ignore[arg-type]
    messages = [one.SerializeToString() async for one in served.Generate(pb.GenerateRequest(text="x"), context)]
    assert messages == [b""]
    assert context.code() is grpc.StatusCode.NOT_FOUND

    async def handler(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"event"
        yield b""

    await guard(handler)(None, context)

    assert context.written == [b"event"]
