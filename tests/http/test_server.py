"""Over a real socket: requests as `vllm bench serve` sends them, disconnects, large bodies, keys, health, metrics."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from tests.http.conftest import Served
from tests.http.fake_backend import MODEL, SCRIPT, SCRIPT_BYTES, FakeBackend

from specgrove.errors import ConfigError
from specgrove.http import create_app

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until the condition holds."""
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        await asyncio.sleep(0.005)


async def post_raw(port: int, path: str, body: bytes, headers: dict[str, str] | None = None):
    """Send one request by hand; returns the open connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fields = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(len(body))} | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/completions", {"prompt": "one two", "repetition_penalty": 1.0, "max_tokens": 40, "logprobs": None}),
        ("/v1/completions", {"prompt": [5, 6, 7], "repetition_penalty": 1.0, "max_tokens": 40, "logprobs": None}),
        ("/v1/chat/completions", {"messages": CHAT["messages"], "max_completion_tokens": 40}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_completion_tokens": 40},
        ),
    ],
)
@pytest.mark.parametrize("extra", [{}, {"temperature": 0.0, "top_p": 1.0, "top_k": 1, "min_p": 0.0}])
async def test_vllm_bench_requests(served: Served, path: str, more: dict[str, Any], extra: dict[str, Any]) -> None:
    """What `vllm bench serve` sends, read the way it reads: text chunks first, then one chunk with usage only."""
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    headers = {"Authorization": "Bearer EMPTY", "x-request-id": "bench-0"}
    text, usage, done = "", None, False
    async with (
        httpx2.AsyncClient() as client,
        client.stream("POST", served.url + path, json=body | more | extra, headers=headers) as reply,
    ):
        assert reply.status_code == 200
        async for line in reply.aiter_lines():
            payload = line.removeprefix("data: ").strip()
            if payload == "[DONE]":
                done = True
            elif payload:
                chunk = json.loads(payload)
                if chunk.get("choices"):
                    assert usage is None
                    choice = chunk["choices"][0]
                    text += choice["delta"].get("content") or "" if "delta" in choice else choice.get("text") or ""
                elif chunk.get("usage"):
                    usage = chunk["usage"]
    assert done
    assert text == SCRIPT_BYTES[:40].decode(errors="ignore")
    assert usage is not None
    assert usage["completion_tokens"] == 40


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["before", "during"])
async def test_disconnect_closes_the_generation(served: Served, stream: bool, when: str) -> None:
    """A client that goes away ends its generation at once, before the first token or in the middle."""
    served.backend.hang_before = when == "before"
    served.backend.hang = True
    reader, writer = await post_raw(served.port, "/v1/chat/completions", json.dumps(CHAT | {"stream": stream}).encode())
    await eventually(lambda: len(served.backend.requests) == 1)
    if stream and when == "during":
        assert b"200 OK" in await reader.readuntil(b"Gr")
    await asyncio.sleep(0.05)
    assert served.backend.closed == 0, "negative control: it would run on"

    writer.close()
    await eventually(lambda: served.backend.closed == 1, within_s=2)


async def test_disconnect_closes_every_prompt(served: Served) -> None:
    """All generations of a prompt list end with the client."""
    served.backend.hang = True
    body = {"model": MODEL, "prompt": ["a", "b", "c"], "stream": True, "n": 2}
    _, writer = await post_raw(served.port, "/v1/completions", json.dumps(body).encode())
    await eventually(lambda: len(served.backend.requests) == 3)
    writer.close()
    await eventually(lambda: served.backend.closed == 3, within_s=2)


async def test_disconnect_right_after_a_reset(served: Served) -> None:
    """A connection that is reset (not closed cleanly) ends its generation too."""
    served.backend.hang = True
    reader, writer = await post_raw(served.port, "/v1/chat/completions", json.dumps(CHAT | {"stream": True}).encode())
    await reader.readuntil(b"Gr")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
    await eventually(lambda: served.backend.closed == 1, within_s=2)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_ten_megabyte_body(served: Served, chunked: bool) -> None:
    """413 in OpenAI's shape, with or without a length; the backend and the next request notice nothing."""
    body = json.dumps(CHAT | {"user": "x" * 10_000_000}).encode()

    async def parts():
        for at in range(0, len(body), 65536):
            yield body[at : at + 65536]

    async with httpx2.AsyncClient(timeout=30) as client:
        headers = {"Content-Type": "application/json"}
        content = parts() if chunked else body
        reply = await client.post(f"{served.url}/v1/chat/completions", content=content, headers=headers)
        assert reply.status_code == 413
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "2097152 bytes" in error["message"]
        assert served.backend.requests == []
        again = await client.post(f"{served.url}/v1/chat/completions", json=CHAT)
        assert again.json()["choices"][0]["message"]["content"] == SCRIPT


async def test_expect_continue_is_answered_before_the_body(served: Served) -> None:
    """A client that asks first (curl does) is told 413 without sending its megabytes."""
    reader, writer = await post_raw(
        served.port, "/v1/completions", b"", {"Content-Length": str(10**7), "Expect": "100-continue"}
    )
    line = await asyncio.wait_for(reader.readline(), 5)
    assert b"413" in line
    writer.close()


async def test_the_limit_itself_passes(served: Served) -> None:
    """Negative control: a body of exactly the limit is read (and then refused for its field)."""
    body = json.dumps(CHAT | {"user": ""}).encode()
    body = json.dumps(CHAT | {"user": "x" * (2**21 - len(body))}).encode()
    assert len(body) == 2**21
    async with httpx2.AsyncClient() as client:
        reply = await client.post(
            f"{served.url}/v1/chat/completions", content=body, headers={"Content-Type": "application/json"}
        )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "user")


def in_process(**options: Any) -> httpx2.AsyncClient:
    """A client of a fresh app with these options."""
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=create_app(FakeBackend(), **options)), base_url="http://door"
    )


async def test_api_keys() -> None:
    """Bearer keys guard everything but /health; the answer to a wrong one is OpenAI's 401."""
    async with in_process(api_keys=("one", "two")) as client:
        for headers in (
            {},
            {"Authorization": "Bearer three"},
            {"Authorization": "Basic one"},
            {"Authorization": "one"},
            {"Authorization": "Bearer "},
            {"Authorization": b"Bearer \xff\xfe"},
        ):
            for path in ("/v1/models", "/metrics", "/nowhere"):
                reply = await client.get(path, headers=headers)  # type: ignore[arg-type]  # bytes are headers too
                assert reply.status_code == 401
                assert reply.json()["error"]["code"] == "invalid_api_key"
                assert reply.headers["WWW-Authenticate"] == "Bearer"
        for key in ("Bearer one", "bearer two", "Bearer  one "):
            assert (await client.get("/v1/models", headers={"Authorization": key})).status_code == 200
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("key", ["", " padded", "naïve", "two\nlines"])
def test_keys_that_nobody_could_send(key: str) -> None:
    """They stop the start."""
    with pytest.raises(ConfigError, match="API key") as caught:
        create_app(FakeBackend(), api_keys=[key])
    assert caught.value.param == "api_keys"


async def test_the_access_log_tells_no_content(client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """One line per request with its status and time, and nothing of what was said."""
    caplog.set_level(logging.INFO, logger="specgrove")
    body = CHAT | {"messages": [{"role": "user", "content": "very private"}], "stop": "aus"}
    await client.post("/v1/chat/completions", json=body)
    (line,) = [record for record in caplog.records if record.name == "specgrove.http.edge"]
    assert (line.__dict__["status"], line.__dict__["path"]) == (200, "/v1/chat/completions")
    assert "private" not in str(caplog.records)


async def test_health_follows_the_models(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """200 while a model can be asked, 503 with a time to retry when none can."""
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.head("/health")).status_code == 200
    backend.state = "unavailable"
    reply = await client.get("/health")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
    assert reply.headers["Retry-After"] == "1"


async def test_metrics_text() -> None:
    """The given text, in Prometheus' media type."""

    async def text() -> str:
        return "# TYPE a counter\na 1\n"

    async with in_process(metrics=text) as client:
        reply = await client.get("/metrics")
    assert reply.text == "# TYPE a counter\na 1\n"
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
