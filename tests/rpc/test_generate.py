"""GenerationService on real sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing, asynccontextmanager

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.rpc.fakes import STATUS, FakeBackend
from tests.rpc.test_status import ServeContext

from specgrove.core.request import ChoiceFinished, Chunk, Finished, GenerateRequest, Started
from specgrove.errors import (
    CapacityError,
    ConfigError,
    DeadlineExceeded,
    ModelNotFound,
    ReplicaLost,
    RequestError,
    SpecgroveError,
    Unauthenticated,
    Unavailable,
)
from specgrove.rpc.clients import TargetClient
from specgrove.rpc.servers import GenerateServer
from specgrove.rpc.servicer import GenerationServicer
from specgrove.v1 import generation_pb2


def ask(**changes):
    """A request."""
    return GenerateRequest(**({"request_id": "r1", "model": "m", "text": "hello"} | changes))


@asynccontextmanager
async def serving(backend, **options):
    """A server and a client of it."""
    server = GenerateServer(backend, **options)
    client = TargetClient(await server.start(), replica="t0", api_key=(options.get("api_keys") or [""])[0])
    try:
        yield server, client
    finally:
        await client.close()
        await server.stop()


async def collect(client, request):
    """All events."""
    return [event async for event in client.generate(request)]


async def test_a_request_out_of_range_never_reaches_the_backend():
    """It could break a whole step there: log-probabilities of minus one token once did."""
    backend = FakeBackend()
    async with serving(backend) as (_, client):
        with pytest.raises(RequestError, match="logprobs must be from 0 to 20, got -1") as caught:
            await collect(client, ask(logprobs=-1))

    assert caught.value.param == "logprobs"
    assert backend.requests == []


async def test_a_stream_arrives_whole_and_in_order():
    """The request reaches the backend as it was sent, the events the client as they were yielded."""
    backend = FakeBackend()
    async with serving(backend) as (_, client):
        events = await collect(client, ask(max_tokens=3))

    assert backend.requests == [ask(max_tokens=3)]
    assert [type(event) for event in events] == [Started, Chunk, Chunk, Chunk, ChoiceFinished, Finished]
    assert events[0].seed == 2**64 - 1


async def test_a_request_without_an_id_gets_one():
    """Clients of other languages leave it empty."""
    backend = FakeBackend()
    async with serving(backend) as (_, client):
        await collect(client, ask(request_id=""))

    assert len(backend.requests[0].request_id) == 32


async def test_the_small_calls():
    """Models, tokens and text."""
    async with serving(FakeBackend()) as (_, client):
        assert await client.models() == (STATUS,)
        assert await client.tokenize("m", "hi", add_special_tokens=True) == (1, 104, 105)
        assert await client.tokenize("m", "hi", add_special_tokens=False) == (104, 105)
        assert await client.detokenize("m", (104, 105)) == "hi"
        with pytest.raises(ModelNotFound) as caught:
            await client.tokenize("other", "hi", add_special_tokens=True)
        assert caught.value.param == "model"
        with pytest.raises(RequestError):
            await client.detokenize("m", (2**40,))


@pytest.mark.parametrize("after", [-1, 0, 2])
async def test_an_error_arrives_as_itself(after):
    """Before the first event, before the first token, in the middle."""
    backend = FakeBackend(fail=CapacityError("no slots", param="max_tokens"), fail_after=after)
    async with serving(backend) as (_, client):
        with pytest.raises(CapacityError, match="no slots") as caught:
            await collect(client, ask())

    assert (caught.value.param, caught.value.retryable) == ("max_tokens", True)


async def test_a_bug_in_the_backend_leaks_nothing():
    """No traceback, no message of the exception."""
    async with serving(FakeBackend(fail=ValueError("secret"), fail_after=1)) as (_, client):
        with pytest.raises(SpecgroveError) as caught:
            await collect(client, ask())

    assert caught.value.code == "internal"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("taken", [1, 2])
async def test_closing_the_iterator_stops_the_backend_within_a_step(taken):
    """Also right after a message, when the server may be writing the next one."""
    for _ in range(10):
        backend = FakeBackend(pause_s=0.01)
        async with serving(backend) as (_, client):
            async with aclosing(client.generate(ask(max_tokens=1000))) as events:
                for _ in range(taken):
                    await anext(events)
            async with asyncio.timeout(2):
                await backend.closed.wait()
            assert backend.sent < 100


async def test_a_cancel_while_a_message_is_written_stops_the_backend():
    """A backend that never pauses: the handler is nearly always writing when the cancel comes."""
    backend = FakeBackend()
    async with serving(backend) as (_, client):
        async with aclosing(client.generate(ask(max_tokens=10**6))) as events:
            await anext(events)
        async with asyncio.timeout(5):
            await backend.closed.wait()

    assert backend.sent < 10**6


async def test_a_cancelled_task_stops_the_backend():
    """What an HTTP server does when its client goes away."""
    backend = FakeBackend(pause_s=0.01)
    async with serving(backend) as (_, client):
        task = asyncio.create_task(collect(client, ask(max_tokens=1000)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(2):
            await backend.closed.wait()


async def test_the_generator_form_closes_the_backend_too():
    """Serve's ingress closes the generator; the backend's is closed before that returns."""
    backend = FakeBackend(pause_s=0.01)
    stream = GenerationServicer(backend).Generate(
        generation_pb2.GenerateRequest(model="m", text="x"), grpc_context=ServeContext()
    )
    await anext(stream)

    await stream.aclose()

    assert backend.closed.is_set()


async def test_errors_under_serve_are_set_and_not_raised():
    """Serve drops trailing metadata of a handler that raises."""
    context = ServeContext()
    backend = FakeBackend(fail=CapacityError("full"), fail_after=-1)
    request = generation_pb2.GenerateRequest(model="m", text="x")

    assert [reply async for reply in GenerationServicer(backend).Generate(request, grpc_context=context)] == []
    assert (context.code, context.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    assert context.trailers[0][0] == "grpc-status-details-bin"


async def test_a_server_that_dies_in_the_middle_is_a_lost_replica():
    """With the number of tokens that had come."""
    async with serving(FakeBackend(pause_s=0.05)) as (server, client):
        task = asyncio.create_task(collect(client, ask(max_tokens=1000)))
        await asyncio.sleep(0.3)
        await server.stop()
        with pytest.raises(ReplicaLost) as caught:
            await task

    assert caught.value.replica == "t0"
    assert caught.value.tokens >= 2


async def test_a_server_that_is_not_there_is_unavailable():
    """Nothing has come, so another replica may take the request."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        client = TargetClient(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(Unavailable):
            await collect(client, ask())
        with pytest.raises(Unavailable):
            await client.models()
        await client.close()


async def test_a_target_that_hangs_ends_at_the_deadline():
    """The target should keep the request's limit; when it hangs the client's own ends the call a little later."""
    async with serving(FakeBackend(pause_s=60)) as (_, client):
        with pytest.raises(DeadlineExceeded):
            await collect(client, ask(timeout_s=0.2))


async def test_keys_are_checked():
    """Missing, wrong, right, and one of several."""
    async with serving(FakeBackend(), api_keys=["right", "other"]) as (server, client):
        assert (await collect(client, ask()))[-1].completion_tokens == 4
        for key in ("", "wrong", "righ"):
            stranger = TargetClient(server.address, api_key=key)
            with pytest.raises(Unauthenticated):
                await collect(stranger, ask())
            with pytest.raises(Unauthenticated):
                await stranger.models()
            await stranger.close()


async def test_a_huge_message_is_refused_and_nothing_else_disturbed():
    """Over 16 MB; the same connection goes on."""
    async with serving(FakeBackend()) as (_, client):
        with pytest.raises(RequestError, match="too large"):
            await collect(client, ask(text="x" * (17 * 2**20)))
        assert (await collect(client, ask()))[-1].completion_tokens == 4


@pytest.mark.parametrize(
    ("method", "sent", "reason"),
    [
        ("Generate", b"\x12\x02\xff\xfe", "UTF-8"),
        ("Generate", b"\xff\xff\xff", "corrupt"),
        ("Tokenize", b"\x0a\x02\xff\xfe", "UTF-8"),
        ("Detokenize", b"\x0a\x02\xff\xfe", "UTF-8"),
        ("ListModels", b"\xff\xff\xff", "corrupt"),
    ],
)
async def test_what_is_no_message_is_an_invalid_argument(method, sent, reason):
    """Invalid UTF-8 and torn bytes; gRPC itself would answer UNKNOWN with the name of a Python class."""
    async with serving(FakeBackend()) as (server, client):
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = channel.unary_stream(f"/specgrove.v1.GenerationService/{method}")(sent)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                _ = [reply async for reply in call]
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason in caught.value.details()
        assert (await collect(client, ask()))[-1].completion_tokens == 4


async def test_a_request_over_the_doors_limit_is_refused():
    """It never reaches the backend; one at the limit does."""
    backend = FakeBackend()
    message = generation_pb2.TokenizeRequest(model="m", text="x" * 100)
    for limit, taken in ((message.ByteSize(), True), (message.ByteSize() - 1, False)):
        context = ServeContext()
        reply = await GenerationServicer(backend, max_bytes=limit).Tokenize(message, context)
        assert bool(reply.tokens) is taken
        assert context.code is (grpc.StatusCode.OK if taken else grpc.StatusCode.INVALID_ARGUMENT)


async def test_ports_are_tried_in_order_and_not_shared():
    """Two servers on one range get two ports; a third is told that none is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    one, two = (GenerateServer(FakeBackend(), ports=[free, free]) for _ in range(2))
    assert await one.start() == f"127.0.0.1:{free}"
    with pytest.raises(ConfigError, match=str(free)):
        await two.start()
    await one.stop()
    await one.stop()


def test_all_addresses_need_a_name_for_peers():
    """0.0.0.0 is nothing that anybody could dial."""
    with pytest.raises(ConfigError, match="host name"):
        GenerateServer(FakeBackend(), host="0.0.0.0")


async def test_health_and_reflection_answer():
    """What load balancers and grpcurl ask."""
    serves = True
    server = GenerateServer(FakeBackend(), serving=lambda: serves)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest(service="specgrove.v1.GenerationService")
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.SERVING
        serves = False
        assert (await health.Check(check)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND

        ask_names = reflection_pb2.ServerReflectionRequest(list_services="")
        info = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask_names]))
        names = {service.name for service in (await info.read()).list_services_response.service}
    await server.stop()

    assert {"specgrove.v1.GenerationService", "grpc.health.v1.Health"} <= names
