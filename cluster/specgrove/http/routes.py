"""The routes: read, check, map, run, answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from specgrove.core.protocols import Backend, ModelStatus
from specgrove.core.request import GenerateRequest, Started
from specgrove.errors import ModelNotFound, Unavailable
from specgrove.http.body import read_object
from specgrove.http.fanout import Numbered, run_all
from specgrove.http.mapping import chat_request, completion_requests, unique_id
from specgrove.http.replies.models import model_list, model_object
from specgrove.http.replies.reply import CHAT, COMPLETION, Form, Reply
from specgrove.http.schemas import chat, completions
from specgrove.http.schemas.common import GenerationFields, StreamOptions
from specgrove.http.schemas.strict import parse
from specgrove.http.sse import EventStream, until_gone
from specgrove.telemetry.exposition import CONTENT_TYPE

HEALTH_S = 5.0
"""Longest time /health waits for the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What the routes stand on."""

    backend: Backend
    metrics: Callable[[], Awaitable[str]] | None
    max_body_bytes: int

    async def chat_completions(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await read_object(request, self.max_body_bytes)
        asked = parse(chat.ChatRequest, body, chat.TABLES)
        reply_id = _reply_id(asked, request)
        jobs = [chat_request(asked, reply_id)]
        return await self._answer(request, asked, CHAT, reply_id, jobs)

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await read_object(request, self.max_body_bytes)
        asked = parse(completions.CompletionRequest, body, completions.TABLES)
        reply_id = _reply_id(asked, request)
        return await self._answer(request, asked, COMPLETION, reply_id, completion_requests(asked, reply_id))

    async def _answer(
        self,
        request: Request,
        asked: GenerationFields,
        form: Form,
        reply_id: str,
        jobs: Sequence[GenerateRequest],
    ) -> Response:
        reply = Reply(
            form,
            reply_id=reply_id,
            model=asked.model,
            prompts=len(jobs),
            n=asked.n,
            wants_logprobs=jobs[0].logprobs is not None,
            seed=asked.seed,
        )
        events = run_all(self.backend, jobs)
        if asked.stream:
            return EventStream(chunks(events, reply, asked.stream_options, len(jobs)))
        return JSONResponse(await until_gone(request.receive, gather(events, reply)))

    async def list_models(self) -> Response:
        """GET /v1/models."""
        return JSONResponse(model_list(await self.backend.models()))

    async def one_model(self, model: str) -> Response:
        """GET /v1/models/{model}; a name may hold slashes."""
        for status in await self.backend.models():
            if status.name == model:
                return JSONResponse(model_object(status))
        raise ModelNotFound(f"there is no model {model[:200]!r} here", param="model")

    async def health(self) -> Response:
        """GET /health: 200 when at least one model can be asked, else 503. Needs no key, tells no names."""
        try:
            models: Sequence[ModelStatus] = await asyncio.wait_for(self.backend.models(), HEALTH_S)
        except TimeoutError:
            raise Unavailable(f"the backend did not answer within {HEALTH_S:g} seconds") from None
        if not any(status.state == "ready" for status in models):
            raise Unavailable("no model is ready")
        return JSONResponse({"status": "ok"})

    async def exposition(self) -> Response:
        """GET /metrics: the metrics of all replicas in Prometheus' text format."""
        if self.metrics is None:
            raise HTTPException(404)
        return PlainTextResponse(await self.metrics(), headers={"Content-Type": CONTENT_TYPE})


def routes(door: Door) -> APIRouter:
    """All routes of the door."""
    router = APIRouter(redirect_slashes=False)
    router.add_api_route("/v1/chat/completions", door.chat_completions, methods=["POST"], response_model=None)
    router.add_api_route("/v1/completions", door.completions, methods=["POST"], response_model=None)
    router.add_api_route("/v1/models", door.list_models, methods=["GET"], response_model=None)
    router.add_api_route("/v1/models/{model:path}", door.one_model, methods=["GET"], response_model=None)
    router.add_api_route("/health", door.health, methods=["GET", "HEAD"], response_model=None)
    router.add_api_route("/metrics", door.exposition, methods=["GET"], response_model=None)
    return router


async def gather(events: AsyncGenerator[Numbered, None], reply: Reply) -> dict[str, Any]:
    """Run to the end; the reply as one object."""
    async with aclosing(events):
        async for prompt, event in events:
            reply.on(prompt, event)
    return reply.whole()


async def chunks(
    events: AsyncGenerator[Numbered, None], reply: Reply, options: StreamOptions, prompts: int
) -> AsyncGenerator[dict[str, Any], None]:
    """The payloads of a stream, after one empty payload that says that the reply can start.

    It can start when every prompt is accepted, or as soon as one of them has text: up to there an error is the whole
    reply. The last chunk carries `metrics`: the usage chunk when it was asked for, else the one that ends the last
    choice.
    """
    async with aclosing(events):
        accepted = 0
        ready = False
        async for prompt, event in events:
            accepted += isinstance(event, Started)
            if not ready and (accepted == prompts or not isinstance(event, Started)):
                ready = True
                yield {}
            pieces = reply.on(prompt, event)
            for left, piece in zip(reversed(range(len(pieces))), pieces, strict=True):
                chunk = reply.chunk([piece])
                if options.continuous_usage_stats:
                    chunk["usage"] = reply.usage()
                elif options.include_usage:
                    chunk["usage"] = None
                if not left and reply.complete and not options.include_usage:
                    chunk["metrics"] = reply.metrics()
                yield chunk
        if options.include_usage:
            yield reply.chunk([]) | {"usage": reply.usage(), "metrics": reply.metrics()}


def _reply_id(asked: GenerationFields, request: Request) -> str:
    return unique_id(asked.request_id or request.state.request_id)
