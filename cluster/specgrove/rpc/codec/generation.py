"""generation.proto: requests and the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from specgrove.core.request import (
    ChatMessage,
    ChoiceFinished,
    Chunk,
    Finished,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    RoundTrace,
    Speculation,
    SpeculationStats,
    Started,
    TokenLogprob,
)
from specgrove.core.sampling import SamplingFields
from specgrove.errors import ProtocolError, RequestError
from specgrove.rpc.codec.cards import decode_tree, encode_tree
from specgrove.v1 import generation_pb2 as pb

_SAMPLING_SCALARS = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
)  # fmt: skip
_SAMPLING_IDS = ("allowed_token_ids", "banned_token_ids")
_REQUEST_SCALARS = ("request_id", "model", "min_tokens", "ignore_eos", "echo", "trace")
_REQUEST_OPTIONAL = ("max_tokens", "logprobs", "timeout_s", "user", "prediction")
_SPECULATION_OPTIONAL = ("max_nodes", "max_depth", "method")
_TRACE_SCALARS = ("draft", "draft_s", "verify_s", "round_s")
_STATS_SCALARS = (
    "rounds", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "stale_trees",
    "accepted_prediction_tokens", "rejected_prediction_tokens",
)  # fmt: skip

_MODE_OUT = {"auto": pb.SPECULATION_MODE_AUTO, "off": pb.SPECULATION_MODE_OFF}
_MODE_IN: dict[int, Literal["auto", "off"]] = {
    pb.SPECULATION_MODE_UNSPECIFIED: "auto",
    pb.SPECULATION_MODE_AUTO: "auto",
    pb.SPECULATION_MODE_OFF: "off",
}
_REASON_OUT: dict[FinishReason, pb.FinishReason] = {
    "stop": pb.FINISH_REASON_STOP,
    "length": pb.FINISH_REASON_LENGTH,
    "cancelled": pb.FINISH_REASON_CANCELLED,
    "error": pb.FINISH_REASON_ERROR,
}
_REASON_IN: dict[int, FinishReason] = {number: reason for reason, number in _REASON_OUT.items()}


def _put(message: Any, name: str, value: object, *, param: str) -> None:
    """Set one field; a value that the wire cannot carry is the request's fault and named."""
    try:
        if isinstance(value, (tuple, list)):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    except (ValueError, TypeError) as error:
        raise RequestError(f"{param} has a value that cannot be sent: {error}", param=param) from None


def _optional(message: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def encode_request(request: GenerateRequest) -> pb.GenerateRequest:
    """Raises RequestError naming the field that cannot be sent (a number out of range, a text that is not Unicode)."""
    message = pb.GenerateRequest()
    for name in _REQUEST_SCALARS:
        _put(message, name, getattr(request, name), param=name)
    for name in _REQUEST_OPTIONAL:
        if getattr(request, name) is not None:
            _put(message, name, getattr(request, name), param=name)
    for name in ("n", "stop", "stop_token_ids"):
        _put(message, name, getattr(request, name), param=name)
    _encode_prompt(request, message)
    _encode_sampling(request.sampling, message.sampling)
    _encode_speculation(request.speculation, message.speculation)
    for key, text in request.metadata.items():
        try:
            message.metadata[key] = text
        except (ValueError, TypeError) as error:
            raise RequestError(f"metadata has a value that cannot be sent: {error}", param="metadata") from None
    return message


def _encode_prompt(request: GenerateRequest, message: pb.GenerateRequest) -> None:
    if request.text is not None:
        _put(message, "text", request.text, param="text")
    elif request.tokens is not None:
        message.tokens.SetInParent()
        _put(message.tokens, "ids", request.tokens, param="tokens")
    elif request.messages is not None:
        message.chat.SetInParent()
        for i, turn in enumerate(request.messages):
            to = message.chat.messages.add()
            for name in ("role", "content", "name"):
                if getattr(turn, name) is not None:
                    _put(to, name, getattr(turn, name), param=f"messages[{i}].{name}")


def _encode_sampling(sampling: SamplingFields, message: pb.SamplingFields) -> None:
    for name in _SAMPLING_SCALARS:
        if getattr(sampling, name) is not None:
            _put(message, name, getattr(sampling, name), param=name)
    for name in _SAMPLING_IDS:
        if getattr(sampling, name) is not None:
            ids = getattr(message, name)
            ids.SetInParent()
            _put(ids, "ids", getattr(sampling, name), param=name)
    if sampling.logit_bias is not None:
        message.logit_bias.SetInParent()
        try:
            message.logit_bias.by_token.update(sampling.logit_bias)
        except (ValueError, TypeError) as error:
            raise RequestError(f"logit_bias has a value that cannot be sent: {error}", param="logit_bias") from None


def _encode_speculation(speculation: Speculation, message: pb.Speculation) -> None:
    message.mode = _MODE_OUT[speculation.mode]
    for name in _SPECULATION_OPTIONAL:
        if getattr(speculation, name) is not None:
            _put(message, name, getattr(speculation, name), param=f"speculation.{name}")
    _put(message, "branching", speculation.branching, param="speculation.branching")


def decode_request(message: pb.GenerateRequest) -> GenerateRequest:
    """Raises RequestError for a request without a prompt and for an unknown speculation mode.

    Ranges are the backend's to check.
    """
    mode = _MODE_IN.get(message.speculation.mode)
    if mode is None:
        raise RequestError(f"speculation.mode {message.speculation.mode} is not known", param="speculation.mode")
    return GenerateRequest(
        **{name: getattr(message, name) for name in _REQUEST_SCALARS},
        **_optional(message, (*_REQUEST_OPTIONAL, "n")),
        **_decode_prompt(message),
        sampling=_decode_sampling(message.sampling),
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        speculation=Speculation(
            mode=mode,
            branching=tuple(message.speculation.branching),
            **_optional(message.speculation, _SPECULATION_OPTIONAL),
        ),
        metadata=dict(message.metadata),
    )


def _decode_prompt(message: pb.GenerateRequest) -> dict[str, Any]:
    match message.WhichOneof("prompt"):
        case "text":
            return {"text": message.text}
        case "tokens":
            return {"tokens": tuple(message.tokens.ids)}
        case "chat":
            return {"messages": tuple(_decode_turn(turn) for turn in message.chat.messages)}
    raise RequestError("a request needs a prompt: set text, tokens or chat", param="prompt")


def _decode_turn(message: pb.ChatMessage) -> ChatMessage:
    return ChatMessage(message.role, message.content, message.name if message.HasField("name") else None)


def _decode_sampling(message: pb.SamplingFields) -> SamplingFields:
    fields = _optional(message, _SAMPLING_SCALARS)
    for name in _SAMPLING_IDS:
        if message.HasField(name):
            fields[name] = tuple(getattr(message, name).ids)
    if message.HasField("logit_bias"):
        fields["logit_bias"] = dict(message.logit_bias.by_token)
    return SamplingFields(**fields)


def _encode_logprob(one: TokenLogprob) -> pb.TokenLogprob:
    return pb.TokenLogprob(
        token=one.token, text=one.text, raw=one.raw, logprob=one.logprob, top=[_encode_logprob(t) for t in one.top]
    )


def _decode_logprob(message: pb.TokenLogprob) -> TokenLogprob:
    logprob = message.logprob if message.HasField("logprob") else None
    return TokenLogprob(message.token, message.text, message.raw, logprob, _decode_logprobs(message.top))


def _decode_logprobs(messages: Iterable[pb.TokenLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(_decode_logprob(one) for one in messages)


def encode_event(event: GenerateEvent) -> pb.GenerateResponse:
    """One message per event."""
    match event:
        case Chunk():
            return pb.GenerateResponse(chunk=_encode_chunk(event))
        case Started():
            return pb.GenerateResponse(started=_encode_started(event))
        case ChoiceFinished():
            return pb.GenerateResponse(choice_finished=_encode_choice_finished(event))
        case Finished():
            return pb.GenerateResponse(
                finished=pb.Finished(
                    prompt_tokens=event.prompt_tokens,
                    completion_tokens=event.completion_tokens,
                    cached_tokens=event.cached_tokens,
                )
            )


def _encode_started(event: Started) -> pb.Started:
    return pb.Started(
        request_id=event.request_id,
        model=event.model,
        seed=event.seed,
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.cached_tokens,
        prompt_text=event.prompt_text,
        prompt_logprobs=[_encode_logprob(one) for one in event.prompt_logprobs],
    )


def _encode_chunk(event: Chunk) -> pb.Chunk:
    return pb.Chunk(
        choice=event.choice,
        tokens=event.tokens,
        text=event.text,
        logprobs=[_encode_logprob(one) for one in event.logprobs],
        trace=None if event.trace is None else _encode_trace(event.trace),
    )


def _encode_trace(trace: RoundTrace) -> pb.RoundTrace:
    scalars = {name: getattr(trace, name) for name in _TRACE_SCALARS}
    return pb.RoundTrace(**scalars, tree=encode_tree(trace.tree), accepted=trace.accepted, emitted=trace.emitted)


def _encode_choice_finished(event: ChoiceFinished) -> pb.ChoiceFinished:
    stats = {name: getattr(event.stats, name) for name in _STATS_SCALARS}
    return pb.ChoiceFinished(
        choice=event.choice,
        reason=_REASON_OUT[event.reason],
        stop_text=event.stop_reason if isinstance(event.stop_reason, str) else None,
        stop_token_id=event.stop_reason if isinstance(event.stop_reason, int) else None,
        completion_tokens=event.completion_tokens,
        stats=pb.SpeculationStats(**stats, accepted_per_pos=event.stats.accepted_per_pos),
    )


def decode_event(message: pb.GenerateResponse) -> GenerateEvent:
    """Raises ProtocolError for an event that this version does not know."""
    match message.WhichOneof("event"):
        case "chunk":
            return _decode_chunk(message.chunk)
        case "started":
            return _decode_started(message.started)
        case "choice_finished":
            return _decode_choice_finished(message.choice_finished)
        case "finished":
            done = message.finished
            return Finished(
                prompt_tokens=done.prompt_tokens,
                completion_tokens=done.completion_tokens,
                cached_tokens=done.cached_tokens,
            )
    raise ProtocolError("the server sent an event that this version does not know")


def _decode_started(message: pb.Started) -> Started:
    return Started(
        request_id=message.request_id,
        model=message.model,
        seed=message.seed,
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        prompt_text=message.prompt_text,
        prompt_logprobs=_decode_logprobs(message.prompt_logprobs),
    )


def _decode_chunk(message: pb.Chunk) -> Chunk:
    return Chunk(
        choice=message.choice,
        tokens=tuple(message.tokens),
        text=message.text,
        logprobs=_decode_logprobs(message.logprobs),
        trace=_decode_trace(message.trace) if message.HasField("trace") else None,
    )


def _decode_trace(message: pb.RoundTrace) -> RoundTrace:
    return RoundTrace(
        **{name: getattr(message, name) for name in _TRACE_SCALARS},
        tree=decode_tree(message.tree),
        accepted=tuple(message.accepted),
        emitted=tuple(message.emitted),
    )


def _decode_choice_finished(message: pb.ChoiceFinished) -> ChoiceFinished:
    which = message.WhichOneof("stop_reason")
    stats = {name: getattr(message.stats, name) for name in _STATS_SCALARS}
    reason = _REASON_IN.get(message.reason)
    if reason is None:
        raise ProtocolError(f"the server sent the unknown finish reason {message.reason}")
    return ChoiceFinished(
        choice=message.choice,
        reason=reason,
        stop_reason=None if which is None else getattr(message, which),
        completion_tokens=message.completion_tokens,
        stats=SpeculationStats(**stats, accepted_per_pos=list(message.stats.accepted_per_pos)),
    )


def encode_tokenize(model: str, text: str, *, add_special_tokens: bool) -> pb.TokenizeRequest:
    """Raises RequestError for a text that is not Unicode."""
    message = pb.TokenizeRequest(add_special_tokens=add_special_tokens)
    _put(message, "model", model, param="model")
    _put(message, "text", text, param="text")
    return message


def encode_detokenize(model: str, tokens: Sequence[int]) -> pb.DetokenizeRequest:
    """Raises RequestError for a token id that is not a 32-bit number."""
    message = pb.DetokenizeRequest()
    _put(message, "model", model, param="model")
    _put(message, "tokens", tuple(tokens), param="tokens")
    return message
