"""The typed clients, synchronous and asynchronous, against a real server."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from contextlib import aclosing, contextmanager

import grpc
import grpc.aio
import pytest
from tests.rpc.fakes import STATUS, FakeBackend

from specgrove.client import (
    AsyncClient,
    ChatMessage,
    ChoiceFinished,
    Chunk,
    Client,
    Finished,
    Speculation,
    Started,
    build_request,
)
from specgrove.errors import (
    CapacityError,
    DeadlineExceeded,
    ModelNotFound,
    ProtocolError,
    RequestError,
    Unauthenticated,
    Unavailable,
)
from specgrove.rpc.servers import GenerateServer

KINDS = [Started, Chunk, Chunk, ChoiceFinished, Finished]


@contextmanager
def served(backend_of, **options):
    """A server in a thread of its own, as a synchronous program meets one. Yields (address, backend)."""
    ready, box = threading.Event(), {}

    async def run():
        box["backend"] = backend_of()
        server = GenerateServer(box["backend"], **options)
        box["address"], box["stop"], box["loop"] = await server.start(), asyncio.Event(), asyncio.get_running_loop()
        ready.set()
        await box["stop"].wait()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield box["address"], box["backend"]
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(10)


def test_generate_streams_events():
    """The events in order, the request with all that was asked for."""
    with served(FakeBackend) as (address, backend), Client(address) as client:
        events = list(client.generate("m", "hi", max_tokens=2, temperature=0.5, stop="END", seed=7))

    assert [type(event) for event in events] == KINDS
    (request,) = backend.requests
    assert (request.text, request.max_tokens, request.stop) == ("hi", 2, ("END",))
    assert (request.sampling.temperature, request.sampling.seed, request.sampling.top_k) == (0.5, 7, None)


def test_complete_gathers_the_stream():
    """Text, tokens, reason, counts."""
    with served(FakeBackend) as (address, _), Client(address) as client:
        reply = client.complete("m", (1, 2, 3), max_tokens=3)

    assert reply.text == "0 1 2 "
    assert reply.choices[0].tokens == [0, 1, 2]
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].stats.num_drafts == 1
    assert (reply.started.seed, reply.finished.completion_tokens) == (2**64 - 1, 3)


def test_the_small_calls():
    """Models, tokens and text."""
    with served(FakeBackend) as (address, _), Client(address) as client:
        assert client.models() == (STATUS,)
        assert client.tokenize("m", "a") == (1, 97)
        assert client.tokenize("m", "a", add_special_tokens=False) == (97,)
        assert client.detokenize("m", [97]) == "a"
        with pytest.raises(ModelNotFound, match="other"):
            client.tokenize("other", "a")


def test_leaving_early_stops_the_work():
    """Closing the stream cancels the request on the server."""
    with served(lambda: FakeBackend(pause_s=0.01)) as (address, backend), Client(address) as client:
        with client.generate("m", "hi", max_tokens=1000) as stream:
            next(stream)
        for _ in range(200):
            if backend.closed.is_set():
                break
            threading.Event().wait(0.01)
        assert backend.closed.is_set()
        assert backend.sent < 200
        assert list(stream) == []


def test_errors_are_ours():
    """Code, param and retryable as the server raised them."""
    failing = served(lambda: FakeBackend(fail=CapacityError("full", param="n"), fail_after=1))
    with failing as (address, _), Client(address) as client, pytest.raises(CapacityError, match="full") as caught:
        list(client.generate("m", "hi"))
    assert (caught.value.param, caught.value.retryable) == ("n", True)


def test_the_key_is_sent():
    """And a wrong one refused."""
    with served(FakeBackend, api_keys=["k"]) as (address, _):
        with Client(address, api_key="k") as client:
            assert client.complete("m", "hi").text
        with Client(address) as client, pytest.raises(Unauthenticated):
            client.models()


def test_a_request_has_its_own_deadline():
    """A server that hangs ends in DeadlineExceeded."""
    hanging = served(lambda: FakeBackend(pause_s=60))
    with hanging as (address, _), Client(address) as client, pytest.raises(DeadlineExceeded):
        list(client.generate("m", "hi", timeout_s=0.01))  # the client's own limit is two seconds later


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), 1e300, -5.0])
def test_an_absurd_limit_reaches_the_server(timeout_s):
    """Which refuses it by name; gRPC itself would take it for a deadline in the past."""
    with (
        served(FakeBackend) as (address, _),
        Client(address) as client,
        pytest.raises(RequestError, match=f"timeout_s must be .* got {re.escape(str(timeout_s))}") as caught,
    ):
        list(client.generate("m", "hi", max_tokens=2, timeout_s=timeout_s))
    assert caught.value.param == "timeout_s"


def test_nobody_there():
    """Unavailable, after the attempts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with Client(f"127.0.0.1:{taken.getsockname()[1]}", max_attempts=2) as client, pytest.raises(Unavailable):
            client.models()


@pytest.mark.parametrize(("code", "calls"), [(grpc.StatusCode.UNAVAILABLE, 3), (grpc.StatusCode.RESOURCE_EXHAUSTED, 1)])
async def test_only_unavailable_is_sent_again(code, calls):
    """A call that the server took must not run twice by itself."""
    seen = []

    async def refuse(request, context):
        seen.append(request)
        await context.abort(code, "no")

    server = grpc.aio.server()
    handlers = {"ListModels": grpc.unary_unary_rpc_method_handler(refuse)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("specgrove.v1.GenerationService", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncClient(f"127.0.0.1:{port}", max_attempts=3) as client:
        with pytest.raises((Unavailable, CapacityError)):
            await client.models()
    await server.stop(None)

    assert len(seen) == calls


async def test_the_asynchronous_client():
    """The same calls on an event loop."""
    backend = FakeBackend(pause_s=0.001)
    server = GenerateServer(backend)
    async with AsyncClient(await server.start()) as client:
        assert [type(event) async for event in client.generate("m", "hi", max_tokens=2)] == KINDS
        assert (await client.complete("m", [ChatMessage("user", "hi")], max_tokens=2)).text == "0 1 "
        assert await client.models() == (STATUS,)
        assert await client.detokenize("m", await client.tokenize("m", "a", add_special_tokens=False)) == "a"
        with pytest.raises(ModelNotFound):
            await client.tokenize("other", "a")
        backend.closed.clear()
        async with aclosing(client.generate("m", "hi", max_tokens=10**4)) as stream:
            await anext(stream)
        async with asyncio.timeout(2):
            await backend.closed.wait()
    await server.stop()

    assert backend.requests[1].messages == (ChatMessage("user", "hi"),)


def test_a_stream_without_an_end_is_an_error():
    """A proxy that cuts a stream and says OK must not look like a finished text."""
    from specgrove.client.sync import Stream

    class Call:
        def __next__(self):
            raise StopIteration

        def cancel(self):
            """Nothing runs."""

    with pytest.raises(ProtocolError, match="without Finished"):
        next(Stream(Call()))


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ("hi", {"temprature": 1.0}, "temprature"),
        ("hi", {"text": "x"}, "text"),
        ([1, "x"], {}, "prompt"),
        ([True], {}, "prompt"),
        (None, {}, "prompt"),
        (5, {}, "prompt"),
        (b"bytes", {}, "prompt"),
        ("hi", {"stop": 5}, "stop"),
        ("hi", {"allowed_token_ids": 5}, "allowed_token_ids"),
        ("hi", {"metadata": 5}, "metadata"),
        ("hi", {"speculation": "off"}, "speculation"),
        ("hi", {"speculation": None}, "speculation"),
        ([ChatMessage("user", "hi"), 3], {}, "prompt"),
    ],
)
def test_a_wrong_call_is_refused_by_name(prompt, options, param):
    """Before anything is sent."""
    with pytest.raises(RequestError) as caught:
        build_request("m", prompt, **options)

    assert caught.value.param == param


def test_options_reach_their_places():
    """Request fields, sampling fields, and lists where tuples are kept."""
    request = build_request(
        "m", [5], n=2, top_p=0.9, allowed_token_ids=[1, 2], stop=["a", "b"], speculation=Speculation(mode="off")
    )

    assert (request.tokens, request.n, request.stop) == ((5,), 2, ("a", "b"))
    assert (request.sampling.top_p, request.sampling.allowed_token_ids) == (0.9, (1, 2))
    assert request.speculation.mode == "off"
