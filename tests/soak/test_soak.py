"""Sixteen clients with random cancels: no lost or mixed reply, books balanced, memory flat."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.live import Live, eventually

from specgrove.client import ChatMessage, Client, Speculation
from specgrove.core.request import Chunk, Finished
from specgrove.training.records import held_out

CLIENTS = 16
TARGETS = ("grove-large", "grove-small")
SETTLE_S = 20.0
"""Caches and pools have their size after so long; memory is compared from then on."""
GROWTH_MB = 64
"""Python's and glibc's arenas breathe by this much; a leak of one KV sequence per request would be far over it."""

Key = tuple[str, int]


class Soak:
    """What all clients share."""

    def __init__(self, cluster: Live, expected: dict[Key, str], prompts: list[list[ChatMessage]], until: float) -> None:
        self.cluster, self.expected, self.prompts, self.until = cluster, expected, prompts, until
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def run(self, number: int) -> None:
        """One client: requests until the time is over, about every third one cancelled at a random event."""
        rng = random.Random(number)
        with self.cluster.client() as client:
            while time.monotonic() < self.until:
                key = (rng.choice(TARGETS), rng.randrange(len(self.prompts)))
                cancel_after = rng.randrange(0, 9) if rng.random() < 0.35 else None
                outcome = self._request(client, key, cancel_after)
                with self._lock:
                    self.counts[outcome] += 1

    def _request(self, client: Client, key: Key, cancel_after: int | None) -> str:
        text, ended = "", False
        with client.generate(key[0], self.prompts[key[1]], **options(key)) as stream:
            for number, event in enumerate(stream):
                if isinstance(event, Chunk):
                    text += event.text
                ended = isinstance(event, Finished)
                if cancel_after is not None and number >= cancel_after and not ended:
                    if not self.expected[key].startswith(text):
                        self.wrong.append(f"{key}: {text!r}")
                    return "cancelled"
        if not ended or text != self.expected[key]:
            self.wrong.append(f"{key}: {text!r}")
        return "finished"


def options(key: Key) -> dict[str, float]:
    """Sampling of a request; its text follows from the key."""
    return {"max_tokens": 64, "temperature": 0.9, "seed": 77 + key[1]}


def resident_mb(cluster: Live) -> dict[str, float]:
    """Resident memory of every replica process, by deployment."""
    out = {}
    for name in (*(f"target-{t}" for t in TARGETS), "draft-grove-draft", "ingress"):
        for one in cluster.replicas(name):
            fields = Path(f"/proc/{one.pid}/statm").read_text().split()
            out[f"{name}/{one.pid}"] = int(fields[1]) * 4096 / 2**20
    return out


def soak(cluster: Live, seconds: float) -> tuple[Soak, dict[str, float]]:
    """Run the clients; returns what they saw and how much each process grew (MiB)."""
    prompts = [[ChatMessage(**m) for m in sample.messages] for sample in held_out(5, 12)]
    with cluster.client() as client:
        expected = {
            (model, i): client.complete(model, prompt, speculation=Speculation(mode="off"), **options((model, i))).text
            for model in TARGETS
            for i, prompt in enumerate(prompts)
        }
    shared = Soak(cluster, expected, prompts, time.monotonic() + seconds)
    threads = [threading.Thread(target=shared.run, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(min(SETTLE_S, seconds / 2))
    before = resident_mb(cluster)
    for thread in threads:
        thread.join()
    after = resident_mb(cluster)
    return shared, {name: after[name] - before[name] for name in before}


def idle(client: Client) -> bool:
    """No replica holds anything."""
    loads = [load for model in client.models() for load in model.loads]
    return all((load.running, load.waiting, load.kv_slots_used) == (0, 0, 0) for load in loads)


def check(cluster: Live, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    """The claims."""
    shared, growth = soak(cluster, seconds)
    with capsys.disabled():
        sys.stdout.write(f"\n{dict(shared.counts)}, growth in MiB: { {k: round(v, 1) for k, v in growth.items()} }\n")
    assert shared.wrong == []
    assert shared.counts["finished"] > 0
    assert shared.counts["cancelled"] > 0
    with cluster.client() as client:
        eventually(lambda: idle(client), within_s=15)
    assert max(growth.values()) < GROWTH_MB


@pytest.mark.timeout(180)
def test_short_soak(cluster: Live, capsys: pytest.CaptureFixture[str]):
    """A quarter of a minute in every test run."""
    check(cluster, 15.0, capsys)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_minutes(cluster: Live, capsys: pytest.CaptureFixture[str]):
    """The two minutes of the release criteria."""
    check(cluster, 120.0, capsys)
