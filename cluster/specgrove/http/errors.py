"""The one place where errors get HTTP numbers and OpenAI's shape.

Every error body is `{"error": {"message", "type", "param", "code"}}`: `type` is OpenAI's coarse class, `code` the
stable code of specgrove.errors, `param` the request field (`messages[0].content`) when one is to blame.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from specgrove.errors import SpecgroveError

log = logging.getLogger(__name__)

STATUS = {
    "invalid_request": 400,
    "unauthenticated": 401,
    "model_not_found": 404,
    "capacity": 429,
    "cancelled": 499,
    "unavailable": 503,
    "replica_lost": 503,
    "deadline_exceeded": 504,
}
"""HTTP status by error code; 499 is nginx's word for a client that went away. Anything else is 500."""

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}
RETRY_AFTER_S = 1


def error_body(message: str, *, status: int, code: str, param: str | None = None) -> dict[str, Any]:
    """OpenAI's error object."""
    kind = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """(status, body) of an error. What went wrong inside the server stays in its log; nothing of it is sent."""
    if isinstance(error, SpecgroveError) and error.code in STATUS:
        status = STATUS[error.code]
        code = "invalid_api_key" if error.code == "unauthenticated" else error.code
        param = error.param or ("model" if error.code == "model_not_found" else None)
        return status, error_body(error.message, status=status, code=code, param=param)
    log.error("request failed", exc_info=error)
    return 500, error_body("the server failed; its log has the request id and the reason", status=500, code="internal")


def error_response(error: Exception) -> JSONResponse:
    """The whole HTTP answer for an error raised before anything was sent."""
    status, body = describe(error)
    headers: dict[str, str] = {}
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status_code=status, headers=headers)


async def answer_specgrove_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for SpecgroveError."""
    return error_response(error)


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for what HTTP itself refuses: no such route, wrong method, body too large."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    where = f"{request.method} {request.url.path}"
    message = {
        404: f"there is no route {where}",
        405: f"{where} is not possible; allowed: {(error.headers or {}).get('Allow', 'another method')}",
    }.get(status, error.detail)
    body = error_body(message, status=status, code=_HTTP_CODES.get(status, "http_error"))
    return JSONResponse(body, status_code=status, headers=error.headers)
