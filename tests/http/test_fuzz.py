"""Random requests: whatever comes in, the answer is a reply or an error in OpenAI's shape, never a 5xx."""

import asyncio
import json
from typing import Any

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.http.fake_backend import MODEL, FakeBackend

from specgrove.http import create_app
from specgrove.http.schemas import neutral
from specgrove.http.schemas.chat import ChatRequest
from specgrove.http.schemas.completions import CompletionRequest

NAMES = sorted({*neutral.CHAT, *neutral.COMPLETIONS, *ChatRequest.model_fields, *CompletionRequest.model_fields})
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 30), st.floats(), st.text(max_size=8), st.just("auto")
)
KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["role", "content", "type", "text", "mode", "0", "17"]))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)
GOOD = st.sampled_from(
    [
        {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
        {"model": MODEL, "prompt": "hi"},
        {"model": MODEL, "prompt": ["a", "b"], "n": 2, "echo": True, "logprobs": 1},
        {},
    ]
)
APP = create_app(FakeBackend())
PATHS = st.sampled_from(["/v1/chat/completions", "/v1/completions"])
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def answer(path: str, body: bytes) -> httpx2.Response:
    """The app's answer to one body."""

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=APP)
        async with httpx2.AsyncClient(transport=transport, base_url="http://door") as client:
            return await client.post(path, content=body, headers={"Content-Type": "application/json"})

    return asyncio.run(ask())


def check(reply: httpx2.Response) -> None:
    """A reply or a clean refusal."""
    assert reply.status_code in (200, 400, 404), reply.text
    if reply.status_code == 200:
        assert "event: error" not in reply.text
        return
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["param"] is None or isinstance(body["error"]["param"], str)


@SETTINGS
@given(PATHS, GOOD, st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), JSON, max_size=3))
def test_random_fields(path: str, good: dict[str, Any], more: dict[str, Any]) -> None:
    """A good request with random values in known and unknown fields."""
    check(answer(path, json.dumps(good | more).encode()))


@SETTINGS
@given(PATHS, st.one_of(st.binary(max_size=40), JSON.map(lambda value: json.dumps(value).encode())))
def test_random_bodies(path: str, body: bytes) -> None:
    """Any bytes at all."""
    check(answer(path, body))
