"""Parity: everything the bundled family's server emits is the oracle's text. Real Ray, real gRPC, float32.

The short form runs in `make test`. The long form (`make parity`) takes 200 held-out prompts for both targets and kills
draft actors at random moments until 50 kills have hit an outstanding tree. With `--planned` the planner chooses the
trees, which it may choose to leave out: the text is judged as strictly, the trees less so.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import httpx2
import pytest
from tests.live import Live, eventually
from tests.oracle import Asked, Oracle
from tests.parity.judging import NEUTRAL, TOKENS, WAYS, Tally, Way, ask_all, judge

from specgrove import models
from specgrove.client import ChatMessage, Client
from specgrove.engine.inspect import codec
from specgrove.training.records import KINDS, held_out

TARGETS = ("grove-large", "grove-small")
HELD_OUT_SEED = 2026
MIXED = ("count", "echo", "countdown4", "blocks4", "two_step", "sort", "judge_blocks", "greeting")
"""The first kinds of prompts: some that the targets answer differently or drafts guess badly, and some easy ones."""
RESTART_S = 90.0
"""Longest time in which Serve has a killed draft replaced, on a busy machine."""


@dataclass(frozen=True)
class Judge:
    """One target's oracle, its end-of-sequence ids and the prompts."""

    model: str
    oracle: Oracle
    eos: frozenset[int]
    encode: Callable[[Sequence[ChatMessage]], tuple[int, ...]]
    text: Callable[[Sequence[int]], str]

    def prompts(self, count: int) -> list[tuple[int, ...]]:
        """Token ids of held-out prompts."""
        samples = held_out(HELD_OUT_SEED, count, kinds=(*MIXED, *(kind for kind in KINDS if kind not in MIXED)))
        return [self.encode([ChatMessage(**m) for m in sample.messages]) for sample in samples]


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Judge:
    """Each bundled target in turn."""
    path = models.path(request.param)
    text = codec(str(path))
    oracle = Oracle(path, vocab_size=text.vocab_size)
    ends = oracle.model.generation_config.eos_token_id
    eos = frozenset(ends if isinstance(ends, list) else [ends])
    return Judge(request.param, oracle, eos, text.encode_chat, text.decode)


@pytest.fixture
def client(cluster: Live) -> Iterator[Client]:
    """A client of the gRPC door."""
    with cluster.client() as made:
        yield made


Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Put a line into the report of the run, also when the test passes."""

    def write(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return write


def check(tally: Tally, say: Say, planned: bool) -> None:
    """The claims, and that the run was worth something: trees were there, and both luck and bad luck occurred."""
    say(tally.lines())
    assert tally.real == []
    assert tally.near_ties <= max(1, tally.tokens // 100_000)
    if planned:
        assert tally.rounds > 0
        assert tally.committed > tally.rounds
        return
    assert tally.good_rounds >= 0.9 * tally.rounds, tally.lines()
    assert tally.committed >= 2 * tally.rounds, tally.lines()
    assert tally.full > 0
    assert tally.zero > 0


def run_all(client: Client, target: Judge, count: int, *, at_once: int = 2) -> Tally:
    """Every way over `count` prompts."""
    tally = Tally()
    prompts = target.prompts(count)
    for way in WAYS:
        answers = ask_all(client, target.model, prompts, way, at_once=at_once)
        judge(target.oracle, prompts, answers, way, tally, target.eos)
    return tally


def check_stops(client: Client, target: Judge, prompts: Sequence[Sequence[int]]) -> int:
    """Stop strings cut the text exactly where it first holds them, and many of them lie inside accepted runs."""
    inside = 0
    for index, prompt in enumerate(prompts):
        options = NEUTRAL | {"max_tokens": TOKENS, "seed": 1000 + index, "trace": True}
        whole = client.complete(target.model, prompt, **options).choices[0]
        if len(whole.text) < 8:
            continue
        at = len(whole.text) // 2
        stop = whole.text[at : at + 2]
        cut = client.complete(target.model, prompt, stop=stop, **options).choices[0]
        assert cut.text == whole.text[: whole.text.index(stop)]
        assert cut.stop_reason == stop
        assert cut.tokens == whole.tokens[: len(cut.tokens)]
        last = cut.traces[-1]
        inside += len(last.accepted) >= len(last.emitted)
    return inside


def test_short_form(client: Client, target: Judge, say: Say, planned: bool):
    """Greedy and seeded, filters, penalties, three choices: the oracle's text, token by token."""
    check(run_all(client, target, 8), say, planned)


def test_stops_inside_accepted_runs(client: Client, target: Judge):
    """Stop strings whose last token was drafted and accepted."""
    assert check_stops(client, target, target.prompts(10)) > 0


def test_the_judge_rejects_another_target(client: Client, target: Judge):
    """Negative control: the other target's text is not this oracle's."""
    other = next(name for name in TARGETS if name != target.model)
    prompts = target.prompts(4)
    tally = Tally()
    judge(target.oracle, prompts, ask_all(client, other, prompts, WAYS[2]), WAYS[2], tally, target.eos)

    assert tally.real


def lost_trees(cluster: Live) -> int:
    """Outstanding trees that went down with their draft, over all targets."""
    text = httpx2.get(f"{cluster.http}/metrics", timeout=10).text
    return sum(
        int(float(n)) for n in re.findall(r'specgrove:refused_trees_total\{[^}]*reason="lost"[^}]*\} (\S+)', text)
    )


class Killer:
    """Kills the draft actor at random moments, each time as soon as it drafts again."""

    def __init__(self, cluster: Live, seed: int) -> None:
        self.kills = 0
        self.hits = 0
        """Kills that took an outstanding tree with them."""
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The last kill is over, and what comes next has a draft again."""
        self._over.set()
        self._thread.join()
        with self._cluster.client() as client:
            eventually(lambda: all(model.drafts for model in client.models()), within_s=RESTART_S)

    def _run(self) -> None:
        with self._cluster.client() as client:
            while not self._over.is_set():
                if all(model.drafts for model in client.models()):
                    time.sleep(self._rng.uniform(0.05, 1.0))
                    before = lost_trees(self._cluster)
                    self._cluster.kill("draft-grove-draft")
                    self.kills += 1
                    time.sleep(1.0)
                    self.hits += lost_trees(self._cluster) > before
                time.sleep(0.2)


def load_until(
    client: Client,
    target: Judge,
    prompts: Sequence[Sequence[int]],
    enough: Callable[[], bool],
    tally: Tally,
    *,
    at_once: int = 4,
) -> None:
    """Keep several sessions busy until `enough`, judging everything."""
    way = Way("killed drafts", {"temperature": 1.0})
    while not enough():
        answers = ask_all(client, target.model, prompts, way, at_once=at_once, ignore_eos=True)
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            tokens = answer.choices[0].tokens
            assert len(tokens) == TOKENS
            found = target.oracle.differences(prompt, tokens, Asked(temperature=1.0, seed=1000 + index))
            tally.add(f"kill, prompt {index}", found, len(tokens))
            tally.add_rounds(answer.choices[0].traces)


@pytest.mark.timeout(300)
def test_a_killed_draft_costs_no_token(cluster: Live, client: Client, target: Judge):
    """One kill of the draft actor under load: every text is still the oracle's."""
    tally, prompts = Tally(), target.prompts(8)
    with Killer(cluster, seed=1) as killer:
        load_until(client, target, prompts, lambda: killer.kills >= 1, tally)
    once = iter((False, True))
    load_until(client, target, prompts, lambda: next(once), tally)

    assert tally.real == []


@pytest.mark.parity
@pytest.mark.timeout(3600)
def test_long_form(client: Client, target: Judge, say: Say, planned: bool):
    """200 held-out prompts, every way."""
    check(run_all(client, target, 200), say, planned)


@pytest.mark.parity
@pytest.mark.timeout(3600)
def test_long_form_of_stops(client: Client, target: Judge):
    """Stops inside accepted runs on 100 prompts."""
    assert check_stops(client, target, target.prompts(100)) >= 10


@pytest.mark.parity
@pytest.mark.timeout(3600)
def test_fifty_kills(cluster: Live, client: Client, target: Judge, say: Say, planned: bool):
    """The draft actor is killed until 25 kills per target hit an outstanding tree (50 for both).

    A planner asks for few trees when several sessions run, so there is one then.
    """
    tally, prompts = Tally(), target.prompts(16)
    with Killer(cluster, seed=2) as killer:
        load_until(client, target, prompts, lambda: killer.hits >= 25, tally, at_once=1 if planned else 4)
    say(f"{target.model}: {killer.kills} kills, {killer.hits} hit an outstanding tree; {tally.lines()}")

    assert tally.real == []
