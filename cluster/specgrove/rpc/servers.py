"""The two listeners of a target replica: Generate for the ingress and clients, Speculate for drafts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from specgrove.core.cards import ReplicaCard
from specgrove.core.protocols import Backend, DraftHub
from specgrove.core.speculate import Update
from specgrove.errors import ConfigError, ProtocolError, Unavailable
from specgrove.rpc import codec
from specgrove.rpc.channel import MAX_DRAFT_BYTES, MAX_MESSAGE_BYTES, server_options
from specgrove.rpc.health import HealthServicer
from specgrove.rpc.outbox import MAX_QUEUED, Outbox
from specgrove.rpc.pump import pump
from specgrove.rpc.servicer import DirectGenerationServicer
from specgrove.rpc.status import set_error
from specgrove.rpc.unreadable import add_readably
from specgrove.v1 import generation_pb2, speculation_pb2
from specgrove.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server
from specgrove.v1.speculation_pb2_grpc import SpeculationServiceServicer, add_SpeculationServiceServicer_to_server

HELLO_TIMEOUT_S = 10.0
_WILDCARDS = ("0.0.0.0", "::", "[::]", "")


class _Listener(ABC):
    """A grpc.aio server, plaintext, on the first free port of a range."""

    def __init__(self, host: str, ports: Sequence[int], advertise: str | None, max_receive_bytes: int) -> None:
        if host in _WILDCARDS and not advertise:
            raise ConfigError(f"listening on all addresses ({host!r}) needs the host name that peers shall dial")
        self._host, self._ports, self._advertise = host, tuple(ports), advertise or host
        self._max_receive_bytes = max_receive_bytes
        self._server: grpc.aio.Server | None = None
        self.address = ""
        """host:port for peers; empty before start()."""

    @abstractmethod
    def _register(self, server: grpc.aio.Server) -> None:
        """Add the services."""

    async def start(self) -> str:
        """Bind and serve; returns `address`. Raises ConfigError when no port of the range is free."""
        server = grpc.aio.server(options=server_options(max_receive_bytes=self._max_receive_bytes))
        self._register(server)
        port = self._bind(server)
        await server.start()
        self._server = server
        self.address = f"{self._advertise}:{port}"
        return self.address

    def _bind(self, server: grpc.aio.Server) -> int:
        for port in self._ports:
            try:
                if bound := server.add_insecure_port(f"{self._host}:{port}"):
                    return bound
            except RuntimeError:  # taken
                continue
        raise ConfigError(f"no free port on {self._host} among {list(self._ports)}")

    async def stop(self, grace_s: float = 0.0) -> None:
        """Take no more calls, let live ones go on for `grace_s` seconds, then cancel them. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)


class GenerateServer(_Listener):
    """GenerationService over a Backend, with grpc.health.v1 and reflection.

    `ports` are tried in order; 0 stands for any. `serving` is what health answers. With `api_keys`
    each call must name one of them.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (0,),
        advertise: str | None = None,
        api_keys: Sequence[str] = (),
        serving: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(host, ports, advertise, max_receive_bytes=MAX_MESSAGE_BYTES)
        self._servicer = DirectGenerationServicer(backend, api_keys=api_keys)
        self._health = HealthServicer(serving)

    def _register(self, server: grpc.aio.Server) -> None:
        add_readably(add_GenerationServiceServicer_to_server, self._servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [
            generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
            health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
            reflection.SERVICE_NAME,
        ]
        reflection.enable_server_reflection(names, server)


Count = Callable[[int, int], None]
"""Takes bytes sent and bytes received."""


class SpeculateServer(_Listener):
    """SpeculationService over a DraftHub. `card` is what drafts are welcomed with; it needs no addresses.

    A draft that does not read has at most `max_queued` (about token ids) waiting for it and is then disconnected.
    """

    def __init__(
        self,
        hub: DraftHub,
        card: ReplicaCard,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int] = (0,),
        advertise: str | None = None,
        max_queued: int = MAX_QUEUED,
        count: Count = lambda sent, received: None,
    ) -> None:
        """count: hears the bytes of every message, as they are on the wire without their frames."""
        super().__init__(host, ports, advertise, max_receive_bytes=MAX_DRAFT_BYTES)
        self._servicer = SpeculationServicer(hub, card, max_queued=max_queued, count=count)

    def _register(self, server: grpc.aio.Server) -> None:
        add_SpeculationServiceServicer_to_server(self._servicer, server)

    async def stop(self, grace_s: float = 0.0) -> None:
        """Streams of drafts never end by themselves, so they are told at once; sessions go on plainly."""
        self._servicer.stopping.set()
        await super().stop(max(grace_s, 0.2))


class SpeculationServicer(SpeculationServiceServicer):
    """Greets drafts and pumps their streams."""

    def __init__(self, hub: DraftHub, card: ReplicaCard, *, max_queued: int, count: Count) -> None:
        self._hub, self._card, self._max_queued, self._count = hub, card, max_queued, count
        self.stopping = asyncio.Event()

    async def Speculate(  # type: ignore[override]  # a coroutine that reads and writes, in place of a generator
        self, request_iterator: Any, context: Any
    ) -> None:
        """One stream of one draft, until either side ends it."""
        try:
            await self._serve(context)
        except Exception as error:  # the door of the server: everything becomes a status
            set_error(context, error)

    async def _serve(self, context: Any) -> None:
        card, token = codec.decode_hello(await self._hello(context))
        outbox = Outbox(codec.weigh_update, limit=self._max_queued)
        link = self._hub.attach(card, token, outbox.send)

        def received(message: Any) -> None:
            self._count(0, message.ByteSize())
            link.received(codec.decode_messages(message))

        def encoded(updates: Sequence[Update]) -> Any:
            message = codec.batch_of_updates(updates)
            self._count(message.ByteSize(), 0)
            return message

        try:
            await context.write(codec.encode_welcome(self._card))
            await pump(
                context.read,
                received,
                outbox,
                encoded,
                context.write,
                self._stop(),
            )
        finally:
            outbox.close()
            link.lost()

    async def _stop(self) -> None:
        await self.stopping.wait()
        raise Unavailable("the target replica is stopping")

    async def _hello(self, context: Any) -> speculation_pb2.SpeculateRequest:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                first = await context.read()
        except TimeoutError:
            raise ProtocolError(f"no Hello within {HELLO_TIMEOUT_S:.0f} s") from None
        if first is grpc.aio.EOF:
            raise ProtocolError("the stream ended before Hello")
        return first  # type: ignore[no-any-return]  # context is untyped: it is generic in the stubs only
