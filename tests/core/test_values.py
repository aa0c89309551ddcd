"""Cards, sampling parameters, counts and errors as values."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from specgrove import errors
from specgrove.core.cards import ModelCard, ReplicaCard, vocabulary_hash
from specgrove.core.request import SpeculationStats
from specgrove.core.sampling import SamplingFields, SamplingParams

CARD = ModelCard(
    name="small", architecture="LlamaForCausalLM", parameters=10, layers=2, hidden_size=8, vocab_size=3,
    vocab_hash="ab", weights_digest="cd", dtype="float32", max_model_len=64, exits=(1, 2), scores={"loss": 1.5},
)  # fmt: skip


def test_vocabulary_hash_is_of_the_set():
    """Order does not count; ids, bytes and the border between tokens do."""
    pairs = [(0, b"a"), (1, b"bc"), (2, b"")]
    assert vocabulary_hash(reversed(pairs)) == vocabulary_hash(pairs)
    others = ([(0, b"ab"), (1, b"c"), (2, b"")], [(0, b"a"), (1, b"bc"), (3, b"")], pairs[:2])
    assert len({vocabulary_hash(other) for other in (pairs, *others)}) == 4


def test_cards_survive_json():
    """to_mapping and from_mapping are inverse, also through JSON; an unknown key is refused by name."""
    replica = ReplicaCard(
        replica="t-0", role="target", pool="t", model=CARD, served_names=("small",), draft_pools=("d",), node="n"
    )
    assert ReplicaCard.from_mapping(json.loads(json.dumps(replica.to_mapping()))) == replica
    assert ModelCard.from_mapping(json.loads(json.dumps(CARD.to_mapping()))) == CARD
    with pytest.raises(TypeError, match="colour"):
        ModelCard.from_mapping(CARD.to_mapping() | {"colour": "red"})
    with pytest.raises(TypeError, match="vocab_hash"):
        ModelCard.from_mapping({k: v for k, v in CARD.to_mapping().items() if k != "vocab_hash"})


def test_pairing_needs_one_vocabulary():
    """Equal hashes pair whatever the sizes; different ones give a sentence that names both models."""
    assert replace(CARD, name="draft", layers=1).cannot_draft_for(CARD) is None
    why = replace(CARD, name="stranger", vocab_hash="zz").cannot_draft_for(CARD)
    assert why is not None
    assert "stranger" in why
    assert "small" in why


def test_sampling_resolution():
    """Request first, then the model's defaults, then neutral values; zero is a value and not unset."""
    defaults = SamplingFields(temperature=0.7, top_p=0.8, top_k=20)
    got = SamplingParams.resolve(SamplingFields(temperature=0.0, top_k=0), defaults, seed=9, min_tokens=2)
    assert got == SamplingParams(temperature=0.0, top_k=0, top_p=0.8, seed=9, min_tokens=2)
    assert SamplingParams.resolve(SamplingFields(seed=5), defaults, seed=9).seed == 5
    assert SamplingParams.resolve(SamplingFields(), SamplingFields(), seed=1) == SamplingParams(seed=1)


def test_stats_add_up():
    """Counts of two choices, acceptance by position of different depth included."""
    one = SpeculationStats(
        rounds=2, num_drafts=1, num_draft_tokens=4, num_accepted_tokens=3, accepted_per_pos=[1, 1, 1]
    )
    one.add(SpeculationStats(rounds=1, num_drafts=1, num_draft_tokens=2, num_accepted_tokens=1, accepted_per_pos=[1]))
    one.add(SpeculationStats(stale_trees=2))
    assert (one.rounds, one.num_drafts, one.num_draft_tokens, one.num_accepted_tokens) == (3, 2, 6, 4)
    assert one.accepted_per_pos == [2, 1, 1]
    assert one.stale_trees == 2


def test_error_codes_are_unique():
    """Every error class that can be rebuilt has its own code, and keeps message and field."""
    assert all(cls.code == code for code, cls in errors.ERRORS.items())
    error = errors.ERRORS["invalid_request"]("top_p must be between 0 and 1", param="top_p")
    assert (error.message, error.param, error.retryable) == ("top_p must be between 0 and 1", "top_p", False)
    assert errors.ERRORS["capacity"].retryable
    lost = errors.ReplicaLost("t-0", 17)
    assert (lost.replica, lost.tokens, lost.retryable) == ("t-0", 17, True)
