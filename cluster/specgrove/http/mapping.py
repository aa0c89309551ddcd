"""Requests of the door as core.GenerateRequest."""

from __future__ import annotations

import uuid

from specgrove.core.request import ChatMessage, GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.http.schemas.chat import ChatRequest
from specgrove.http.schemas.common import GenerationFields
from specgrove.http.schemas.completions import CompletionRequest


def chat_request(asked: ChatRequest, request_id: str) -> GenerateRequest:
    """The one generation that a chat completion asks for."""
    messages = tuple(
        # Templates know `system`; `developer` is OpenAI's newer word for the same.
        ChatMessage("system" if message.role == "developer" else message.role, message.content, message.name)
        for message in asked.messages
    )
    return _request(
        asked, request_id, messages=messages, logprobs=asked.top_logprobs if asked.logprobs else None,
        prediction=asked.prediction.content if asked.prediction is not None else None,
        user=asked.user or asked.safety_identifier,
    )  # fmt: skip


def completion_requests(asked: CompletionRequest, request_id: str) -> list[GenerateRequest]:
    """One generation per prompt, in the order of the prompts."""
    many = len(asked.prompt) > 1
    return [
        _request(
            asked,
            f"{request_id}-{index}" if many else request_id,
            text=prompt if isinstance(prompt, str) else None,
            tokens=None if isinstance(prompt, str) else prompt,
            logprobs=asked.logprobs,
            echo=asked.echo,
            user=asked.user,
        )
        for index, prompt in enumerate(asked.prompt)
    ]


def unique_id(client_id: str) -> str:
    """The client's id made unique: two clients may choose the same one, and their sessions must not meet."""
    return f"{client_id}-{uuid.uuid4().hex[:8]}"


def sampling_fields(asked: GenerationFields) -> SamplingFields:
    """The sampling fields; None stays None, so that the model's own defaults can decide."""
    return SamplingFields(
        temperature=asked.temperature,
        top_k=0 if asked.top_k == -1 else asked.top_k,
        top_p=asked.top_p,
        min_p=asked.min_p,
        repetition_penalty=asked.repetition_penalty,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logit_bias=asked.logit_bias,
        allowed_token_ids=asked.allowed_token_ids,
        banned_token_ids=asked.banned_token_ids,
        seed=None if asked.seed is None else asked.seed % 2**64,
    )


def _request(
    asked: GenerationFields,
    request_id: str,
    *,
    logprobs: int | None,
    user: str | None,
    text: str | None = None,
    tokens: tuple[int, ...] | None = None,
    messages: tuple[ChatMessage, ...] | None = None,
    echo: bool = False,
    prediction: str | None = None,
) -> GenerateRequest:
    limits = asked.speculation
    return GenerateRequest(
        request_id=request_id,
        model=asked.model,
        text=text,
        tokens=tokens,
        messages=messages,
        sampling=sampling_fields(asked),
        n=asked.n,
        max_tokens=asked.token_limit,
        min_tokens=asked.min_tokens,
        stop=asked.stop,
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
        logprobs=logprobs,
        echo=echo,
        speculation=Speculation(
            mode=limits.mode,
            max_nodes=limits.max_nodes,
            max_depth=limits.max_depth,
            branching=limits.branching,
            method=limits.method,
        ),
        prediction=prediction,
        timeout_s=asked.timeout_s,
        user=user or None,
        metadata=asked.metadata,
    )
