"""Ranges of sampling parameters, refused with the parameter's name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from specgrove.core.sampling import SamplingParams
from specgrove.errors import RequestError

LEAST_TEMPERATURE = 1e-6
"""Below this the logits over the temperature leave float32."""


def check_params(params: SamplingParams, *, vocab_size: int, stop_ids: Sequence[int] = ()) -> None:
    """Raises RequestError for a value out of range, an id outside the vocabulary, or a request that bans every token.

    `stop_ids` are the ids that min_tokens bans.
    """
    ranges = (
        ("temperature", params.temperature, 0.0, math.inf, "0 or more"),
        ("top_k", params.top_k, -1, math.inf, "0 or -1 (off) or more"),
        ("top_p", params.top_p, 0.0, 1.0, "between 0 and 1"),
        ("min_p", params.min_p, 0.0, 1.0, "between 0 and 1"),
        ("presence_penalty", params.presence_penalty, -2.0, 2.0, "between -2 and 2"),
        ("frequency_penalty", params.frequency_penalty, -2.0, 2.0, "between -2 and 2"),
        ("min_tokens", params.min_tokens, 0, math.inf, "0 or more"),
        ("seed", params.seed, 0, 2**64 - 1, "an unsigned 64-bit number"),
    )
    for name, value, low, high, what in ranges:
        if not (low <= value <= high and math.isfinite(value)):
            raise RequestError(f"{name} must be {what}, got {value}", param=name)
    if 0 < params.temperature < LEAST_TEMPERATURE:
        raise RequestError(
            f"temperature {params.temperature} is below {LEAST_TEMPERATURE}; use 0 for greedy", param="temperature"
        )
    if not (params.repetition_penalty > 0 and math.isfinite(params.repetition_penalty)):
        raise RequestError(
            f"repetition_penalty must be over 0, got {params.repetition_penalty}", param="repetition_penalty"
        )
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids, vocab_size)
    _check_ids("banned_token_ids", params.banned_token_ids, vocab_size)
    for token, bias in params.logit_bias.items():
        if not -100 <= bias <= 100:
            raise RequestError(
                f"logit_bias of token {token} must be between -100 and 100, got {bias}", param="logit_bias"
            )
    _check_choice(params, vocab_size, stop_ids)


def _check_ids(name: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise RequestError(f"{name} holds token {token}, outside the vocabulary of {vocab_size}", param=name)


def _check_choice(params: SamplingParams, vocab_size: int, stop_ids: Sequence[int]) -> None:
    banned = set(params.banned_token_ids) | set(stop_ids if params.min_tokens > 0 else ())
    if params.allowed_token_ids:
        if banned.issuperset(params.allowed_token_ids):
            raise RequestError(
                "every id in allowed_token_ids is also banned (banned_token_ids, or a stop id under min_tokens); "
                "nothing is left to draw",
                param="allowed_token_ids",
            )
    elif len(banned) >= vocab_size:
        raise RequestError(
            "banned_token_ids holds the whole vocabulary; nothing is left to draw", param="banned_token_ids"
        )
