"""Errors become gRPC status and come back as the same errors."""

from __future__ import annotations

import logging

import grpc
import pytest

from specgrove.errors import (
    ERRORS,
    CapacityError,
    ModelNotFound,
    ProtocolError,
    ReplicaLost,
    RequestError,
    SpecgroveError,
    Unavailable,
)
from specgrove.rpc import status


class ServeContext:
    """What Ray Serve's ingress offers: three setters and no abort."""

    def __init__(self) -> None:
        self.code, self.details, self.trailers = grpc.StatusCode.OK, "", []

    def set_code(self, code):
        self.code = code

    def set_details(self, details):
        self.details = details

    def set_trailing_metadata(self, trailers):
        self.trailers = trailers

    def invocation_metadata(self):
        return []


def there_and_back(error):
    """Through a context and out of the status that it holds."""
    context = ServeContext()
    status.set_error(context, error)
    assert context.code is not grpc.StatusCode.OK
    return status.from_status(context.code, context.details, context.trailers)


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_error_comes_back_as_itself(code):
    """Type, message, param and retryable."""
    error = ERRORS[code]("what happened", param="top_k")

    back = there_and_back(error)

    assert (type(error), "what happened", "top_k", error.retryable) == (
        type(back),
        back.message,
        back.param,
        back.retryable,
    )


def test_no_param_stays_none():
    """Not an empty string."""
    assert there_and_back(CapacityError("full")).param is None


def test_a_lost_replica_keeps_its_facts():
    """The ingress decides by them."""
    back = there_and_back(ReplicaLost("t0", 17))

    assert isinstance(back, ReplicaLost)
    assert (back.replica, back.tokens, back.retryable) == ("t0", 17, True)


def test_no_two_errors_of_different_meaning_share_unavailable():
    """UNAVAILABLE is what clients send again by themselves; only a call that was never taken may say so."""
    sent_again = {code for code, number in status._STATUS.items() if number is grpc.StatusCode.UNAVAILABLE}

    assert sent_again == {"unavailable"}
    assert set(ERRORS) | {"replica_lost"} == set(status._STATUS)


def test_an_unexpected_error_shows_nothing_of_itself(caplog):
    """The traceback is in the log under the reference that the client gets."""
    with caplog.at_level(logging.ERROR, logger="specgrove.rpc"):
        try:
            raise KeyError("secret path")
        except KeyError as error:
            back = there_and_back(error)

    assert "secret" not in back.message
    reference = back.message.rsplit(" ", 1)[1]
    assert reference in caplog.text
    assert "secret path" in caplog.text


def test_a_long_or_broken_message_still_travels():
    """Text of a client may be in it: lone surrogates, megabytes."""
    back = there_and_back(RequestError("\ud800" + "x" * 10**6, param="text"))

    assert isinstance(back, RequestError)
    assert len(back.message) < 5000


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, "connection refused", Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)", RequestError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", CapacityError),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ProtocolError),
        (grpc.StatusCode.DATA_LOSS, "", SpecgroveError),
    ],
)
def test_a_bare_status_becomes_the_nearest_error(code, details, kind):
    """Proxies and gRPC itself know nothing of our codes."""
    assert type(status.from_status(code, details)) is kind


@pytest.mark.parametrize("trailers", [[("grpc-status-details-bin", b"\xff\xff")], [("x", "y")], None])
def test_broken_details_are_ignored(trailers):
    """A status with garbage in its details is a bare status."""
    assert type(status.from_status(grpc.StatusCode.NOT_FOUND, "no", trailers)) is ProtocolError
    good = status.trailing_metadata(ModelNotFound("no"))
    assert type(status.from_status(grpc.StatusCode.NOT_FOUND, "no", good)) is ModelNotFound
