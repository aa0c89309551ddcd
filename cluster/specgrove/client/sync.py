"""The client for ordinary programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from specgrove.client.ask import Connection, Prompt, build_request, from_call
from specgrove.client.completion import Completion, Gatherer
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import Finished, GenerateEvent, GenerateRequest
from specgrove.errors import ProtocolError
from specgrove.rpc import codec
from specgrove.rpc.channel import call_deadline
from specgrove.v1 import generation_pb2 as pb
from specgrove.v1.generation_pb2_grpc import GenerationServiceStub

Reply = TypeVar("Reply")


class Stream:
    """Iterator over the events of one request. Close it (or leave its `with` block) to stop the work early."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> GenerateEvent:
        """Raises SpecgroveError when the request failed."""
        if self._ended:
            raise StopIteration
        try:
            event = codec.decode_event(next(self._call))
        except StopIteration:
            self.close()
            raise ProtocolError("the server ended the stream without Finished") from None
        except grpc.RpcError as error:
            self.close()
            raise from_call(error) from None
        if isinstance(event, Finished):
            self.close()
        return event

    def close(self) -> None:
        """Stop. Idempotent."""
        self._ended = True
        self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client:
    """Calls GenerationService at `address` (host:port). May be used from several threads.

    `credentials`: grpc.ssl_channel_credentials(...) for TLS; None is plaintext. `timeout_s` limits every call but
    generate and complete, whose limit is the request's own `timeout_s`. Calls that the server did not take
    (UNAVAILABLE) are sent up to `max_attempts` times. All methods raise SpecgroveError.
    """

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
        options = self._to.options
        self._channel = (
            grpc.insecure_channel(address, options=options)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=options)
        )
        self._stub = GenerationServiceStub(self._channel)

    @property
    def address(self) -> str:
        """host:port of the service."""
        return self._to.address

    def generate(self, model: str, prompt: Prompt, **options: Any) -> Stream:
        """Events of one request as they come. `options`: fields of GenerateRequest and SamplingFields by name."""
        return self.send(build_request(model, prompt, **options))

    def complete(self, model: str, prompt: Prompt, **options: Any) -> Completion:
        """The whole reply at once."""
        gatherer = Gatherer()
        with self.generate(model, prompt, **options) as stream:
            for event in stream:
                gatherer.add(event)
        return gatherer.completion()

    def send(self, request: GenerateRequest) -> Stream:
        """As generate, with a request that is ready."""
        message = codec.encode_request(request)
        return Stream(
            self._stub.Generate(message, timeout=call_deadline(request.timeout_s), metadata=self._to.metadata)
        )

    def models(self) -> Sequence[ModelStatus]:
        """All served models."""
        return codec.decode_models(self._unary(self._stub.ListModels, pb.ListModelsRequest()))

    def tokenize(self, model: str, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """Token ids of a text."""
        message = codec.encode_tokenize(model, text, add_special_tokens=add_special_tokens)
        return tuple(self._unary(self._stub.Tokenize, message).tokens)

    def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids."""
        return self._unary(self._stub.Detokenize, codec.encode_detokenize(model, tokens)).text

    def _unary(self, call: Callable[..., Reply], message: object) -> Reply:
        try:
            return call(message, timeout=self._to.timeout_s, metadata=self._to.metadata)
        except grpc.RpcError as error:
            raise from_call(error) from None

    def close(self) -> None:
        """Drop the connection; streams that still run fail. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
