"""The outermost layer of the app: request id, API key, access log, and the last resort for errors.

Plain ASGI, so that streams and disconnects pass through untouched.
"""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specgrove.errors import RequestError
from specgrove.http.auth import KeyRing
from specgrove.http.errors import error_response
from specgrove.telemetry.logs import request_scope

log = logging.getLogger(__name__)

REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[!-~]{1,128}")
_OPEN_PATHS = frozenset({"/health"})


class Edge:
    """Middleware around all routes. The request id is in `scope["state"]["request_id"]` and on every reply."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID)
        request_id = given if given and _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        reply = _Reply(send, request_id)
        began = time.perf_counter()
        with request_scope(request_id):
            try:
                if _path(scope) not in _OPEN_PATHS:
                    self._keys.check(headers.get("Authorization"))
                if given is not None and given != request_id:
                    raise RequestError(f"{REQUEST_ID} must be 1 to 128 visible ASCII characters", param=REQUEST_ID)
                await self._app(scope, receive, reply)
            except ClientDisconnect:
                reply.status = reply.status or 499
            except Exception as error:  # the last resort: whatever it was, the client gets an answer and we a log line
                response = error_response(error)
                if not reply.status:
                    await response(scope, receive, reply)
            finally:
                seconds = time.perf_counter() - began
                fields = {"method": scope["method"], "path": scope["path"], "status": reply.status}
                log.info("request", extra=fields | {"ms": round(seconds * 1e3, 1)})


class _Reply:
    """`send` that adds the request id and remembers the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)[REQUEST_ID] = self._request_id
        await self._send(message)


def _path(scope: Scope) -> str:
    """The path without the prefix under which the app is mounted."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))
