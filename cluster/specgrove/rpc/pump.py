"""Both directions of one open Speculate stream, for either end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import grpc.aio

from specgrove.rpc.outbox import Outbox

Outgoing = TypeVar("Outgoing")
Item = TypeVar("Item")


async def pump(
    read: Callable[[], Awaitable[Any]],
    deliver: Callable[[Any], None],
    outbox: Outbox[Item],
    encode: Callable[[Sequence[Item]], Outgoing],
    write: Callable[[Outgoing], Awaitable[None]],
    *guards: Coroutine[Any, Any, None],
) -> None:
    """Read and write until the peer ends the stream (returns) or something breaks (raises what broke).

    Raises CapacityError when the peer does not read; whatever `read`, `deliver`, `write` and the `guards` raise. A
    guard is a coroutine that watches for a reason to end the stream.
    """
    reading = asyncio.create_task(_read(read, deliver))
    others = [asyncio.create_task(work) for work in (_write(outbox, encode, write), outbox.overflow(), *guards)]
    try:
        await asyncio.wait([reading, *others], return_when=asyncio.FIRST_COMPLETED)
        # When the stream breaks both directions fail; the reading side knows the status.
        done = reading if reading.done() else next(task for task in others if task.done())
        done.result()
    finally:
        outbox.close()
        for task in (reading, *others):
            task.cancel()
        await asyncio.gather(reading, *others, return_exceptions=True)


async def _read(read: Callable[[], Awaitable[Any]], deliver: Callable[[Any], None]) -> None:
    while (message := await read()) is not grpc.aio.EOF:
        deliver(message)


async def _write(
    outbox: Outbox[Item], encode: Callable[[Sequence[Item]], Outgoing], write: Callable[[Outgoing], Awaitable[None]]
) -> None:
    while True:
        for batch in outbox.batches(await outbox.take()):
            await write(encode(batch))
