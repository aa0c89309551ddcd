"""Which target takes a request, and which targets a draft serves: pure decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgrove.core.cards import Load, ModelCard, ReplicaCard
from specgrove.router.replicas import Candidate, cannot_draft_for, serving, shortest_wait, to_dial, unreachable

MODEL = ModelCard(
    name="m", architecture="llama", parameters=1, layers=1, hidden_size=1, vocab_size=1, vocab_hash="v",
    weights_digest="w", dtype="float32", max_model_len=16,
)  # fmt: skip
TARGET = ReplicaCard(
    replica="t", role="target", pool="main", model=MODEL, served_names=("m", "alias"), draft_pools=("fast",)
)
DRAFT = ReplicaCard(replica="d", role="draft", pool="fast", model=MODEL, draft_pools=("fast",))


def target(name: str, **load: object) -> Candidate:
    """A target replica with this load."""
    return Candidate(replace(TARGET, replica=name), Load(**load))  # type: ignore[arg-type]


def picked(
    *candidates: Candidate, in_flight: dict[str, int] | None = None, exclude: tuple[str, ...] = (), **more: Any
) -> str | None:
    """Name of the chosen replica."""
    chosen = shortest_wait("m", candidates, in_flight=in_flight or {}, exclude=exclude, **more)
    return chosen.card.replica if chosen else None


def test_the_shortest_queue_wins():
    """Running and waiting requests count alike."""
    assert picked(target("a", running=2), target("b", running=1), target("c", waiting=3)) == "b"


def test_own_requests_count_before_they_are_reported():
    """A burst between two heartbeats spreads over the replicas."""
    assert picked(target("a"), target("b"), in_flight={"a": 1}) == "b"
    assert picked(target("a", running=5), target("b", running=2), in_flight={"a": 1, "b": 2}) == "b"


def test_ties_go_to_fewer_queued_tokens_then_less_cache_then_the_name():
    """Deterministic, whatever the order of the candidates."""
    assert picked(target("a", queued_tokens=9), target("b", queued_tokens=1)) == "b"
    assert picked(target("a", kv_slots_used=9, kv_slots_total=10), target("b", kv_slots_total=10)) == "b"
    assert picked(target("b"), target("a")) == "a"


def test_a_replica_that_holds_the_prompt_is_preferred_until_its_queue_is_longer():
    """What it saves against what is in front of it, both in tokens."""
    held = {"b": 0.9}
    assert picked(target("a"), target("b", running=1), prompt_tokens=1000, held=held) == "b"
    assert picked(target("a"), target("b", running=40), prompt_tokens=1000, held=held) == "a"
    assert picked(target("a"), target("b", queued_tokens=5000), prompt_tokens=1000, held=held) == "a"
    assert picked(target("a"), target("b", running=1), prompt_tokens=10, held=held) == "a"


def test_a_long_queue_of_prompts_counts_more_than_one_request():
    """One request with a huge prompt in front is a longer wait than two short ones."""
    assert picked(target("a", waiting=1, queued_tokens=5000), target("b", running=2)) == "b"


def test_draining_excluded_and_other_models_are_no_candidates():
    """None when nobody is left."""
    assert picked(target("a", draining=True), target("b", running=9)) == "b"
    assert picked(target("a"), target("b", running=9), exclude=("a",)) == "b"
    assert picked(target("a", draining=True)) is None
    assert shortest_wait("other", [target("a")], in_flight={}) is None
    assert shortest_wait("m", [Candidate(DRAFT, Load())], in_flight={}) is None


def test_every_served_name_finds_the_replica():
    """Draining replicas still count as serving the model."""
    assert [one.card.replica for one in serving("alias", [target("b", draining=True), target("a")])] == ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=6), st.randoms())
def test_the_choice_is_the_least_and_ignores_order(loads: list[tuple[int, int, bool]], random):
    """No replica that may serve has fewer requests than the chosen one."""
    candidates = [target(f"r{i}", running=r, waiting=w, draining=d) for i, (r, w, d) in enumerate(loads)]
    first = picked(*candidates)
    random.shuffle(candidates)

    assert picked(*candidates) == first
    live = [one for one in candidates if not one.load.draining]
    assert (first is None) == (not live)
    if first is not None:
        chosen = next(one for one in live if one.card.replica == first)
        assert all(chosen.load.running + chosen.load.waiting <= one.load.running + one.load.waiting for one in live)


@pytest.mark.parametrize(
    ("change", "allowed", "words"),
    [
        ({"draft_pools": ()}, (), "takes no drafts"),
        ({"draft_pools": ("other",)}, (), "takes no drafts of pool fast"),
        ({"protocol_version": 99}, (), "protocol versions differ"),
        ({"noise_version": 99}, (), "noise versions differ"),
        ({"model": replace(MODEL, vocab_hash="w")}, (), "different vocabularies"),
        ({}, ("other",), "serves only other"),
        ({"node": "10.0.0.9", "speculate_address": "127.0.0.1:22000"}, (), "set listeners.replica_host: node"),
    ],
)
def test_pairs_that_cannot_be(change: dict[str, object], allowed: tuple[str, ...], words: str):
    """The reason is a sentence; the same target without the change is dialled."""
    one = replace(TARGET, **change)  # type: ignore[arg-type]

    assert words in (cannot_draft_for(DRAFT, one, allowed=allowed) or "")
    assert to_dial(DRAFT, [Candidate(one, Load())], allowed=allowed) == {}
    assert cannot_draft_for(DRAFT, TARGET) is None


def test_loopback_is_reached_on_the_same_node_only():
    """Two nodes need listeners on addresses that both can reach."""
    assert unreachable("127.0.0.1:1", node="a", here="b") is not None
    assert unreachable("localhost:1", node="a", here="b") is not None
    assert unreachable("127.0.0.1:1", node="a", here="a") is None
    assert unreachable("10.0.0.1:1", node="a", here="b") is None


def test_a_draft_dials_draining_targets_too():
    """Their live sessions still gain; drafts are never dialled."""
    found = to_dial(DRAFT, [target("a", draining=True), target("b"), Candidate(DRAFT, Load())], allowed=("main",))

    assert set(found) == {"a", "b"}
