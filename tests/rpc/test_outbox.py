"""The queue between a device thread and the stream's writer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from specgrove.errors import CapacityError
from specgrove.rpc import outbox as module
from specgrove.rpc.outbox import Outbox


def ones(item):
    """Everything weighs one."""
    return 1


async def test_what_is_queued_before_the_writer_looks_comes_as_one():
    """Coalescing: many sends, one message."""
    outbox = Outbox(ones)
    for i in range(5):
        outbox.send([i])

    assert await outbox.take() == [0, 1, 2, 3, 4]


async def test_items_of_many_threads_all_arrive_in_each_threads_order():
    """Nothing is lost between a take and the next wake-up."""
    outbox = Outbox(ones)

    def work(name):
        for i in range(2000):
            outbox.send([(name, i)])

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    got = []
    async with asyncio.timeout(20):
        while len(got) < 6000:
            got += await outbox.take()
    for thread in threads:
        thread.join()

    for name in "abc":
        assert [i for who, i in got if who == name] == list(range(2000))


async def test_a_full_box_overflows_and_holds_nothing():
    """Memory stays bounded when the peer does not read."""
    outbox = Outbox(ones, limit=10)
    watch = asyncio.create_task(outbox.overflow())
    outbox.send(range(10))
    await asyncio.sleep(0)
    assert not watch.done()

    outbox.send([11])

    with pytest.raises(CapacityError, match="does not read"):
        await watch
    outbox.send([12])
    assert outbox._items == []


async def test_a_closed_box_takes_nothing():
    """What a device thread sends after the stream is over vanishes quietly."""
    outbox = Outbox(ones)
    outbox.close()
    await asyncio.to_thread(outbox.send, [1])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await outbox.take()


def test_sending_after_the_loop_is_gone_is_harmless():
    """A device thread may outlive the event loop at shutdown."""

    async def make():
        return Outbox(ones)

    box = asyncio.run(make())
    thread = threading.Thread(target=box.send, args=([1],))
    thread.start()
    thread.join()

    assert box._closed


async def test_batches_are_bounded_and_keep_the_order(monkeypatch):
    """A message over the size cap would break the stream; a single large item goes alone."""
    monkeypatch.setattr(module, "MAX_BATCH", 10)
    outbox = Outbox(int)

    assert [list(batch) for batch in outbox.batches([4, 6, 1, 30, 5, 5])] == [[4, 6], [1], [30], [5, 5]]
    assert list(outbox.batches([])) == []
