"""Errors to gRPC status and back. The error's code, `retryable` and `param` travel as google.rpc.ErrorInfo."""

from __future__ import annotations

import logging
from typing import Any, Protocol
from uuid import uuid4

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from specgrove.errors import (
    ERRORS,
    Cancelled,
    CapacityError,
    DeadlineExceeded,
    ProtocolError,
    ReplicaLost,
    RequestError,
    SpecgroveError,
    Unauthenticated,
    Unavailable,
)

log = logging.getLogger("specgrove.rpc")

DOMAIN = "specgrove"
DETAILS_KEY = "grpc-status-details-bin"
_MAX_DETAILS = 2_000  # characters; headers of many kB are refused on the way

_STATUS = {
    "config": grpc.StatusCode.FAILED_PRECONDITION,
    "unsupported_model": grpc.StatusCode.FAILED_PRECONDITION,
    "invalid_request": grpc.StatusCode.INVALID_ARGUMENT,
    "model_not_found": grpc.StatusCode.NOT_FOUND,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "protocol": grpc.StatusCode.FAILED_PRECONDITION,
    "bad_tree": grpc.StatusCode.INVALID_ARGUMENT,
    "capacity": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    # Not UNAVAILABLE: tokens may be out already, so nobody on the way may send the call again by itself.
    "replica_lost": grpc.StatusCode.ABORTED,
    "deadline_exceeded": grpc.StatusCode.DEADLINE_EXCEEDED,
    "cancelled": grpc.StatusCode.CANCELLED,
    "internal": grpc.StatusCode.INTERNAL,
}

# What a bare status means, one that no server of ours explained.
_BARE: dict[grpc.StatusCode, type[SpecgroveError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: RequestError,
    grpc.StatusCode.OUT_OF_RANGE: RequestError,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Unauthenticated,
    grpc.StatusCode.NOT_FOUND: ProtocolError,
    grpc.StatusCode.UNIMPLEMENTED: ProtocolError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: CapacityError,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
}


class StatusContext(Protocol):
    """The part of a servicer context that grpc.aio and Ray Serve's gRPC ingress have in common."""

    def set_code(self, code: grpc.StatusCode) -> None:
        """Status of the call."""

    def set_details(self, details: str) -> None:
        """Message of the status."""

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Pairs sent with the status."""


def status_code(error: SpecgroveError) -> grpc.StatusCode:
    """The gRPC status of an error."""
    return _STATUS.get(error.code, grpc.StatusCode.INTERNAL)


def public(error: BaseException) -> SpecgroveError:
    """The error as a client may see it; anything unexpected is logged and replaced by a reference to the log."""
    if isinstance(error, SpecgroveError):
        return error
    if isinstance(error, DecodeError):  # grpc.aio parses what a stream reads inside our handler
        return ProtocolError(f"a message cannot be read: {error}")
    reference = uuid4().hex[:12]
    log.error("unexpected error %s", reference, exc_info=error)
    return SpecgroveError(f"internal error; the server's log has it as {reference}")


def trailing_metadata(error: SpecgroveError) -> list[tuple[str, bytes]]:
    """google.rpc.Status with one ErrorInfo, under the key that gRPC libraries read."""
    facts = {"retryable": "true" if error.retryable else "false"}
    if error.param is not None:
        facts["param"] = error.param
    if isinstance(error, ReplicaLost):
        facts |= {"replica": error.replica, "tokens": str(error.tokens)}
    detail = AnyMessage()
    detail.Pack(ErrorInfo(reason=error.code, domain=DOMAIN, metadata=facts))
    status = Status(code=status_code(error).value[0], message=_message(error), details=[detail])
    return [(DETAILS_KEY, status.SerializeToString())]


def set_error(context: StatusContext, error: BaseException) -> None:
    """Give the call its failed status; the handler then returns normally.

    Not context.abort(): Serve's ingress has none, and drops trailing metadata when a handler raises.
    """
    shown = public(error)
    context.set_code(status_code(shown))
    context.set_details(_message(shown))
    context.set_trailing_metadata(trailing_metadata(shown))


def _message(error: SpecgroveError) -> str:
    # A lone surrogate from a client's text must not make the reply itself impossible.
    return error.message[:_MAX_DETAILS].encode("utf-8", "replace").decode()


def from_status(code: grpc.StatusCode, details: str, trailers: Any = ()) -> SpecgroveError:
    """The error that a failed call stands for: the server's own when it explained it, else the nearest."""
    info = _error_info(trailers)
    if info is not None:
        return _rebuild(info, details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return RequestError(f"message too large: {details}")
    return _BARE.get(code, SpecgroveError)(details or f"the call failed with {code.name}")


def explained(trailers: Any) -> bool:
    """Whether a server of ours gave the status, rather than the connection or something on the way."""
    return _error_info(trailers) is not None


def _error_info(trailers: Any) -> ErrorInfo | None:
    for key, value in trailers or ():
        if key != DETAILS_KEY:
            continue
        status, info = Status(), ErrorInfo()
        try:
            status.ParseFromString(value)
            for detail in status.details:
                if detail.Unpack(info) and info.domain == DOMAIN:
                    return info
        except DecodeError:
            return None
    return None


def _rebuild(info: ErrorInfo, details: str) -> SpecgroveError:
    if info.reason == ReplicaLost.code:
        tokens = info.metadata.get("tokens", "")
        return ReplicaLost(info.metadata.get("replica", ""), int(tokens) if tokens.isdecimal() else 0)
    error = ERRORS.get(info.reason, SpecgroveError)(details, param=info.metadata.get("param"))
    error.retryable = info.metadata.get("retryable") == "true"
    return error
