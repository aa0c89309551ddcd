"""Requests that are no messages: a client that sends garbage gets INVALID_ARGUMENT with the reason.

gRPC's own answer to bytes that a deserializer refuses is UNKNOWN with the name of a Python class, and no handler hears
of it. So our deserializers return the reason in place of the message, and the handlers refuse it like any bad request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from specgrove.errors import RequestError

Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands where the request would. It crosses processes under Serve's proxy, pickled."""

    why: str


def readable(request: Request | Unreadable, *, max_bytes: int | None = None) -> Request:
    """The request itself. Raises RequestError when it is no message, or one of more than `max_bytes` bytes."""
    if isinstance(request, Unreadable):
        raise RequestError(f"the request cannot be read: {request.why}")
    if max_bytes is not None and (size := request.ByteSize()) > max_bytes:
        raise RequestError(f"the request has {size} bytes; at most {max_bytes} are taken")
    return request


def add_readably(add: Callable[[Any, Any], None], servicer: Any, server: Any) -> None:
    """Call the generated `add(servicer, server)` so that the servicer hears of requests which cannot be read."""
    add(servicer, _Server(server))


class _Server:
    """Takes the handlers that generated code registers and passes them on with our deserializers."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, generic_handlers: Sequence[Any]) -> None:
        """Generated code registers everything a second time, by name, and that is passed on both ways."""

    def add_registered_method_handlers(self, name: str, handlers: Mapping[str, Any]) -> None:
        """The handlers of one service."""
        ours = {
            method: handler._replace(request_deserializer=_forgiving(handler.request_deserializer))
            for method, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, ours),))
        self._server.add_registered_method_handlers(name, ours)


def _forgiving(parse: Callable[[bytes], Request]) -> Callable[[bytes], Request | Unreadable]:
    def parsed(data: bytes) -> Request | Unreadable:
        try:
            return parse(data)
        except DecodeError as error:
            return Unreadable(str(error))

    return parsed
