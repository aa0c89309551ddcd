"""The unmodified openai client, sync and async, against the app on a real socket."""

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.http.conftest import Served
from tests.http.fake_backend import MODEL, SCRIPT, SCRIPT_BYTES, SEED

from specgrove.errors import CapacityError, DeadlineExceeded, Unavailable

ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture
def openai_client(served: Served):
    """The sync client, without retries."""
    with OpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_chat(openai_client, served: Served) -> None:
    """A whole reply: text, finish reason, usage and metrics."""
    reply = openai_client.chat.completions.create(model=MODEL, messages=ASK)

    assert reply.choices[0].message.content == SCRIPT
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.object == "chat.completion"
    assert reply.usage.completion_tokens == len(SCRIPT_BYTES)
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens_details.cached_tokens == 1
    assert reply.model_extra["metrics"]["seed"] == SEED
    assert served.backend.closed == 1


def test_chat_stream(openai_client) -> None:
    """A stream: role first, then text without half characters, then the reason; the usage comes last."""
    stream = openai_client.chat.completions.create(
        model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)

    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == SCRIPT
    assert not any("\ufffd" in (c.choices[0].delta.content or "") for c in chunks[:-1])
    assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason] == ["stop"]
    assert all(c.usage is None for c in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len(SCRIPT_BYTES)
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert len({c.id for c in chunks}) == 1


def test_chat_n_and_logprobs(openai_client) -> None:
    """Two choices with log-probabilities: bytes and alternatives."""
    reply = openai_client.chat.completions.create(
        model=MODEL, messages=ASK, n=2, max_tokens=6, logprobs=True, top_logprobs=2
    )
    assert [c.index for c in reply.choices] == [0, 1]
    assert [c.message.content for c in reply.choices] == ["Grüß", "GRÜSS"]
    entries = reply.choices[0].logprobs.content
    assert bytes(b for e in entries for b in e.bytes) == SCRIPT_BYTES[:6]
    assert [t.logprob for t in entries[0].top_logprobs] == [-1.0, -2.0]
    assert reply.usage.completion_tokens == 12


def test_completions(openai_client) -> None:
    """The legacy endpoint: default of 16 tokens, echo and integer logprobs."""
    reply = openai_client.completions.create(model=MODEL, prompt="hi", echo=True, logprobs=1)
    assert reply.object == "text_completion"
    assert reply.choices[0].text == "hi" + SCRIPT_BYTES[:16].decode(errors="ignore")
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 16
    columns = reply.choices[0].logprobs
    assert columns.tokens[:3] == ["h", "i", "G"]
    assert columns.token_logprobs[0] is None
    assert columns.top_logprobs[1] == {"a": -1.0, "i": -0.5}
    assert columns.text_offset[:7] == [0, 1, 2, 3, 4, 4, 5]


def test_completions_stream(openai_client) -> None:
    """Streamed text equals the whole text, for several prompts at once, prompt by prompt."""
    prompts = ["one", "two", "three"]
    texts = [""] * 6
    for chunk in openai_client.completions.create(model=MODEL, prompt=prompts, n=2, max_tokens=9, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    whole = openai_client.completions.create(model=MODEL, prompt=prompts, n=2, max_tokens=9)
    assert texts == [c.text for c in whole.choices]
    assert len(texts) == 6


def test_models(openai_client) -> None:
    """The list, with drafts and state, and one model by name, also with a slash in it."""
    found = {model.id: model for model in openai_client.models.list()}
    assert found[MODEL].model_extra["state"] == "ready"
    assert found[MODEL].model_extra["drafts"][0]["replica"] == "d1"
    assert openai_client.models.retrieve(MODEL).created == 7
    assert openai_client.models.retrieve("org/gone").model_extra["state"] == "unavailable"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("nobody")


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (CapacityError("no room"), openai.RateLimitError),
        (Unavailable("nobody is there"), openai.InternalServerError),
        (DeadlineExceeded("too late"), openai.InternalServerError),
        (ZeroDivisionError("secret"), openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_token(openai_client, served: Served, error, seen, stream: bool) -> None:
    """An error before the start is an HTTP error, also for streams, and tells no secrets."""
    served.backend.before = error
    with pytest.raises(seen) as caught:
        openai_client.chat.completions.create(model=MODEL, messages=ASK, stream=stream)
    assert "secret" not in str(caught.value)
    assert served.backend.closed == 1


def test_error_in_mid_stream(openai_client, served: Served) -> None:
    """An error after the start arrives as an error event; what came before is kept."""
    served.backend.after = Unavailable("the replica left")
    chunks = []
    with pytest.raises(openai.APIError, match="the replica left") as caught:
        chunks.extend(openai_client.chat.completions.create(model=MODEL, messages=ASK, stream=True))
    assert caught.value.code == "unavailable"
    assert served.backend.closed == 1


async def test_async_client(served: Served) -> None:
    """The async client, streamed and not."""
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        reply = await client.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=7, seed=5)
        assert reply.choices[0].message.content == "Grüße"
        assert reply.model_extra["metrics"]["seed"] == 5
        stream = await client.completions.create(model=MODEL, prompt=[71, 72], stream=True, stop="aus")
        text = "".join([chunk.choices[0].text async for chunk in stream])
        assert text == "Grüße 🌳 "
    assert served.backend.requests[1].tokens == (71, 72)


def test_every_neutral_argument_of_the_client(openai_client) -> None:
    """All the client's own arguments, at values that ask for nothing, pass."""
    reply = openai_client.chat.completions.create(
        model=MODEL,
        messages=ASK,
        frequency_penalty=0,
        presence_penalty=0,
        logit_bias={},
        logprobs=False,
        n=1,
        parallel_tool_calls=True,
        response_format={"type": "text"},
        service_tier="auto",
        stop=None,
        store=False,
        temperature=1,
        tool_choice="none",
        tools=[],
        top_p=1,
        user="me",
        metadata={"run": "1"},
        modalities=["text"],
        verbosity="medium",
        reasoning_effort="none",
    )
    assert reply.choices[0].message.content == SCRIPT
