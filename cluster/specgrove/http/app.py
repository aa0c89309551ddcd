"""The app factory: routes, the edge around them, and who answers errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from specgrove.core.protocols import Backend
from specgrove.errors import SpecgroveError
from specgrove.http.auth import KeyRing
from specgrove.http.edge import Edge
from specgrove.http.errors import answer_http_error, answer_specgrove_error
from specgrove.http.routes import Door, routes


def create_app(
    backend: Backend,
    *,
    api_keys: Sequence[str] = (),
    metrics: Callable[[], Awaitable[str]] | None = None,
    max_body_bytes: int = 2**21,
) -> FastAPI:
    """An ASGI app that speaks OpenAI's API for `backend`.

    api_keys: clients must present one as `Authorization: Bearer KEY`; empty: no key needed. /health is always open.
    metrics: gives the text of /metrics; None: there is no such route.
    max_body_bytes: larger bodies are refused with 413, also when they come without a length.
    Raises ConfigError for an API key that no client could send.
    """
    # No pages of its own: they would load scripts from elsewhere, and the API is OpenAI's.
    app = FastAPI(title="specgrove", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.include_router(routes(Door(backend=backend, metrics=metrics, max_body_bytes=max_body_bytes)))
    app.add_exception_handler(SpecgroveError, answer_specgrove_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_middleware(Edge, keys=KeyRing(api_keys))
    return app
