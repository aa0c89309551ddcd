"""From keyword arguments to a GenerateRequest, and the connection settings that both clients share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import grpc

from specgrove.core.request import ChatMessage, GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.errors import RequestError, SpecgroveError
from specgrove.rpc.channel import Option, user_options
from specgrove.rpc.status import from_status

Prompt = str | Sequence[int] | Sequence[ChatMessage]
"""A text, token ids, or a chat (which the model's template turns into a prompt)."""

_SAMPLING = frozenset(field.name for field in fields(SamplingFields))
_REQUEST = frozenset(field.name for field in fields(GenerateRequest)) - {
    "model", "text", "tokens", "messages", "sampling",
}  # fmt: skip
_SEQUENCES = ("stop", "stop_token_ids", "allowed_token_ids", "banned_token_ids")


def build_request(model: str, prompt: Prompt, **options: Any) -> GenerateRequest:
    """A request from a prompt and the fields of GenerateRequest and SamplingFields, by name.

    Raises RequestError that names a field which does not exist or has another type.
    """
    if unknown := sorted(set(options) - _SAMPLING - _REQUEST):
        raise RequestError(
            f"no field {unknown[0]!r}; known: {', '.join(sorted(_SAMPLING | _REQUEST))}", param=unknown[0]
        )
    if isinstance(options.get("stop"), str):
        options["stop"] = (options["stop"],)
    for name in _SEQUENCES:
        if options.get(name) is not None:
            options[name] = _items(options[name], name)
    for name, kind in (("metadata", Mapping), ("speculation", Speculation)):
        if name in options and not isinstance(options[name], kind):
            raise RequestError(f"{name} must be a {kind.__name__}, got {options[name]!r:.80}", param=name)
    return GenerateRequest(
        **{"request_id": ""} | {name: value for name, value in options.items() if name in _REQUEST},
        model=model,
        **_prompt(prompt),
        sampling=SamplingFields(**{name: value for name, value in options.items() if name in _SAMPLING}),
    )


def _items(values: Any, name: str) -> tuple[Any, ...]:
    try:
        if not isinstance(values, (bytes, bytearray)):  # their items are numbers, too, but no token ids
            return tuple(values)
    except TypeError:
        pass
    raise RequestError(f"{name} must be a sequence, got {values!r:.80}", param=name)


def _prompt(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"text": prompt}
    parts = _items(prompt, "prompt")
    if parts and all(isinstance(part, ChatMessage) for part in parts):
        return {"messages": parts}
    if any(isinstance(part, bool) or not hasattr(part, "__index__") for part in parts):
        raise RequestError("a prompt is a text, token ids, or ChatMessages", param="prompt")
    return {"tokens": tuple(int(part) for part in parts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the service is and how calls to it are made."""

    address: str
    api_key: str | None
    credentials: grpc.ChannelCredentials | None
    """None: plaintext."""
    max_attempts: int
    """Times that a call is sent when the server did not take it (UNAVAILABLE)."""
    timeout_s: float
    """Limit of every call but generate, which has its own field."""

    @property
    def options(self) -> list[Option]:
        """Channel options."""
        return user_options(max_attempts=self.max_attempts)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with each call."""
        return () if self.api_key is None else (("authorization", f"Bearer {self.api_key}"),)


def from_call(error: Any) -> SpecgroveError:
    """The error that a failed call stands for; `error` is the grpc.RpcError of either API."""
    return from_status(error.code(), error.details() or "", error.trailing_metadata() or ())
