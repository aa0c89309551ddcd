"""A cluster without the recommended variables: Serve's Python proxy in front. Everything works, only slower."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from tests.live import Live, eventually, serving, unreadable

from specgrove.config import Config
from specgrove.core.request import Chunk
from specgrove.errors import ModelNotFound

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

MODEL = "grove-large"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The bundled family behind the Python proxy."""
    switches = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}
    with serving(Config.bundled().to_mapping(), tmp_path_factory.mktemp("proxied"), **switches) as live:
        yield live


def test_cancels_right_after_a_message_are_not_lost(proxied: Live):
    """This proxy loses a fifth of them and more by itself, and the replica then works to the end for nobody."""
    with proxied.client() as client:
        for number in range(40):
            asked = {"max_tokens": 400, "temperature": 1.0, "ignore_eos": True}
            with client.generate(MODEL, f"Count from {number}.", **asked) as events:
                for event in events:
                    if isinstance(event, Chunk):
                        break

        def idle() -> bool:
            loads = [load for one in client.models() for load in one.loads]
            return all((load.running, load.waiting, load.kv_slots_used) == (0, 0, 0) for load in loads)

        eventually(idle, within_s=2.5)  # 40 abandoned requests of 400 tokens would take far longer


def test_errors_and_texts_pass_the_proxy(proxied: Live):
    """A failed stream ends with its own error, and drafts are at work."""
    with proxied.client() as client:
        with pytest.raises(ModelNotFound, match="'nope' is not served"):
            client.complete("nope", "x")
        reply = client.complete(MODEL, "Count from 3 to 17.", max_tokens=24, temperature=0.0, ignore_eos=True)

    assert len(reply.choices[0].tokens) == 24
    assert reply.choices[0].stats.num_drafts > 0


def test_what_cannot_be_read_is_an_invalid_argument(proxied: Live):
    """The reason crosses from the proxy to the replica."""
    for what, (code, details) in unreadable(proxied).items():
        assert code is grpc.StatusCode.INVALID_ARGUMENT, what
        assert "cannot be read" in details


def test_the_greeting_names_the_variables_once(proxied: Live):
    """So that somebody can do something about it."""
    eventually(lambda: "Ctrl-C" in proxied.output.read_text(), within_s=30)
    assert proxied.output.read_text().count("RAY_SERVE_ENABLE_HA_PROXY=1") == 1
