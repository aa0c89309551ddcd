"""Server-sent events, and work that ends when the client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from specgrove.http.errors import describe

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def encode(payload: dict[str, Any], *, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(',', ':'))}\n\n".encode()


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, but cancel it as soon as the client closes the connection; then raise ClientDisconnect.

    Returns, or raises, only after `work` has cleaned up. The request's body must have been read before.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, part: bytes) -> None:
    try:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    except OSError as error:  # what servers raise when the peer is gone; a backend's OSError must not look like it
        raise ClientDisconnect from error


class EventStream(Response):
    """A streamed reply. An error before the first payload is an ordinary HTTP error; later it is an `error` event."""

    media_type = "text/event-stream"

    def __init__(self, payloads: AsyncGenerator[dict[str, Any], None]) -> None:
        # Proxies must neither keep nor collect a stream.
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["Content-Length"]
        self._payloads = payloads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry: sends until the payloads or the client end."""
        await until_gone(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._payloads) as payloads:
            await anext(payloads)  # the reply can start: errors up to here are raised, and get their own status
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                async for payload in payloads:
                    await _send_part(send, encode(payload))
                last = DONE
            except ClientDisconnect:
                raise
            except Exception as error:  # the HTTP edge: the status is out, so the error goes into the stream
                last = encode(describe(error)[1], event="error")
        await send({"type": "http.response.body", "body": last, "more_body": False})
