"""Run the generations of one HTTP request and join their events; whoever stops listening stops them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import TypeAlias, cast

from specgrove.core.protocols import Backend
from specgrove.core.request import GenerateEvent, GenerateRequest

Numbered: TypeAlias = tuple[int, GenerateEvent]
"""(index of the prompt, event)."""


async def run_all(backend: Backend, requests: Sequence[GenerateRequest]) -> AsyncGenerator[Numbered, None]:
    """The events of all requests as they come; order holds within one request.

    The first error ends everything and is raised. Closing the generator closes every Backend iterator before it
    returns.
    """
    if len(requests) == 1:
        async with aclosing(_closable(backend.generate(requests[0]))) as events:
            async for event in events:
                yield 0, event
        return
    queue: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue(maxsize=2 * len(requests))
    pumps = [asyncio.create_task(_pump(backend, index, one, queue)) for index, one in enumerate(requests)]
    try:
        running = len(pumps)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    backend: Backend, index: int, request: GenerateRequest, queue: asyncio.Queue[Numbered | Exception | None]
) -> None:
    try:
        async with aclosing(_closable(backend.generate(request))) as events:
            async for event in events:
                await queue.put((index, event))
                await asyncio.sleep(0)  # putting into a queue with room does not yield: let the other prompts speak
        await queue.put(None)
    except Exception as error:  # handed over, not swallowed: the reader raises it
        await queue.put(error)


def _closable(events: AsyncIterator[GenerateEvent]) -> AsyncGenerator[GenerateEvent, None]:
    """Backend promises that closing its iterator cancels, which is what only generators have in their type."""
    return cast("AsyncGenerator[GenerateEvent, None]", events)
