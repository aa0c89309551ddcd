"""The body of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from specgrove.core.limits import MAX_LOGPROBS, MAX_NEW_TOKENS
from specgrove.errors import RequestError
from specgrove.http.schemas import neutral
from specgrove.http.schemas.common import GenerationFields
from specgrove.http.schemas.fields import FLAG, checked, one_of, shown, text, whole
from specgrove.http.schemas.strict import Strict

Role = Literal["system", "developer", "user", "assistant"]


def _content(value: Any) -> str:
    """A string, or text parts joined by line breaks (as vLLM does for templates that take strings)."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(f"must be a string or a list of text parts, got {shown(value)}")
    return "\n".join(_part(index, part) for index, part in enumerate(value))


def _part(index: int, part: Any) -> str:
    if not isinstance(part, dict):
        raise ValueError(f"must be a string or a list of text parts, but part {index} is {shown(part)}")
    if part.get("type") != "text":
        raise ValueError(f"may hold text parts only, but part {index} is of type {shown(part.get('type'))}")
    if not isinstance(part.get("text"), str):
        raise ValueError(f"has a text part without a string in `text` (part {index})")
    for name, value in part.items():
        if name not in ("type", "text") and value is not None:
            raise ValueError(f"has a part with the field {shown(name)}, which is not supported (part {index})")
    return str(part["text"])


class Message(Strict):
    """One message of the chat."""

    neutral_fields = neutral.MESSAGE

    role: Annotated[Role, one_of("system", "developer", "user", "assistant")]
    content: Annotated[str, checked(_content)]
    name: Annotated[str | None, text(64)] = None


class StaticPrediction(Strict):
    """OpenAI's predicted output: text that much of the answer is expected to be."""

    type: Annotated[Literal["content"], one_of("content")]
    content: Annotated[str, checked(_content)]


class ChatRequest(GenerationFields):
    """OpenAI's chat completion request, with vLLM's extras and ours."""

    neutral_fields = neutral.CHAT

    messages: Annotated[list[Message], Field(min_length=0)]
    max_completion_tokens: Annotated[int | None, whole(0, MAX_NEW_TOKENS)] = None
    logprobs: Annotated[bool, FLAG] = False
    top_logprobs: Annotated[int, whole(0, MAX_LOGPROBS)] = 0
    prediction: StaticPrediction | None = None
    """Only guessed from; the answer is the same without it."""
    safety_identifier: Annotated[str | None, text(512, empty=True)] = None
    """OpenAI's newer name for `user`."""

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens`, or its older name `max_tokens`."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @model_validator(mode="after")
    def _chat_fields_fit_together(self) -> ChatRequest:
        if not self.messages:
            raise RequestError("`messages` must hold at least one message", param="messages")
        if self.max_tokens is not None and self.max_tokens != self.token_limit:
            raise RequestError(
                f"`max_tokens` ({self.max_tokens}) and `max_completion_tokens` ({self.token_limit}) differ; send one",
                param="max_tokens",
            )
        if self.top_logprobs and not self.logprobs:
            raise RequestError("`top_logprobs` needs `logprobs: true`", param="top_logprobs")
        if self.safety_identifier and self.user and self.safety_identifier != self.user:
            raise RequestError("`safety_identifier` and `user` differ; send one of them", param="safety_identifier")
        return self


TABLES = (neutral.CHAT, neutral.MESSAGE, neutral.STREAM_OPTIONS)
"""For schemas.strict.parse."""
