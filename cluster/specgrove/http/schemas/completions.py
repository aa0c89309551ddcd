"""The body of /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import model_validator

from specgrove.core.limits import MAX_LOGPROBS, MAX_NEW_TOKENS
from specgrove.errors import RequestError
from specgrove.http.schemas import neutral
from specgrove.http.schemas.common import GenerationFields
from specgrove.http.schemas.fields import FLAG, MAX_TOKEN_ID, are_token_ids, checked, shown, whole

MAX_PROMPTS = 256
MAX_CHOICES = 1024
"""Prompts times n."""
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""

Prompt: TypeAlias = str | tuple[int, ...]


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """All four of OpenAI's forms (text, token ids, a list of either) as a tuple of prompts."""
    forms = "a string, a list of token ids, or a list of either"
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise ValueError(f"must be {forms}, and not empty; got {shown(value)}")
    if all(isinstance(item, str) for item in value):
        found: tuple[Prompt, ...] = tuple(value)
    elif all(isinstance(item, list) for item in value):
        found = tuple(_ids(item) for item in value)
    elif all(type(item) is int for item in value):
        return (_ids(value),)
    else:
        raise ValueError(f"must be {forms}, of one kind; got {shown(value)}")
    if len(found) > MAX_PROMPTS:
        raise ValueError(f"must hold at most {MAX_PROMPTS} prompts, got {len(found)}")
    return found


def _ids(ids: list[Any]) -> tuple[int, ...]:
    if not ids:
        raise ValueError("must not hold an empty list of token ids")
    if not are_token_ids(ids):
        raise ValueError(f"must hold token ids from 0 to {MAX_TOKEN_ID}, got {shown(ids)}")
    return tuple(ids)


class CompletionRequest(GenerationFields):
    """OpenAI's completion request, with vLLM's extras and ours."""

    neutral_fields = neutral.COMPLETIONS

    prompt: Annotated[tuple[Prompt, ...], checked(_prompts)]
    max_tokens: Annotated[int | None, whole(0, MAX_NEW_TOKENS)] = DEFAULT_MAX_TOKENS
    echo: Annotated[bool, FLAG] = False
    logprobs: Annotated[int | None, whole(0, MAX_LOGPROBS)] = None
    best_of: Annotated[int | None, whole(1, 128)] = None

    @model_validator(mode="after")
    def _completion_fields_fit_together(self) -> CompletionRequest:
        if self.best_of is not None and self.best_of != self.n:
            raise RequestError("`best_of` is not supported; leave it out or send the value of `n`", param="best_of")
        if len(self.prompt) * self.n > MAX_CHOICES:
            raise RequestError(
                f"{len(self.prompt)} prompts times n = {self.n} is over the limit of {MAX_CHOICES} choices", param="n"
            )
        return self


TABLES = (neutral.COMPLETIONS, neutral.STREAM_OPTIONS)
"""For schemas.strict.parse."""
