"""Fields that chat completions and completions share: OpenAI's, vLLM's extras and ours."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from specgrove.core.limits import (
    MAX_CHOICES,
    MAX_KEY_CHARS,
    MAX_NEW_TOKENS,
    MAX_REQUEST_ID_CHARS,
    MAX_STOP_IDS,
    MAX_TIMEOUT_S,
    MAX_TREE_DEPTH,
    MAX_TREE_NODES,
    MAX_VALUE_CHARS,
)
from specgrove.errors import RequestError
from specgrove.http.schemas import neutral
from specgrove.http.schemas.fields import (
    BIASES,
    FLAG,
    LABELS,
    STOPS,
    checked,
    one_of,
    real,
    shown,
    text,
    token_ids,
    whole,
)
from specgrove.http.schemas.strict import Strict

SEEDS = (-(2**63), 2**64 - 1)
"""OpenAI's signed and our unsigned 64 bits; a negative seed is the unsigned number with the same bits."""
COLDEST = 1e-5
"""Below it only rounding would decide; 0 says what is meant."""


def _temperature(value: Any) -> float:
    if type(value) not in (int, float) or not (value == 0 or COLDEST <= value <= 2):
        raise ValueError(f"must be 0 (greedy) or a number from {COLDEST:g} to 2, got {shown(value)}")
    return float(value)


class StreamOptions(Strict):
    """What a stream carries besides text."""

    neutral_fields = neutral.STREAM_OPTIONS

    include_usage: Annotated[bool, FLAG] = False
    """One more chunk at the end, without choices and with the usage."""
    continuous_usage_stats: Annotated[bool, FLAG] = False
    """The usage so far in every chunk."""


class SpeculationOptions(Strict):
    """The request's own limits on speculation. The text is the same whatever they say."""

    mode: Annotated[Literal["auto", "off"], one_of("auto", "off")] = "auto"
    max_nodes: Annotated[int | None, whole(1, MAX_TREE_NODES)] = None
    max_depth: Annotated[int | None, whole(1, MAX_TREE_DEPTH)] = None
    branching: Annotated[tuple[int, ...], token_ids(MAX_TREE_DEPTH, empty=True)] = ()
    """Trees of this shape and nothing else; for comparisons."""
    method: Annotated[str | None, text(MAX_KEY_CHARS)] = None
    """Drafting method in place of the server's own; for comparisons."""


class GenerationFields(Strict):
    """The shared fields. None means unset: the model's generation_config.json decides, then neutral values."""

    model: Annotated[str, text(512)]
    stream: Annotated[bool, FLAG] = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    n: Annotated[int, whole(1, MAX_CHOICES)] = 1
    max_tokens: Annotated[int | None, whole(0, MAX_NEW_TOKENS)] = None
    min_tokens: Annotated[int, whole(0, MAX_NEW_TOKENS)] = 0
    stop: Annotated[tuple[str, ...], STOPS] = ()
    stop_token_ids: Annotated[tuple[int, ...], token_ids(MAX_STOP_IDS, empty=True)] = ()
    ignore_eos: Annotated[bool, FLAG] = False
    seed: Annotated[int | None, whole(*SEEDS)] = None
    temperature: Annotated[float | None, checked(_temperature)] = None
    top_p: Annotated[float | None, real(0, 1, open_low=True)] = None
    top_k: Annotated[int | None, whole(-1, 1_000_000)] = None
    """0 and -1 (vLLM's word) switch the filter off."""
    min_p: Annotated[float | None, real(0, 1)] = None
    repetition_penalty: Annotated[float | None, real(0.01, 10)] = None
    presence_penalty: Annotated[float | None, real(-2, 2)] = None
    frequency_penalty: Annotated[float | None, real(-2, 2)] = None
    logit_bias: Annotated[dict[int, float] | None, BIASES] = None
    allowed_token_ids: Annotated[tuple[int, ...] | None, token_ids(2**20, empty=False)] = None
    banned_token_ids: Annotated[tuple[int, ...] | None, token_ids(2**20, empty=True)] = None
    speculation: SpeculationOptions = Field(default_factory=SpeculationOptions)
    timeout_s: Annotated[float | None, real(0, MAX_TIMEOUT_S, open_low=True)] = None
    """The request's own deadline; past it the reply is a 504."""
    user: Annotated[str | None, text(MAX_VALUE_CHARS, empty=True)] = None
    metadata: Annotated[dict[str, str], LABELS] = Field(default_factory=dict)
    request_id: Annotated[str | None, text(MAX_REQUEST_ID_CHARS)] = None
    """vLLM's field; the same as the header X-Request-Id, which it overrides in the reply's `id`."""

    @property
    def token_limit(self) -> int | None:
        """Most tokens to emit; None: as many as the context allows."""
        return self.max_tokens

    @model_validator(mode="after")
    def _fields_fit_together(self) -> GenerationFields:
        # RequestError passes through pydantic untouched and carries its own param.
        if not self.stream and (self.stream_options.include_usage or self.stream_options.continuous_usage_stats):
            raise RequestError("`stream_options` needs `stream: true`", param="stream_options")
        if self.token_limit is not None and self.min_tokens > self.token_limit:
            raise RequestError(
                f"`min_tokens` is {self.min_tokens}, over the limit of {self.token_limit} tokens", param="min_tokens"
            )
        return self
