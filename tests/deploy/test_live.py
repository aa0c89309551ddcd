"""The whole server: real drafts and targets, over Ray and gRPC, through both doors."""

from __future__ import annotations

import concurrent.futures
import json
import urllib.error
import urllib.request
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.live import Live, eventually, unreadable

from specgrove.cli.commands import run
from specgrove.cli.greeting import QUESTION
from specgrove.client import Client
from specgrove.core.request import Chunk, Speculation, Started
from specgrove.errors import ModelNotFound, RequestError

MODEL = "grove-large"
PROMPT = "Count from 3 to 17."


def post(cluster: Live, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(status, reply) of a JSON request."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{cluster.http}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def get(cluster: Live, path: str) -> str:
    """The text of a page."""
    with urllib.request.urlopen(f"{cluster.http}{path}", timeout=60) as reply:
        return str(reply.read().decode())


def idle(client: Client) -> bool:
    """No target runs, holds or waits for anything, and no draft keeps a session."""
    loads = [load for model in client.models() for load in model.loads]
    return all((load.running, load.waiting, load.kv_slots_used) == (0, 0, 0) for load in loads)


def test_both_doors_give_the_same_text_with_and_without_drafts(cluster: Live):
    """Same seed, same text: the promise, through HTTP and gRPC, with the drafts at work."""
    asked = {"model": MODEL, "prompt": PROMPT, "max_tokens": 48, "temperature": 0.8, "seed": 11, "ignore_eos": True}
    with cluster.client() as client:
        fields = {key: value for key, value in asked.items() if key not in ("model", "prompt")}
        drafted = client.complete(MODEL, PROMPT, **fields)
        plain = client.complete(MODEL, PROMPT, speculation=Speculation(mode="off"), **fields)
    status, web = post(cluster, "/v1/completions", asked)

    assert status == 200
    assert drafted.text == plain.text == web["choices"][0]["text"]
    assert drafted.choices[0].stats.num_drafts > 0
    assert plain.choices[0].stats.num_drafts == 0


@pytest.mark.parametrize("model", ["grove-large", "grove-small"])
def test_one_draft_serves_both_targets(cluster: Live, model: str):
    """And the list of models says so."""
    with cluster.client() as client:
        reply = client.complete(model, PROMPT, max_tokens=24, temperature=0.0, ignore_eos=True)
        served = {one.name: one for one in client.models()}

    assert reply.choices[0].stats.num_drafts > 0
    assert [draft.pool for draft in served[model].drafts] == ["grove-draft"]
    assert set(served) == {"grove-large", "grove-small"}


def test_a_cancel_right_after_a_message_frees_the_session(cluster: Live):
    """At once, also when it comes while the next message is written."""
    with cluster.client() as client:
        for number in range(20):
            with client.generate(
                MODEL, f"{PROMPT} {number}", max_tokens=200, temperature=1.0, ignore_eos=True
            ) as events:
                for event in events:
                    if isinstance(event, Chunk):
                        break
        eventually(lambda: idle(client), within_s=3.0)  # loads are reported once a second


def test_an_abandoned_http_stream_frees_the_session(cluster: Live):
    """A browser that is closed says nothing more."""
    body = {"model": MODEL, "prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True}
    for _ in range(5):
        request = urllib.request.Request(
            f"{cluster.http}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.readline()

    with cluster.client() as client:
        eventually(lambda: idle(client), within_s=3.0)


def test_errors_through_both_doors(cluster: Live):
    """Typed, with the field that is to blame."""
    with cluster.client() as client:
        with pytest.raises(ModelNotFound, match="'nope' is not served"):
            client.complete("nope", "x")
        with pytest.raises(RequestError) as caught:
            client.complete(MODEL, "x" * 5000)
    status, reply = post(cluster, "/v1/completions", {"model": "nope", "prompt": "x"})

    assert caught.value.param
    assert (status, reply["error"]["code"]) == (404, "model_not_found")


def test_what_cannot_be_read_is_an_invalid_argument(cluster: Live):
    """Bytes that are no message, and a message over the limit, through Serve's gRPC port."""
    for what, (code, details) in unreadable(cluster).items():
        assert code is grpc.StatusCode.INVALID_ARGUMENT, what
        assert "cannot be read" in details
    with cluster.client() as client, pytest.raises(RequestError, match="at most 2097152"):
        client.tokenize(MODEL, "x" * 2_100_000)


def test_a_long_text_disturbs_nobody(cluster: Live):
    """A second and more of work for the tokenizer, while streams and drafts of that target go on."""
    quiet = {"max_tokens": 1, "temperature": 0.0, "speculation": Speculation(mode="off")}
    with cluster.client() as client, concurrent.futures.ThreadPoolExecutor() as threads:
        long = threads.submit(client.tokenize, MODEL, "hello " * 330_000)
        answered = 0
        while not long.done():
            client.complete(MODEL, (5, 6, 7), **quiet)
            answered += 1

    assert len(long.result()) > 300_000
    assert answered > 3


def test_metrics_gather_all_replicas(cluster: Live):
    """Targets and draft in one text, each family once."""
    text = get(cluster, "/metrics")

    for deployment in ("target-grove-large", "target-grove-small", "draft-grove-draft"):
        assert f'replica="{deployment}#' in text
    helps = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert len(helps) == len(set(helps))
    assert "vllm:spec_decode_num_accepted_tokens_total" in helps


def test_health_and_reflection(cluster: Live):
    """The standard services on Serve's port."""
    assert "ok" in get(cluster, "/health")
    with grpc.insecure_channel(cluster.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=20)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=20)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answer = next(stub.ServerReflectionInfo(iter([ask]), timeout=20))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    names = {one.name for one in answer.list_services_response.service}
    assert {"specgrove.v1.GenerationService", "grpc.health.v1.Health"} <= names


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["generate", PROMPT, "--max-tokens", "16", "--seed", "1"], ""),
        (["generate", QUESTION, "--chat", "--temperature", "0", "--show-tree"], "nodes by draft-grove-draft#"),
        (["models"], "grove-small"),
        (["doctor"], "grove-large: ready, 1 replicas, 1 drafts connected"),
        (
            ["eval", "family", "--count", "2", "--kind", "one_step", "--model", "grove-large", "--search", "1"],
            "searched",
        ),
    ],
)
def test_the_command_line_against_it(cluster: Live, command: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """Each command that calls a server."""
    assert run([*command, "--server", cluster.grpc]) == 0
    assert words in capsys.readouterr().out


def test_it_greeted_with_a_completion(cluster: Live):
    """What a newcomer sees: addresses, a first completion with its figures, how to call it."""
    eventually(lambda: "Ctrl-C" in cluster.output.read_text(), within_s=30)
    shown = cluster.output.read_text()

    assert f"{cluster.http}/v1" in shown
    assert "rounds had a tree" in shown
    assert "curl http" in shown
    assert "Traceback" not in shown


@pytest.mark.timeout(240)
def test_a_killed_draft_costs_time_not_tokens(cluster: Live):
    """In the middle of a stream; Serve then starts another one, and the targets get it back."""
    asked = {"max_tokens": 120, "temperature": 0.7, "seed": 5, "ignore_eos": True}
    with cluster.client() as client:
        expected = client.complete(MODEL, PROMPT, speculation=Speculation(mode="off"), **asked).text
        before = {draft.replica for one in client.models() for draft in one.drafts}

        text, killed = "", False
        with client.generate(MODEL, PROMPT, **asked) as events:
            for event in events:
                if isinstance(event, Started):
                    continue
                if isinstance(event, Chunk):
                    text += event.text
                if not killed and len(text) > 20:
                    cluster.kill("draft-grove-draft")
                    killed = True

        assert killed
        assert text == expected
        eventually(
            lambda: all(one.drafts and not before & {d.replica for d in one.drafts} for one in client.models()), 180
        )
        assert client.complete(MODEL, PROMPT, **asked).choices[0].stats.num_drafts > 0
