"""The Speculate stream on real sockets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from tests.rpc.fakes import SESSION, TOKEN, FakeHub, FakeSink, card, eventually

from specgrove.core.speculate import Closed, Committed, DraftPlan, DraftTree, Opened, Reopen
from specgrove.core.tree import TokenTree
from specgrove.errors import CapacityError, ProtocolError, SpecgroveError, Unauthenticated, Unavailable
from specgrove.rpc import codec
from specgrove.rpc.clients import from_rpc_error, speculate
from specgrove.rpc.servers import SpeculateServer
from specgrove.v1 import common_pb2, speculation_pb2
from specgrove.v1.speculation_pb2_grpc import SpeculationServiceStub

OPENED = Opened(session=SESSION, epoch=1, seq=0, tokens=(1, 2, 3), plan=DraftPlan(seed=2**64 - 1, temperature=0.7))


def committed(seq, tokens=(7,)):
    """A commit."""
    return Committed(session=SESSION, epoch=1, seq=seq, tokens=tokens, length=seq, prefix_hash=2**64 - 1)


def tree(*tokens):
    """A chain as the draft sends it."""
    return DraftTree(
        session=SESSION, epoch=1, base_length=3, prefix_hash=9, plan_version=0, tree=TokenTree.chain(tokens)
    )


@asynccontextmanager
async def listening(hub, **options):
    """A target's Speculate server."""
    server = SpeculateServer(hub, card("t0", "target"), **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def joined(hub, sink, *, added_rtt_s=0.0, **options):
    """A draft connected to a target."""
    async with listening(hub, **options) as server:
        stream = speculate(server.address, card("d0", "draft"), TOKEN, sink, added_rtt_s=added_rtt_s)
        task = asyncio.create_task(stream)
        try:
            async with asyncio.timeout(5):
                await sink.linked.wait()
            yield server, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_longer_wire_for_measurements():
    """Every message is late by half of the round trip, in both directions; none overtakes another."""
    hub, sink = FakeHub(welcome=[OPENED]), FakeSink()
    loop = asyncio.get_running_loop()
    async with joined(hub, sink, added_rtt_s=0.3):
        begun = loop.time()
        await eventually(lambda: sink.updates == [OPENED])
        there = loop.time()
        for number in range(5):
            sink.send([tree(number)])
        await eventually(lambda: len(hub.messages) == 5)
        back = loop.time()

    assert 0.1 < there - begun < 1.0
    assert 0.15 <= back - there < 1.0
    assert hub.messages == [tree(number) for number in range(5)]


async def test_bytes_are_counted():
    """Of both directions, at the target."""
    hub, sink = FakeHub(welcome=[OPENED]), FakeSink()
    counted = [0, 0]

    def count(sent, received):
        counted[0] += sent
        counted[1] += received

    async with joined(hub, sink, count=count):
        await eventually(lambda: sink.updates == [OPENED])
        few = counted[1]
        sink.send([tree(*range(100))])
        await eventually(lambda: len(hub.messages) == 1)

    assert 30 < counted[0] < 200
    assert 200 < counted[1] - few < 600


async def test_greeting_updates_and_trees():
    """Cards cross, what is sent inside attach() comes after the welcome, trees come back."""
    hub, sink = FakeHub(welcome=[OPENED]), FakeSink()
    async with joined(hub, sink):
        await eventually(lambda: sink.updates == [OPENED])
        sink.send([tree(4, 5), Reopen(session=SESSION)])
        await eventually(lambda: len(hub.messages) == 2)

    assert hub.cards == [card("d0", "draft")]
    assert sink.target == card("t0", "target")
    assert hub.messages == [tree(4, 5), Reopen(session=SESSION)]
    assert hub.gone.is_set()
    assert sink.gone.is_set()


async def test_many_updates_of_a_thread_come_in_order_in_few_messages():
    """The device thread sends one by one; the wire carries batches."""
    hub, sink = FakeHub(), FakeSink()
    async with joined(hub, sink):

        def device():
            for seq in range(3000):
                hub.send([committed(seq)])

        await asyncio.to_thread(device)
        await eventually(lambda: len(sink.updates) == 3000, within_s=10)

    assert sink.updates == [committed(seq) for seq in range(3000)]
    assert len(sink.batches) < 2000


async def test_a_long_session_fits():
    """A million tokens is under the cap, and what comes behind it is not lost."""
    long = Opened(session=SESSION, epoch=1, seq=0, tokens=tuple(range(10**6)), plan=DraftPlan())
    hub, sink = FakeHub(welcome=[long, committed(1)]), FakeSink()
    async with joined(hub, sink):
        await eventually(lambda: len(sink.updates) == 2, within_s=20)

    assert sink.updates == [long, committed(1)]


async def test_a_wrong_token_is_refused():
    """The sink never hears of the target."""
    sink = FakeSink()
    async with listening(FakeHub()) as server:
        with pytest.raises(Unauthenticated, match="wrong cluster token"):
            await speculate(server.address, card("d0", "draft"), "guess", sink)

    assert not sink.linked.is_set()
    assert not sink.gone.is_set()


async def test_a_target_that_is_not_there_is_unavailable():
    """The draft tries again later."""
    async with listening(FakeHub()) as server:
        address = server.address
    with pytest.raises(Unavailable):
        await speculate(address, card("d0", "draft"), TOKEN, FakeSink())


async def test_a_stopping_target_tells_its_drafts():
    """Both sides clean up, and the draft knows why."""
    hub, sink = FakeHub(), FakeSink()
    async with joined(hub, sink) as (server, task):
        await server.stop()
        with pytest.raises(Unavailable, match="stopping"):
            await task

    assert hub.gone.is_set()
    assert sink.gone.is_set()


async def test_a_cancelled_draft_is_noticed_at_once():
    """lost() comes within a fraction of a second."""
    hub, sink = FakeHub(), FakeSink()
    async with joined(hub, sink) as (_, task):
        task.cancel()
        async with asyncio.timeout(1):
            await hub.gone.wait()

    assert sink.gone.is_set()


async def test_a_draft_that_does_not_read_is_disconnected():
    """Flow control holds the writer up, the queue fills, the stream is given up; other drafts are not disturbed."""
    hub = FakeHub()
    async with listening(hub, max_queued=100_000) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = SpeculationServiceStub(channel).Speculate()
            await call.write(codec.encode_hello(card("d0", "draft"), TOKEN))
            codec.decode_welcome(await call.read())
            flood = committed(1, tokens=tuple(range(10_000)))
            async with asyncio.timeout(10):
                while not hub.gone.is_set():
                    hub.send([flood])
                    await asyncio.sleep(0.001)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await drain(call)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        sink = FakeSink()
        other = asyncio.create_task(speculate(server.address, card("d1", "draft"), TOKEN, sink))
        await eventually(sink.linked.is_set)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)


async def drain(call):
    """Read to the end."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_target_that_does_not_read_ends_the_stream():
    """The draft's queue is bounded as well."""
    gate = asyncio.Event()

    async def Speculate(request_iterator, context):
        await context.read()
        await context.write(codec.encode_welcome(card("t0", "target")))
        await gate.wait()

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        Speculate,
        request_deserializer=speculation_pb2.SpeculateRequest.FromString,
        response_serializer=speculation_pb2.SpeculateResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("specgrove.v1.SpeculationService", {"Speculate": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sink = FakeSink()
    task = asyncio.create_task(speculate(f"127.0.0.1:{port}", card("d0", "draft"), TOKEN, sink, max_queued=100_000))
    await eventually(sink.linked.is_set)
    flood = tree(*range(4000))
    async with asyncio.timeout(10):
        while not task.done():
            sink.send([flood])
            await asyncio.sleep(0.001)
    gate.set()
    await server.stop(None)

    with pytest.raises(CapacityError):
        await task
    assert sink.gone.is_set()


def raw_batch(**fields):
    """A tree that no draft of ours would send."""
    out = speculation_pb2.SpeculateRequest()
    out.batch.messages.add().tree.CopyFrom(
        speculation_pb2.DraftTree(session=SESSION, tree=common_pb2.TokenTree(**fields))
    )
    return out


async def test_hostile_trees_arrive_as_faults_and_the_stream_goes_on():
    """A cycle, unequal lengths, too many: each is a fault; the good tree behind them arrives."""
    hub = FakeHub()
    async with listening(hub) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = SpeculationServiceStub(channel).Speculate()
        await call.write(codec.encode_hello(card("d0", "draft"), TOKEN))
        await call.read()
        await call.write(raw_batch(tokens=[1, 2], parents=[1, 0]))
        await call.write(raw_batch(tokens=[1, 2], parents=[-1]))
        await call.write(raw_batch(tokens=[1] * 9999, parents=[-1] * 9999))
        await call.write(codec.batch_of_messages([tree(1)]))
        await eventually(lambda: len(hub.messages) == 4)
        hub.send([Closed(session=SESSION, epoch=1, seq=1)])
        assert codec.decode_updates(await call.read()) == [Closed(session=SESSION, epoch=1, seq=1)]

    assert [bool(message.fault) for message in hub.messages] == [True, True, True, False]


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (codec.batch_of_messages([tree(1)]), ProtocolError),
        (speculation_pb2.SpeculateRequest(), ProtocolError),
        (speculation_pb2.SpeculateRequest(hello=speculation_pb2.Hello()), ProtocolError),
        (None, ProtocolError),
    ],
)
async def test_a_stream_that_does_not_begin_with_hello_is_refused(first, kind):
    """And the hub never sees it."""
    hub = FakeHub()
    async with listening(hub) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = SpeculationServiceStub(channel).Speculate()
        if first is None:
            await call.done_writing()
        else:
            await call.write(first)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()

    assert type(from_rpc_error(caught.value)) is kind
    assert not hub.attached.is_set()


@pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x12\x06\x0a\x04\x12\x02\x0a\xff", b"x" * (2 * 2**20)])
async def test_junk_on_an_open_stream_ends_it_and_nothing_else(junk):
    """Bytes that are no message, and a message over the cap: this draft is lost, the server goes on."""
    hub = FakeHub()
    async with listening(hub) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream("/specgrove.v1.SpeculationService/Speculate")()
        await call.write(codec.encode_hello(card("d0", "draft"), TOKEN).SerializeToString())
        await call.read()
        await call.write(junk)
        with pytest.raises((grpc.aio.AioRpcError, SpecgroveError)):
            await drain(call)
        async with asyncio.timeout(2):
            await hub.gone.wait()
        sink = FakeSink()
        task = asyncio.create_task(speculate(server.address, card("d1", "draft"), TOKEN, sink))
        await eventually(sink.linked.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
