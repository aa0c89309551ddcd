"""The one error family.

Every error carries a stable `code`, whether a retry may help, and its facts as attributes. HTTP and gRPC numbers are
given at the edges only (`http/errors.py`, `rpc/status.py`).
"""

from __future__ import annotations


class SpecgroveError(Exception):
    """Base of all errors that a person or a client may see. `code` is stable; the message is one sentence."""

    code: str = "internal"
    retryable: bool = False

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """Name of the request field or config key that caused the error, if one did."""


class ConfigError(SpecgroveError):
    """A configuration that cannot be honoured; stops the start."""

    code = "config"


class UnsupportedModel(ConfigError):
    """A model that the engine refuses to load, with the reason."""

    code = "unsupported_model"


class RequestError(SpecgroveError):
    """A request that cannot be honoured; `param` names the field."""

    code = "invalid_request"


class ModelNotFound(SpecgroveError):
    """The request names a model that is not served."""

    code = "model_not_found"


class Unauthenticated(SpecgroveError):
    """Missing or wrong API key or cluster token."""

    code = "unauthenticated"


class ProtocolError(SpecgroveError):
    """A peer broke the Speculate protocol or speaks another version."""

    code = "protocol"


class TreeError(ProtocolError):
    """A tree that must not touch the model: cycle, duplicate sibling, token or parent out of range, too large."""

    code = "bad_tree"


class CapacityError(SpecgroveError):
    """No room now (KV slots, queue); try again later."""

    code, retryable = "capacity", True


class Unavailable(SpecgroveError):
    """No replica can take the request now."""

    code, retryable = "unavailable", True


class ReplicaLost(SpecgroveError):
    """A replica stopped answering in the middle of a request."""

    code, retryable = "replica_lost", True

    def __init__(self, replica: str, tokens: int) -> None:
        super().__init__(f"replica {replica} stopped answering after {tokens} tokens")
        self.replica, self.tokens = replica, tokens


class DeadlineExceeded(SpecgroveError):
    """The request's own deadline passed."""

    code = "deadline_exceeded"


class Cancelled(SpecgroveError):
    """The client went away or asked to stop."""

    code = "cancelled"


ERRORS: dict[str, type[SpecgroveError]] = {
    cls.code: cls
    for cls in (
        SpecgroveError, ConfigError, UnsupportedModel, RequestError, ModelNotFound, Unauthenticated, ProtocolError,
        TreeError, CapacityError, Unavailable, DeadlineExceeded, Cancelled,
    )
}  # fmt: skip
"""Errors by code that can be rebuilt from (message, param) after crossing a process border."""
