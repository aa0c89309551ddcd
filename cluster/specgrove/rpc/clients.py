"""The dialling ends: an ingress that calls a target replica, and a draft that connects to one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc.aio

from specgrove.core.cards import ReplicaCard
from specgrove.core.protocols import ModelStatus, ProposeSink
from specgrove.core.request import Chunk, Finished, GenerateEvent, GenerateRequest
from specgrove.core.speculate import DraftMessage, Update
from specgrove.errors import ProtocolError, ReplicaLost, SpecgroveError, Unavailable
from specgrove.rpc import codec
from specgrove.rpc.channel import call_deadline, peer_options
from specgrove.rpc.delay import Delay
from specgrove.rpc.outbox import MAX_QUEUED, Outbox
from specgrove.rpc.pump import pump
from specgrove.rpc.status import explained, from_status
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1.generation_pb2_grpc import GenerationServiceStub
from specgrove.v1.speculation_pb2_grpc import SpeculationServiceStub

if TYPE_CHECKING:  # a type that exists in the stubs only
    from specgrove.v1.generation_pb2_grpc import GenerationServiceAsyncStub

Reply = TypeVar("Reply")

WELCOME_TIMEOUT_S = 10.0
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def from_rpc_error(error: grpc.aio.AioRpcError) -> SpecgroveError:
    """The error that a failed call stands for."""
    return from_status(error.code(), error.details() or "", error.trailing_metadata())


class TargetClient:
    """A Backend that is one target replica elsewhere. Make it anywhere; use it on one event loop.

    A target that dies before the first event is Unavailable (try another one); later it is ReplicaLost with the number
    of tokens that had come.
    """

    def __init__(self, address: str, *, replica: str = "", api_key: str = "", timeout_s: float = 30.0) -> None:
        self.address = address
        self._replica = replica or address
        self._metadata = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._timeout_s = timeout_s
        self._channel: grpc.aio.Channel | None = None

    def _stub(self) -> GenerationServiceAsyncStub:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=peer_options())
        return GenerationServiceStub(self._channel)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """Events of one request. Closing the iterator cancels the call."""
        message = codec.encode_request(request)
        call = self._stub().Generate(message, timeout=call_deadline(request.timeout_s), metadata=self._metadata)
        tokens: int | None = None  # None: nothing has come yet
        try:
            async for response in call:
                event = codec.decode_event(response)
                tokens = (tokens or 0) + (len(event.tokens) if isinstance(event, Chunk) else 0)
                yield event
                if isinstance(event, Finished):
                    return
        except grpc.aio.AioRpcError as error:
            raise self._broken(error, tokens) from None
        finally:
            call.cancel()
        raise ReplicaLost(self._replica, tokens or 0)

    def _broken(self, error: grpc.aio.AioRpcError, tokens: int | None) -> SpecgroveError:
        meant = from_rpc_error(error)
        if explained(error.trailing_metadata()) or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return meant
        # Nobody but the connection said this, and it was not us who cancelled.
        lost = (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
        )
        if error.code() not in lost:
            return meant
        if tokens is not None:
            return ReplicaLost(self._replica, tokens)
        return Unavailable(f"target replica {self._replica} cannot be reached: {error.details()}")

    async def models(self) -> Sequence[ModelStatus]:
        """All models that the target serves."""
        call = self._stub().ListModels(pb.ListModelsRequest(), timeout=self._timeout_s, metadata=self._metadata)
        return codec.decode_models(await self._unary(call))

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of a text. Raises ModelNotFound."""
        message = codec.encode_tokenize(model, text, add_special_tokens=add_special_tokens)
        call = self._stub().Tokenize(message, timeout=self._timeout_s, metadata=self._metadata)
        return tuple((await self._unary(call)).tokens)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids. Raises ModelNotFound, RequestError for ids outside the vocabulary."""
        message = codec.encode_detokenize(model, tokens)
        call = self._stub().Detokenize(message, timeout=self._timeout_s, metadata=self._metadata)
        return (await self._unary(call)).text

    async def _unary(self, call: Awaitable[Reply]) -> Reply:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise self._broken(error, None) from None

    async def close(self) -> None:
        """Drop the connection; calls that still run fail. Idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


async def speculate(
    address: str,
    card: ReplicaCard,
    token: str,
    sink: ProposeSink,
    *,
    max_queued: int = MAX_QUEUED,
    added_rtt_s: float = 0.0,
) -> None:
    """One stream from this draft to the target at `address`; pumps until it ends or this task is cancelled.

    Returns when the target ended the stream. Raises Unauthenticated or ProtocolError when the target refuses us,
    Unavailable when it cannot be reached, stops or dies, CapacityError when more than `max_queued` (about token ids)
    wait for it. `sink` is called on this event loop; what it gets to send with may be called from any thread.
    added_rtt_s: half of it delays every message of either direction, for measurements.
    """
    async with grpc.aio.insecure_channel(address, options=peer_options()) as channel:
        call = SpeculationServiceStub(channel).Speculate()
        try:
            target = await _greet(call, card, token)
            outbox = Outbox(codec.weigh_message, limit=max_queued)
            delays: tuple[Delay[Any], ...] = ()
            try:
                send: Callable[[Sequence[DraftMessage]], None] = outbox.send
                receive: Callable[[Sequence[Update]], None] = partial(sink.received, target.replica)
                if added_rtt_s:
                    there, back = Delay(added_rtt_s / 2, send), Delay(added_rtt_s / 2, receive)
                    delays, send, receive = (there, back), there.put, back.put
                sink.connected(target, send)
                await pump(
                    call.read,
                    lambda message: receive(codec.decode_updates(message)),
                    outbox,
                    codec.batch_of_messages,
                    call.write,
                )
            finally:
                outbox.close()
                for delay in delays:  # a session that is opened after the end would never be closed
                    delay.close()
                sink.lost(target.replica)
        except grpc.aio.AioRpcError as error:
            raise _stream_error(address, error) from None
        finally:
            call.cancel()


async def _greet(call: Any, card: ReplicaCard, token: str) -> ReplicaCard:
    try:
        async with asyncio.timeout(WELCOME_TIMEOUT_S):
            await call.write(codec.encode_hello(card, token))
            first = await call.read()
    except TimeoutError:
        raise Unavailable(f"the target did not answer Hello within {WELCOME_TIMEOUT_S:.0f} s") from None
    if first is grpc.aio.EOF:
        raise ProtocolError("the target ended the stream without Welcome")
    return codec.decode_welcome(first)


def _stream_error(address: str, error: grpc.aio.AioRpcError) -> SpecgroveError:
    if explained(error.trailing_metadata()):
        return from_rpc_error(error)
    return Unavailable(f"the stream to the target at {address} broke: {error.details()}")
