"""A longer wire: everything arrives in order, later, and nothing after the end."""

import asyncio

from specgrove.rpc.delay import Delay


async def test_items_come_later_and_in_order():
    """By the seconds asked for."""
    came: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()
    delay = Delay[int](0.05, lambda item: came.append((item, loop.time())))
    began = loop.time()
    for item in range(3):
        delay.put(item)
    await asyncio.sleep(0.15)

    assert [item for item, _ in came] == [0, 1, 2]
    assert all(0.05 <= when - began < 0.15 for _, when in came)


async def test_nothing_comes_after_the_end():
    """Neither what is on its way nor what is put later."""
    came: list[int] = []
    delay = Delay[int](0.02, came.append)
    delay.put(1)
    await asyncio.sleep(0)
    delay.close()
    delay.put(2)
    await asyncio.sleep(0.06)

    assert came == []
