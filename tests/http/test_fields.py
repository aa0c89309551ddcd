"""What passes: neutral values, and every field on its way into core.GenerateRequest."""

from typing import Any

import httpx2
import pytest
from tests.http.fake_backend import MODEL, FakeBackend

from specgrove.core.request import ChatMessage, GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.http.schemas import neutral
from specgrove.http.schemas.chat import ChatRequest
from specgrove.http.schemas.completions import CompletionRequest

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "hi"}


def neutral_cases() -> list[tuple[str, dict[str, Any]]]:
    """Each neutral value of each field of the tables, null included, and null for our own optional fields."""
    out: list[tuple[str, dict[str, Any]]] = []
    for path, table, schema in (
        ("/v1/chat/completions", neutral.CHAT, ChatRequest),
        ("/v1/completions", neutral.COMPLETIONS, CompletionRequest),
    ):
        out += [(path, {name: value}) for name, values in table.items() for value in (None, *values)]
        out += [(path, {name: None}) for name, field in schema.model_fields.items() if not field.is_required()]
    return out


@pytest.mark.parametrize(("path", "more"), neutral_cases())
async def test_neutral_values_pass_and_change_nothing(
    client: httpx2.AsyncClient, backend: FakeBackend, path: str, more: dict[str, Any]
) -> None:
    """A neutral value gives the request that leaving the field out gives."""
    base = CHAT if path.endswith("chat/completions") else TEXT
    for body in (base, base | more):
        reply = await client.post(path, json=body)
        assert reply.status_code == 200, reply.text
    plain, with_field = (without_id(request) for request in backend.requests)
    assert with_field == plain


def without_id(request: GenerateRequest) -> GenerateRequest:
    """The request under one fixed id."""
    return GenerateRequest(
        **{name: getattr(request, name) for name in GenerateRequest.__slots__} | {"request_id": "same"}
    )


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"n": 1, "logit_bias": {}, "stop": [], "user": "", "speculation": {}, "metadata": {}}),
        ("/v1/chat/completions", {"stream_options": {"include_usage": False, "continuous_usage_stats": None}}),
        ("/v1/chat/completions", {"stream": True, "stream_options": {"include_obfuscation": False}}),
        ("/v1/chat/completions", {"max_tokens": 3, "max_completion_tokens": 3}),
        ("/v1/completions", {"n": 2, "best_of": 2}),
        ("/v1/completions", {"min_tokens": 16, "best_of": 1, "stop_token_ids": [], "top_k": -1}),
    ],
)
async def test_neutral_combinations_pass(client: httpx2.AsyncClient, path: str, more: dict[str, Any]) -> None:
    """Values that only fit together."""
    reply = await client.post(path, json=(CHAT if "chat" in path else TEXT) | more)
    assert reply.status_code == 200, reply.text


async def test_an_answer_can_be_sent_back(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """The message of a reply, with the nulls that clients add, is a valid message of the next request."""
    first = (await client.post("/v1/chat/completions", json=CHAT)).json()
    message = first["choices"][0]["message"] | {"annotations": None, "audio": None, "tool_calls": None}
    again = CHAT["messages"] + [message | {"function_call": None}, {"role": "user", "content": "more"}]
    reply = await client.post("/v1/chat/completions", json=CHAT | {"messages": again})
    assert reply.status_code == 200, reply.text
    assert [m.role for m in backend.requests[1].messages or ()] == ["user", "assistant", "user"]


async def test_every_field_arrives(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """All supported fields of a chat, mapped."""
    body = {
        "model": MODEL,
        "messages": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "ann"},
        ],
        "n": 2,
        "max_completion_tokens": 9,
        "min_tokens": 2,
        "stop": "end",
        "stop_token_ids": [7],
        "ignore_eos": True,
        "temperature": 0,
        "top_k": -1,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "logit_bias": {"5": -100, "6": 1.5},
        "allowed_token_ids": [1, 2],
        "banned_token_ids": [3],
        "seed": -1,
        "logprobs": True,
        "top_logprobs": 3,
        "safety_identifier": "who",
        "metadata": {"run": "1"},
        "speculation": {"mode": "off", "max_nodes": 4, "max_depth": 2, "branching": [2, 1], "method": "tree"},
        "prediction": {"type": "content", "content": [{"type": "text", "text": "so"}, {"type": "text", "text": "on"}]},
        "timeout_s": 30,
    }
    reply = await client.post("/v1/chat/completions", json=body, headers={"X-Request-Id": "mine"})
    assert reply.status_code == 200, reply.text

    (asked,) = backend.requests

    assert asked.request_id.startswith("mine-")
    assert without_id(asked) == GenerateRequest(
        request_id="same",
        model=MODEL,
        messages=(ChatMessage("system", "be brief"), ChatMessage("user", "a\nb", "ann")),
        sampling=SamplingFields(
            temperature=0.0,
            top_k=0,
            top_p=0.9,
            min_p=0.1,
            repetition_penalty=1.1,
            presence_penalty=1.0,
            frequency_penalty=-1.0,
            logit_bias={5: -100.0, 6: 1.5},
            allowed_token_ids=(1, 2),
            banned_token_ids=(3,),
            seed=2**64 - 1,
        ),
        n=2,
        max_tokens=9,
        min_tokens=2,
        stop=("end",),
        stop_token_ids=(7,),
        ignore_eos=True,
        logprobs=3,
        speculation=Speculation(mode="off", max_nodes=4, max_depth=2, branching=(2, 1), method="tree"),
        prediction="so\non",
        timeout_s=30.0,
        user="who",
        metadata={"run": "1"},
    )
    assert reply.json()["metrics"]["seed"] == -1, "the seed is told as it was sent"


async def test_unset_fields_stay_unset(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """Nothing is invented: the model's own defaults decide. Only completions have a default length, OpenAI's 16."""
    await client.post("/v1/chat/completions", json=CHAT)
    await client.post("/v1/completions", json=TEXT)
    assert [r.sampling for r in backend.requests] == [SamplingFields(), SamplingFields()]
    assert [r.max_tokens for r in backend.requests] == [None, 16]
    assert backend.requests[1].text == "hi"


@pytest.mark.parametrize(
    ("prompt", "texts", "tokens"),
    [
        ("a", ["a"], [None]),
        (["a", "b"], ["a", "b"], [None, None]),
        ([1, 2], [None], [(1, 2)]),
        ([[1, 2], [3]], [None, None], [(1, 2), (3,)]),
        ("", [""], [None]),
    ],
)
async def test_prompt_forms(client: httpx2.AsyncClient, backend: FakeBackend, prompt, texts, tokens) -> None:
    """OpenAI's four forms; each prompt is a generation of its own, with an id of its own."""
    reply = await client.post("/v1/completions", json=TEXT | {"prompt": prompt})
    assert reply.status_code == 200, reply.text
    asked = sorted(backend.requests, key=lambda r: r.request_id)
    assert [r.text for r in asked] == texts
    assert [r.tokens for r in asked] == tokens
    assert len({r.request_id for r in asked}) == len(texts)


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_shortest_outputs(client: httpx2.AsyncClient, limit: int, stream: bool) -> None:
    """max_tokens 0 and 1 are honoured on both endpoints."""
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
        reply = await client.post(path, json=body | {"max_tokens": limit, "stream": stream})
        assert reply.status_code == 200
        if not stream:
            assert reply.json()["usage"]["completion_tokens"] == limit
            assert reply.json()["choices"][0]["finish_reason"] == "length"


async def test_client_ids_may_repeat(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """Two requests under one X-Request-Id are two sessions; both replies echo the id."""
    for _ in range(2):
        reply = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "same"})
        assert reply.headers["X-Request-Id"] == "same"
        assert reply.json()["id"].startswith("chatcmpl-same-")
    assert len({r.request_id for r in backend.requests}) == 2
    bad = await client.post("/v1/chat/completions", json=CHAT, headers={"X-Request-Id": "x" * 129})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "X-Request-Id")
    await client.post("/v1/completions", json=TEXT | {"request_id": "body"})
    assert backend.requests[-1].request_id.startswith("body-")
