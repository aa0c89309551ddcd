"""GenerationService over a Backend, for a raw grpc.aio server and for Ray Serve's gRPC ingress alike."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from specgrove.core.limits import check_request
from specgrove.core.protocols import Backend
from specgrove.errors import Unauthenticated
from specgrove.rpc import codec
from specgrove.rpc.status import StatusContext, set_error
from specgrove.rpc.unreadable import Request, readable
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1.generation_pb2_grpc import GenerationServiceServicer

Reply = TypeVar("Reply")


class CallContext(StatusContext, Protocol):
    """What we use of a call's context; grpc.aio and Serve both have it."""

    def invocation_metadata(self) -> Any:
        """Pairs that the client sent."""


def check_key(metadata: Iterable[Any] | None, keys: Sequence[str]) -> None:
    """Raises Unauthenticated unless `authorization: Bearer KEY` names one of the keys; no keys: everyone may call."""
    if not keys:
        return
    sent = next((value for key, value in metadata or () if key == "authorization"), None)
    if isinstance(sent, str) and sent.startswith("Bearer "):
        offered = sent.removeprefix("Bearer ").encode()
        # Every key is compared, so the time tells nothing about which one is near.
        if sum(hmac.compare_digest(offered, key.encode()) for key in keys):
            return
    raise Unauthenticated("missing or wrong API key; send the metadata 'authorization: Bearer KEY'")


class GenerationServicer(GenerationServiceServicer):
    """The four calls. Errors are set on the context and the handler returns normally (see status.set_error).

    The context parameter has the name by which Serve recognises it.
    """

    def __init__(self, backend: Backend, *, api_keys: Sequence[str] = (), max_bytes: int | None = None) -> None:
        """`max_bytes`: larger requests are refused before anything is done with them; None: as the transport has it."""
        self._backend, self._api_keys, self._max_bytes = backend, tuple(api_keys), max_bytes

    async def Generate(
        self, request: pb.GenerateRequest, grpc_context: CallContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Events of one request. When the call goes away the backend's iterator is closed before this one ends."""
        try:
            check_key(grpc_context.invocation_metadata(), self._api_keys)
            asked = codec.decode_request(readable(request, max_bytes=self._max_bytes))
            check_request(asked)
            if not asked.request_id:
                asked = replace(asked, request_id=uuid4().hex)
            async with aclosing(_closable(self._backend.generate(asked))) as events:
                async for event in events:
                    yield codec.encode_event(event)
        except Exception as error:  # the door of the server: everything becomes a status
            set_error(grpc_context, error)

    async def ListModels(self, request: pb.ListModelsRequest, grpc_context: CallContext) -> pb.ListModelsResponse:
        """All served models."""

        async def work(_: pb.ListModelsRequest) -> pb.ListModelsResponse:
            return codec.encode_models(await self._backend.models())

        return await self._unary(work, request, grpc_context, pb.ListModelsResponse)

    async def Tokenize(self, request: pb.TokenizeRequest, grpc_context: CallContext) -> pb.TokenizeResponse:
        """Token ids of a text."""

        async def work(asked: pb.TokenizeRequest) -> pb.TokenizeResponse:
            special = asked.add_special_tokens if asked.HasField("add_special_tokens") else True
            ids = await self._backend.tokenize(asked.model, asked.text, add_special_tokens=special)
            return pb.TokenizeResponse(tokens=ids)

        return await self._unary(work, request, grpc_context, pb.TokenizeResponse)

    async def Detokenize(self, request: pb.DetokenizeRequest, grpc_context: CallContext) -> pb.DetokenizeResponse:
        """Text of token ids."""

        async def work(asked: pb.DetokenizeRequest) -> pb.DetokenizeResponse:
            return pb.DetokenizeResponse(text=await self._backend.detokenize(asked.model, tuple(asked.tokens)))

        return await self._unary(work, request, grpc_context, pb.DetokenizeResponse)

    async def _unary(
        self,
        work: Callable[[Request], Awaitable[Reply]],
        request: Request,
        context: CallContext,
        empty: Callable[[], Reply],
    ) -> Reply:
        try:
            check_key(context.invocation_metadata(), self._api_keys)
            return await work(readable(request, max_bytes=self._max_bytes))
        except Exception as error:  # the door of the server: everything becomes a status
            set_error(context, error)
            return empty()  # gRPC discards it, as the status is not OK


async def _closable(events: AsyncIterator[Any]) -> Any:
    """The iterator as a generator: closing it closes the iterator too, where that can be closed."""
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class DirectGenerationServicer(GenerationServicer):
    """GenerationService on our own grpc.aio server, where the handler itself writes.

    grpc.aio leaves an async generator to the garbage collector when a cancel arrives while a message is being written;
    a handler that writes is cancelled right there and closes everything at once.
    """

    async def Generate(  # type: ignore[override]  # a coroutine that writes, in place of a generator
        self, request: pb.GenerateRequest, context: Any
    ) -> None:
        """As in the base class, written to the context."""
        async with aclosing(super().Generate(request, context)) as responses:  # type: ignore[type-var]  # a generator
            async for response in responses:
                await context.write(response)
