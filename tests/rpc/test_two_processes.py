"""Draft and target in processes of their own."""

from __future__ import annotations

import asyncio
import queue
import signal
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.rpc.fakes import SESSION, TOKEN, FakeHub, FakeSink, card
from tests.rpc.peers import TREE

from specgrove.core.speculate import Committed
from specgrove.errors import Unavailable
from specgrove.rpc.clients import speculate
from specgrove.rpc.servers import SpeculateServer

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def process(*arguments):
    """A process of tests.rpc.peers, killed at the end."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rpc.peers", *arguments, cwd=ROOT, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@asynccontextmanager
async def draft_process(hub):
    """A target here and a draft there."""
    server = SpeculateServer(hub, card("t0", "target"))
    async with process("draft", await server.start()) as draft:
        async with asyncio.timeout(30):
            await hub.attached.wait()
        yield draft
    await server.stop()


class QueueHub(FakeHub):
    """Hands trees to a thread, as a device thread gets them."""

    def __init__(self):
        super().__init__()
        self.trees = queue.SimpleQueue()

    def received(self, messages):
        for message in messages:
            self.trees.put(message)


async def test_a_round_trip_between_two_processes(record_property):
    """Commit out, tree of 16 nodes back, from and to a thread: a millisecond or so, whatever the load.

    The limit is far above it because other work shares the cores; the figure is in the test report.
    """
    hub = QueueHub()

    def device():
        seconds = []
        for seq in range(500):
            start = time.perf_counter()
            hub.send([Committed(session=SESSION, epoch=1, seq=seq, tokens=(1, 2, 3), length=seq, prefix_hash=2**63)])
            answer = hub.trees.get(timeout=10)
            seconds.append(time.perf_counter() - start)
            assert (answer.base_length, answer.tree) == (seq, TREE)
        return statistics.median(seconds[50:])

    async with draft_process(hub):
        median = await asyncio.to_thread(device)

    record_property("median_round_trip_us", round(median * 1e6))
    assert median < 0.01


async def test_a_killed_draft_is_noticed_at_once():
    """The kernel closes the socket."""
    hub = FakeHub()
    async with draft_process(hub) as draft:
        draft.kill()
        async with asyncio.timeout(2):
            await hub.gone.wait()


async def frozen_until(child, noticed):
    """Seconds from the stop of a process until the other side noticed."""
    child.send_signal(signal.SIGSTOP)
    start = time.perf_counter()
    try:
        async with asyncio.timeout(20):
            await noticed.wait()
    finally:
        child.send_signal(signal.SIGCONT)
    return time.perf_counter() - start


async def test_a_frozen_peer_is_noticed_by_keepalive():
    """A stopped process keeps its socket open and answers nothing, like a machine that lost its network.

    In both directions: the target notices its draft, the draft its target.
    """
    hub, sink = FakeHub(), FakeSink()
    async with draft_process(hub) as draft, process("target") as target:
        address = (await target.stdout.readline()).decode().strip()
        stream = asyncio.create_task(speculate(address, card("d1", "draft"), TOKEN, sink))
        async with asyncio.timeout(30):
            await sink.linked.wait()
        times = await asyncio.gather(frozen_until(draft, hub.gone), frozen_until(target, sink.gone))
        with pytest.raises(Unavailable):
            await stream

    assert all(1 < seconds < 10 for seconds in times)
