"""Ranges that every request keeps to, whatever door it came through and whatever model it asks.

What depends on the model (vocabulary, context, sampling parameters) is the target's to check.
"""

from __future__ import annotations

from collections.abc import Iterator

from specgrove.core.request import GenerateRequest
from specgrove.errors import RequestError

MAX_CHOICES = 128
MAX_NEW_TOKENS = 2**24
MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_IDS = 256
MAX_TREE_NODES = 4096
MAX_TREE_DEPTH = 256
MAX_TIMEOUT_S = 86400.0
MAX_METADATA = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 512
MAX_REQUEST_ID_CHARS = 128
"""Of an id that a client chooses over HTTP; that door makes it unique and numbers the prompts of a list."""
ROOM_FOR_SUFFIXES = 128


def check_request(request: GenerateRequest) -> None:
    """Raises RequestError that names the first field out of range."""
    for name, value, low, high in _counts(request):
        if value is not None and not low <= value <= high:
            raise RequestError(f"{name} must be from {low} to {high}, got {value}", param=name)
    if request.timeout_s is not None and not 0 < request.timeout_s <= MAX_TIMEOUT_S:  # false for NaN, too
        raise RequestError(
            f"timeout_s must be over 0 and at most {MAX_TIMEOUT_S:.0f}, got {request.timeout_s}", param="timeout_s"
        )
    for name, items, most in (
        ("stop", request.stop, MAX_STOPS),
        ("stop_token_ids", request.stop_token_ids, MAX_STOP_IDS),
        ("metadata", request.metadata, MAX_METADATA),
    ):
        if len(items) > most:
            raise RequestError(f"{name} must hold at most {most} entries, got {len(items)}", param=name)
    if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in request.stop):
        raise RequestError(f"each stop string must have 1 to {MAX_STOP_CHARS} characters", param="stop")
    for name, ids in (
        ("allowed_token_ids", request.sampling.allowed_token_ids),
        ("tokens", request.tokens),
        ("messages", request.messages),
    ):
        if ids is not None and not ids:
            raise RequestError(f"{name} is empty; name at least one, or leave it out", param=name)
    _check_labels(request)


def _counts(request: GenerateRequest) -> Iterator[tuple[str, int | None, int, int]]:
    """Name, value, least and most."""
    yield "n", request.n, 1, MAX_CHOICES
    yield "max_tokens", request.max_tokens, 0, MAX_NEW_TOKENS
    yield "min_tokens", request.min_tokens, 0, MAX_NEW_TOKENS
    yield "logprobs", request.logprobs, 0, MAX_LOGPROBS
    yield "speculation.max_nodes", request.speculation.max_nodes, 1, MAX_TREE_NODES
    yield "speculation.max_depth", request.speculation.max_depth, 1, MAX_TREE_DEPTH
    yield "speculation.branching", len(request.speculation.branching), 0, MAX_TREE_DEPTH
    for width in request.speculation.branching:
        yield "speculation.branching", width, 1, MAX_TREE_NODES


def _check_labels(request: GenerateRequest) -> None:
    for name, text, most in (
        ("user", request.user or "", MAX_VALUE_CHARS),
        ("request_id", request.request_id, MAX_REQUEST_ID_CHARS + ROOM_FOR_SUFFIXES),
    ):
        if len(text) > most:
            raise RequestError(f"{name} must have at most {most} characters, got {len(text)}", param=name)
    if any(len(k) > MAX_KEY_CHARS or len(v) > MAX_VALUE_CHARS for k, v in request.metadata.items()):
        raise RequestError(
            f"metadata has keys up to {MAX_KEY_CHARS} and values up to {MAX_VALUE_CHARS} characters", param="metadata"
        )
