"""The replies themselves, on the wire: exact chunks, usage, metrics, log-probabilities."""

import json
import math
from typing import Any

import httpx2
import pytest
from tests.http.fake_backend import MODEL, SCRIPT, SCRIPT_BYTES, SEED, FakeBackend

from specgrove.core.request import Chunk, SpeculationStats, Started
from specgrove.errors import SpecgroveError
from specgrove.http.replies.figures import speculative_decoding
from specgrove.http.replies.reply import CHAT as CHAT_FORM
from specgrove.http.replies.reply import Reply

CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": MODEL, "prompt": "hi"}
SPECULATION = {
    "mean_acceptance_length": 2.5,
    "draft_acceptance_rate": 0.375,
    "acceptance_histogram": [1, 1, 1, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 6,
    "num_draft_tokens": 16,
    "num_spec_tokens": 3,
    "num_rounds": 5,
    "num_stale_trees": 0,
}


async def stream(client: httpx2.AsyncClient, path: str, **body: Any) -> list[dict[str, Any]]:
    """The payloads of a stream that ends with [DONE]."""
    reply = await client.post(path, json=body | {"stream": True})
    assert reply.status_code == 200, reply.text
    assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert "Content-Length" not in reply.headers
    events = reply.text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


async def test_chat_chunks_exactly(client: httpx2.AsyncClient) -> None:
    """OpenAI's chunks: role, text, reason; the last one carries the metrics."""
    chunks = await stream(client, "/v1/chat/completions", **CHAT, max_tokens=6)

    head = {name: chunks[0][name] for name in ("id", "created", "model", "object", "system_fingerprint")}
    assert (head["object"], head["model"], head["system_fingerprint"]) == ("chat.completion.chunk", MODEL, None)

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return head | {"choices": [choice | more.pop("choice", {})]} | more

    metrics = {"seed": SEED, "speculative_decoding": SPECULATION}
    assert chunks == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Gr"}),
        chunk({"content": "üß"}),
        chunk({}, "length", choice={"stop_reason": None}, metrics=metrics),
    ]


async def test_usage_chunks(client: httpx2.AsyncClient) -> None:
    """include_usage: null on the way and one usage chunk; continuous_usage_stats: the usage so far in each."""
    asked = await stream(client, "/v1/completions", **TEXT, max_tokens=6, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in asked[:-1]] == [None] * 3
    last = asked[-1]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 6,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2},
    }
    assert last["metrics"] == {"seed": SEED, "speculative_decoding": SPECULATION}
    assert not any("metrics" in chunk for chunk in asked[:-1])

    options = {"include_usage": True, "continuous_usage_stats": True}
    running = await stream(client, "/v1/completions", **TEXT, max_tokens=6, stream_options=options)
    assert [chunk["usage"]["completion_tokens"] for chunk in running] == [3, 6, 6, 6]
    plain = await stream(client, "/v1/completions", **TEXT, max_tokens=6)
    assert not any("usage" in chunk for chunk in plain)


async def test_several_choices_have_their_own_metrics(client: httpx2.AsyncClient) -> None:
    """n > 1: each choice carries its figures; the total has the seed only, as in vLLM."""
    body = (await client.post("/v1/chat/completions", json=CHAT | {"n": 2})).json()
    own = {"seed": SEED, "speculative_decoding": SPECULATION}
    assert [choice["metrics"] for choice in body["choices"]] == [own, own]
    assert body["metrics"] == {"seed": SEED, "speculative_decoding": None}

    chunks = await stream(client, "/v1/chat/completions", **CHAT, n=2)
    ends = [c for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]
    assert [(c["index"], c["metrics"]) for c in ends] == [(0, own), (1, own)]
    roles = [c["index"] for chunk in chunks for c in chunk["choices"] if c["delta"].get("role")]
    assert roles == [0, 1]


@pytest.mark.parametrize("n", [1, 3])
async def test_streamed_and_whole_are_the_same(client: httpx2.AsyncClient, n: int) -> None:
    """The pieces of a stream add up to the whole reply: text, log-probabilities, reasons."""
    asked = TEXT | {"prompt": ["ab", "cd"], "n": n, "echo": True, "logprobs": 2, "max_tokens": 20}
    whole = (await client.post("/v1/completions", json=asked)).json()["choices"]
    built: list[dict[str, Any]] = [
        {"text": "", "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []} for _ in range(2 * n)
    ]
    for chunk in await stream(client, "/v1/completions", **asked):
        for choice in chunk["choices"]:
            built[choice["index"]]["text"] += choice["text"]
            for name, column in (choice["logprobs"] or {}).items():
                built[choice["index"]][name] += column
            if choice["finish_reason"]:
                built[choice["index"]]["end"] = choice["finish_reason"]
    for index, choice in enumerate(whole):
        assert choice["index"] == index
        expected = {"text": choice["text"], "end": choice["finish_reason"]} | choice["logprobs"]
        assert built[index] == expected


async def test_echo_alone(client: httpx2.AsyncClient) -> None:
    """echo with max_tokens 0 scores a prompt: its text and log-probabilities, and nothing else."""
    body = (await client.post("/v1/completions", json=TEXT | {"echo": True, "max_tokens": 0, "logprobs": 0})).json()
    (choice,) = body["choices"]
    assert choice["text"] == "hi"
    assert choice["logprobs"] == {
        "tokens": ["h", "i"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"i": -0.5}],
        "text_offset": [0, 1],
    }
    (first, last) = await stream(client, "/v1/completions", **TEXT, echo=True, max_tokens=0)
    assert first["choices"][0]["text"] == "hi"
    assert last["choices"][0]["finish_reason"] == "length"


async def test_offsets_point_into_the_text(client: httpx2.AsyncClient) -> None:
    """text_offset of a token that starts a character is where that character stands."""
    body = (await client.post("/v1/completions", json=TEXT | {"max_tokens": 60, "logprobs": 0})).json()
    (choice,) = body["choices"]
    columns = choice["logprobs"]
    for byte, offset in zip(SCRIPT_BYTES, columns["text_offset"], strict=True):
        if byte < 0x80:
            assert choice["text"][offset] == chr(byte)
    assert choice["text"] == SCRIPT


async def test_chat_logprobs_exactly(client: httpx2.AsyncClient) -> None:
    """Entries with token, bytes and alternatives; no logprobs object unless asked."""
    body = (
        await client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 1, "logprobs": True, "top_logprobs": 1})
    ).json()
    assert body["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "G",
                "logprob": -0.5,
                "bytes": [71],
                "top_logprobs": [{"token": "a", "logprob": -1.0, "bytes": [97]}],
            }
        ],
        "refusal": None,
    }
    plain = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert plain["choices"][0]["logprobs"] is None


async def test_impossible_tokens_are_still_json(client: httpx2.AsyncClient, backend: FakeBackend) -> None:
    """A log-probability of minus infinity becomes OpenAI's -9999."""
    backend.logprob = -math.inf
    body = (await client.post("/v1/completions", json=TEXT | {"max_tokens": 1, "logprobs": 0})).json()
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0]


async def test_stops(client: httpx2.AsyncClient) -> None:
    """A stop inside a commit: the text ends before it, and the reply names it."""
    body = (await client.post("/v1/chat/completions", json=CHAT | {"stop": ["dem", "xyz"]})).json()
    (choice,) = body["choices"]
    assert choice["message"]["content"] == "Grüße 🌳 aus "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "dem")


@pytest.mark.parametrize("error", [RuntimeError("secret"), TimeoutError("secret"), SpecgroveError("secret")])
async def test_unexpected_errors(client: httpx2.AsyncClient, backend: FakeBackend, error: Exception) -> None:
    """A bug in the backend is a 500, or an error event in a stream; what it said stays in the log."""
    backend.after = error
    whole = await client.post("/v1/chat/completions", json=CHAT)
    assert whole.status_code == 500
    streamed = await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert streamed.status_code == 200
    *_, last, empty = streamed.text.split("\n\n")
    assert empty == ""
    name, payload = last.split("\n")
    assert name == "event: error"
    error_object = json.loads(payload.removeprefix("data: "))["error"]
    assert set(error_object) == {"message", "type", "param", "code"}
    assert "[DONE]" not in streamed.text
    assert "secret" not in whole.text + streamed.text
    assert "Traceback" not in whole.text + streamed.text


@pytest.mark.parametrize(("reason", "status"), [("cancelled", 499), ("error", 500)])
async def test_a_choice_that_did_not_end_well(client: httpx2.AsyncClient, backend: FakeBackend, reason, status) -> None:
    """OpenAI has no finish reason for these, so they are errors."""
    backend.reason = reason
    reply = await client.post("/v1/chat/completions", json=CHAT)
    assert reply.status_code == status
    assert set(reply.json()) == {"error"}


@pytest.mark.parametrize("streamed", [False, True])
async def test_one_bad_prompt_refuses_the_list(
    client: httpx2.AsyncClient, backend: FakeBackend, streamed: bool
) -> None:
    """A prompt that is refused refuses the request, and the other generations are closed."""
    backend.fail_prompt = "too long"
    body = TEXT | {"prompt": ["a", "too long", "b"], "stream": streamed}
    reply = await client.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt"
    assert backend.closed == len(backend.requests)


def test_nothing_is_streamed_before_the_first_token() -> None:
    """The role waits for the first token, so that a client that times the first chunk measures the right thing."""
    reply = Reply(CHAT_FORM, reply_id="x", model=MODEL, prompts=1, n=1, wants_logprobs=False, seed=None)
    assert reply.on(0, Started(request_id="x", model=MODEL, seed=1, prompt_tokens=3)) == []
    pieces = reply.on(0, Chunk(choice=0, tokens=(1,)))
    assert [piece["delta"] for piece in pieces] == [{"role": "assistant", "content": ""}]
    assert reply.on(0, Chunk(choice=0, tokens=(2,))) == [], "half a character is nothing to show"
    assert reply.usage()["completion_tokens"] == 2


def test_events_out_of_order_are_an_error() -> None:
    """A backend that breaks its promise is found out."""
    reply = Reply(CHAT_FORM, reply_id="x", model=MODEL, prompts=1, n=1, wants_logprobs=False, seed=None)
    with pytest.raises(SpecgroveError, match="before Started"):
        reply.on(0, Chunk(choice=0))
    reply.on(0, Started(request_id="x", model=MODEL, seed=1, prompt_tokens=3))
    with pytest.raises(SpecgroveError, match="never ended"):
        reply.whole()


def test_speculation_figures() -> None:
    """vLLM's identities: the histogram sums to the steps and its moment to the accepted tokens."""
    stats = SpeculationStats(
        rounds=9, num_drafts=7, num_draft_tokens=70, num_accepted_tokens=9, accepted_per_pos=[5, 3, 1, 0]
    )
    figures = speculative_decoding(stats)
    histogram = figures["acceptance_histogram"]
    assert histogram == [2, 2, 2, 1, 0]
    assert sum(histogram) == figures["num_spec_steps"]
    assert sum(j * steps for j, steps in enumerate(histogram)) == figures["num_accepted_draft_tokens"]
    assert len(histogram) == figures["num_spec_tokens"] + 1
    empty = speculative_decoding(SpeculationStats())
    assert (empty["mean_acceptance_length"], empty["acceptance_histogram"]) == (1.0, [0])
