"""Bad requests: each gets its status and names its field, and the backend never hears of it."""

import json
from typing import Any

import httpx2
import pytest
from tests.http.fake_backend import MODEL, FakeBackend

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "hi"}


def check_shape(reply: httpx2.Response) -> dict[str, Any]:
    """OpenAI's error shape, exactly."""
    body = reply.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert reply.headers["X-Request-Id"]
    found: dict[str, Any] = body["error"]
    return found


BOTH = [
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": 1e-9}, "temperature"),
    ({"temperature": 1e308}, "temperature"),
    ({"temperature": [1]}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.0}, "top_k"),
    ({"top_k": 10**30}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": "2"}, "n"),
    ({"n": True}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 10**12}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"seed": 2**64}, "seed"),
    ({"seed": -(2**63) - 1}, "seed"),
    ({"seed": 1.0}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop"),
    ({"stop": "x" * 1025}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [True]}, "stop_token_ids"),
    ({"stop_token_ids": 3}, "stop_token_ids"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"01": 1}}, "logit_bias"),
    ({"logit_bias": {"٣": 1}}, "logit_bias"),
    ({"logit_bias": {"1": "5"}}, "logit_bias"),
    ({"logit_bias": {"9" * 10: 1}}, "logit_bias"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"banned_token_ids": [2**31]}, "banned_token_ids"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"stream": True, "stream_options": {"more": None}}, "stream_options.more"),
    ({"stream": True, "stream_options": []}, "stream_options"),
    ({"user": 5}, "user"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"speculation": {"mode": "maybe"}}, "speculation.mode"),
    ({"speculation": {"max_nodes": 0}}, "speculation.max_nodes"),
    ({"speculation": {"depth": 3}}, "speculation.depth"),
    ({"speculation": "off"}, "speculation"),
    ({"timeout_s": 0}, "timeout_s"),
    ({"model": ""}, "model"),
    ({"model": None}, "model"),
    ({"model": 3}, "model"),
    ({"temprature": 1}, "temprature"),
    ({"unknown": None}, "unknown"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"include_stop_str_in_output": True}, "include_stop_str_in_output"),
    ({"skip_special_tokens": False}, "skip_special_tokens"),
    ({"prompt_logprobs": 0}, "prompt_logprobs"),
    ({"priority": False}, "priority"),
    ({"truncate_prompt_tokens": 10}, "truncate_prompt_tokens"),
    ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ({"store": True}, "store"),
]
CHAT_ONLY = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]}, "messages[0].content"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "boss", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "hi", "tool_call_id": "1"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "hi", "weight": 1}]}, "messages[0].weight"),
    ({"messages": [{"role": "user", "content": "a", "tool_calls": [{"id": "1"}]}]}, "messages[0].tool_calls"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"echo": True}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"chat_template": "{{ x }}"}, "chat_template"),
    ({"user": "a", "safety_identifier": "b"}, "safety_identifier"),
    ({"prompt": "hi"}, "prompt"),
    ({"prediction": "hi"}, "prediction"),
    ({"prediction": {"content": "hi"}}, "prediction.type"),
    ({"prediction": {"type": "guess", "content": "hi"}}, "prediction.type"),
    ({"prediction": {"type": "content", "content": 5}}, "prediction.content"),
    ({"prediction": {"type": "content", "content": "hi", "weight": 1}}, "prediction.weight"),
]
TEXT_ONLY = [
    ({"prediction": {"type": "content", "content": "hi"}}, "prediction"),
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [1, True]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [2**31]}, "prompt"),
    ({"prompt": [[1], "a"]}, "prompt"),
    ({"prompt": {"text": "a"}}, "prompt"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"prompt": ["a"] * 20, "n": 100}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"best_of": 3}, "best_of"),
    ({"suffix": "end"}, "suffix"),
    ({"echo": "yes"}, "echo"),
    ({"messages": []}, "messages"),
    ({"max_completion_tokens": 3}, "max_completion_tokens"),
]
CASES = [
    *(("/v1/chat/completions", CHAT, more, param) for more, param in BOTH + CHAT_ONLY),
    *(("/v1/completions", TEXT, more, param) for more, param in BOTH + TEXT_ONLY),
]


@pytest.mark.parametrize(("path", "base", "more", "param"), CASES)
async def test_bad_field(client: httpx2.AsyncClient, backend: FakeBackend, path, base, more, param) -> None:
    """A 400 that names the field, before the backend is asked."""
    reply = await client.post(path, json=base | more)
    assert reply.status_code == 400, reply.text
    error = check_shape(reply)
    assert error["param"] == param
    assert param.split(".")[-1].split("[")[0] in error["message"]
    assert error["type"] == "invalid_request_error"
    assert backend.requests == []


@pytest.mark.parametrize(("path", "base"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
async def test_the_base_requests_are_good(client: httpx2.AsyncClient, backend: FakeBackend, path, base) -> None:
    """Negative control: without the bad field the same requests pass."""
    assert (await client.post(path, json=base)).status_code == 200
    assert len(backend.requests) == 1


def raw_chat(**more: str) -> bytes:
    """A chat request with raw JSON values added."""
    extra = "".join(f',"{name}":{value}' for name, value in more.items())
    return (json.dumps(CHAT)[:-1] + extra + "}").encode()


BODIES = {
    "empty": b"",
    "not JSON": b"hello",
    "cut": b'{"model": "grove"',
    "list": b"[]",
    "null": b"null",
    "number": b"1",
    "invalid UTF-8": b'{"model": "\xff\xfe"}',
    "BOM": b"\xef\xbb\xbf" + raw_chat(),
    "UTF-16": raw_chat().decode().encode("utf-16"),
    "NaN": raw_chat(temperature="NaN"),
    "Infinity": raw_chat(temperature="-Infinity"),
    "too large for a float": raw_chat(temperature="1e999"),
    "too many digits": raw_chat(seed="1" * 5000),
    "half a surrogate pair": raw_chat(user='"\\ud800"'),
    "half a surrogate pair as a key": b'{"\\ud800": 1}',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "the same key twice": raw_chat(seed="1", max_tokens="1", temperature="1").replace(b"temperature", b"seed"),
    "two documents": raw_chat() + raw_chat(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_bad_body(client: httpx2.AsyncClient, backend: FakeBackend, body: bytes) -> None:
    """A 400 in OpenAI's shape for what is not one clean JSON object."""
    reply = await client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400, reply.text
    check_shape(reply)
    assert backend.requests == []


async def test_raw_bodies_can_be_good(client: httpx2.AsyncClient) -> None:
    """Negative control: the raw request itself passes, also with a whole surrogate pair and escaped backslashes."""
    body = raw_chat(user='"\\ud83c\\udf33 \\\\ud800"', temperature="1E0")
    reply = await client.post("/v1/chat/completions", content=body)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ({"Content-Type": "text/plain"}, "application/json"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "application/json"),
        ({"Content-Type": "application/json; charset=latin-1"}, "UTF-8"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "compressed"),
    ],
)
async def test_media_types(client: httpx2.AsyncClient, backend: FakeBackend, headers, word: str) -> None:
    """A 415 that says what to send."""
    reply = await client.post("/v1/chat/completions", content=raw_chat(), headers=headers)
    assert reply.status_code == 415
    assert word in check_shape(reply)["message"]
    assert backend.requests == []


async def test_unknown_model(client: httpx2.AsyncClient) -> None:
    """A 404 that names the field."""
    reply = await client.post("/v1/completions", json=TEXT | {"model": "gpt-7"})
    assert reply.status_code == 404
    error = check_shape(reply)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "gpt-7" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/nobody", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/metrics", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
async def test_unknown_routes(client: httpx2.AsyncClient, method: str, path: str, status: int) -> None:
    """404 and 405 have OpenAI's shape too."""
    reply = await client.request(method, path)
    assert reply.status_code == status
    error = check_shape(reply)
    if status == 405:
        assert reply.headers["Allow"]
        assert reply.headers["Allow"] in error["message"]


async def test_messages_help(client: httpx2.AsyncClient) -> None:
    """The sentence says what is allowed, what was sent, and what was probably meant."""

    async def message(**more: Any) -> str:
        reply = await client.post("/v1/chat/completions", json=CHAT | more)
        return str(check_shape(reply)["message"])

    assert "from 1e-05 to 2, got 3" in await message(temperature=3)
    assert "did you mean `temperature`?" in await message(temprature=1)
    assert 'leave it out or send {"type": "text"}' in await message(response_format={"type": "json_object"})
    assert "leave it out or send []" in await message(tools=[1])
    assert len(await message(user="x" * 10_000)) < 300
    assert len(await message(**{"k" * 10_000: 1})) < 300
