"""Read a request body: capped, strict JSON, one object."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import HTTPException, Request

from specgrove.errors import RequestError

_DISCARD_BYTES = 2**26
_DISCARD_S = 10.0


async def read_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """The JSON object in the body.

    Raises HTTPException 413 for a body over `max_bytes` (with or without a length) and 415 for another media type,
    RequestError for anything that is not one JSON object in UTF-8.
    """
    _check_headers(request)
    return parse_object(await _read(request, max_bytes))


def parse_object(body: bytes) -> dict[str, Any]:
    """One JSON object. Refuses what Python's reader would let pass: NaN, repeated keys, half surrogate pairs."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not valid UTF-8 (byte {error.start})") from None
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise RequestError(
            f"the body is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except UnicodeEncodeError:
        raise RequestError("the body holds half of a surrogate pair, which is no Unicode text") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    except ValueError as error:  # a number of more than 4300 digits
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("the body must be one JSON object")
    return value


def _check_headers(request: Request) -> None:
    media, _, options = request.headers.get("Content-Type", "application/json").lower().partition(";")
    charset = options.strip().removeprefix("charset=").strip('"') or "utf-8"
    if media.strip() != "application/json" or charset != "utf-8":
        raise HTTPException(415, "send JSON in UTF-8, with the header Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HTTPException(415, "compressed bodies are not supported; send the JSON as it is")


async def _read(request: Request, max_bytes: int) -> bytes:
    too_large = HTTPException(413, f"the body is over the limit of {max_bytes} bytes", {"Connection": "close"})
    length = request.headers.get("Content-Length", "")
    over = length.isdigit() and int(length) > max_bytes
    if over and "Expect" in request.headers:
        raise too_large  # the client waits for our word before it sends anything
    body = bytearray()
    seen = 0
    try:
        # A client that is still sending would see a reset instead of our answer, so some of the rest is read away.
        async with asyncio.timeout(_DISCARD_S if over else None) as limit:
            async for part in request.stream():
                seen += len(part)
                if not over and seen > max_bytes:
                    over = True
                    body.clear()
                    limit.reschedule(asyncio.get_running_loop().time() + _DISCARD_S)
                if not over:
                    body += part
                elif seen > max_bytes + _DISCARD_BYTES:
                    break
    except TimeoutError:
        pass
    if over:
        raise too_large
    return bytes(body)


def _no_constant(name: str) -> float:
    raise RequestError(f"the body is not valid JSON: {name} is not a JSON number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RequestError(f"the key {twice[:60]!r} stands twice in one object", param=twice[:60])
    return found
