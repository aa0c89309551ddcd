"""The client for asyncio programs; the same calls as the synchronous one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
import grpc.aio

from specgrove.client.ask import Connection, Prompt, build_request, from_call
from specgrove.client.completion import Completion, Gatherer
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import Finished, GenerateEvent, GenerateRequest
from specgrove.errors import ProtocolError
from specgrove.rpc import codec
from specgrove.rpc.channel import call_deadline
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1.generation_pb2_grpc import GenerationServiceStub

if TYPE_CHECKING:  # a type that exists in the stubs only
    from specgrove.v1.generation_pb2_grpc import GenerationServiceAsyncStub

Reply = TypeVar("Reply")


class AsyncClient:
    """Calls GenerationService at `address` (host:port) from one event loop. Arguments and errors as in Client."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        max_attempts: int = 4,
        timeout_s: float = 30.0,
    ) -> None:
        self._to = Connection(
            address=address, api_key=api_key, credentials=credentials, max_attempts=max_attempts, timeout_s=timeout_s
        )
        self._channel: grpc.aio.Channel | None = None

    def _stub(self) -> GenerationServiceAsyncStub:
        # Made at the first call, because it belongs to the loop that is running then.
        if self._channel is None:
            to = self._to
            self._channel = (
                grpc.aio.insecure_channel(to.address, options=to.options)
                if to.credentials is None
                else grpc.aio.secure_channel(to.address, to.credentials, options=to.options)
            )
        return GenerationServiceStub(self._channel)

    def generate(self, model: str, prompt: Prompt, **options: Any) -> AsyncIterator[GenerateEvent]:
        """Events of one request as they come; closing the iterator stops the work.

        `options`: fields of GenerateRequest and SamplingFields by name.
        """
        return self.send(build_request(model, prompt, **options))

    async def complete(self, model: str, prompt: Prompt, **options: Any) -> Completion:
        """The whole reply at once."""
        gatherer = Gatherer()
        async for event in self.generate(model, prompt, **options):
            gatherer.add(event)
        return gatherer.completion()

    async def send(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """As generate, with a request that is ready."""
        message = codec.encode_request(request)
        call = self._stub().Generate(message, timeout=call_deadline(request.timeout_s), metadata=self._to.metadata)
        try:
            async for response in call:
                event = codec.decode_event(response)
                yield event
                if isinstance(event, Finished):
                    return
        except grpc.aio.AioRpcError as error:
            raise from_call(error) from None
        finally:
            call.cancel()
        raise ProtocolError("the server ended the stream without Finished")

    async def models(self) -> Sequence[ModelStatus]:
        """All served models."""
        call = self._stub().ListModels(pb.ListModelsRequest(), timeout=self._to.timeout_s, metadata=self._to.metadata)
        return codec.decode_models(await self._unary(call))

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a text."""
        message = codec.encode_tokenize(model, text, add_special_tokens=add_special_tokens)
        call = self._stub().Tokenize(message, timeout=self._to.timeout_s, metadata=self._to.metadata)
        return tuple((await self._unary(call)).tokens)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids."""
        message = codec.encode_detokenize(model, tokens)
        call = self._stub().Detokenize(message, timeout=self._to.timeout_s, metadata=self._to.metadata)
        return (await self._unary(call)).text

    async def _unary(self, call: Awaitable[Reply]) -> Reply:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise from_call(error) from None

    async def close(self) -> None:
        """Drop the connection; streams that still run fail. Idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
