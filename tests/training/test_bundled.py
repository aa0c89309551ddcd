"""The bundled family on disk: loads as ordinary models, fits its cards, and answers what it was trained for."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specgrove.core.cards import vocabulary_hash
from specgrove.engine.tokenizer import vocabulary
from specgrove.engine.weights import weights_digest as digest_of_served
from specgrove.errors import ConfigError
from specgrove.models import bundled, path
from specgrove.training.evaluate import accuracy, agreement, answer
from specgrove.training.export import read_card, weights_digest
from specgrove.training.records import KINDS, held_out

NAMES = ["grove-draft", "grove-large", "grove-small"]
SEED = 4
"""Not the seed of the scores on the cards."""


@pytest.fixture(scope="module")
def tokenizer():
    """The bundled tokenizer, through the ordinary door."""
    return AutoTokenizer.from_pretrained(path("grove-large"))


@pytest.fixture(scope="module")
def models():
    """All three, in float32."""
    return {name: AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32) for name in NAMES}


@pytest.fixture(scope="module")
def answered(models, tokenizer):
    """Both targets' greedy answers to three held-out samples of each kind."""
    samples = held_out(SEED, 3 * len(KINDS))
    return {name: answer(models[name], tokenizer, samples) for name in ("grove-large", "grove-small")}


def test_names():
    """What `specgrove serve NAME` knows, and the sentence for what it does not."""
    assert sorted(bundled()) == NAMES
    with pytest.raises(ConfigError, match="grove-large"):
        path("grove-huge")


def test_all_together_are_under_thirty_megabytes():
    """They travel in the repository and in the wheel."""
    sizes = [file.stat().st_size for name in NAMES for file in path(name).rglob("*") if file.is_file()]
    assert sum(sizes) < 30_000_000


@pytest.mark.parametrize("name", NAMES)
def test_card_is_what_is_on_disk(name, models):
    """Digest, sizes and limits are the files' own."""
    card, model = read_card(path(name)), models[name]

    assert card.name == name
    assert card.weights_digest == weights_digest(path(name)) == digest_of_served([path(name) / "model.safetensors"])
    assert card.parameters == sum(p.numel() for p in model.parameters())
    assert (card.layers, card.hidden_size) == (model.config.num_hidden_layers, model.config.hidden_size)
    assert card.max_model_len == model.config.max_position_embeddings == 2048
    assert card.architecture == model.config.model_type
    assert set(model.generation_config.eos_token_id) == {0, 2}
    assert 0.0 <= card.scores["accuracy_all"] <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_vocabularies_are_equal(name):
    """Drafts and targets pair by this hash."""
    own = AutoTokenizer.from_pretrained(path(name))

    assert read_card(path(name)).vocab_hash == vocabulary_hash(vocabulary(own))
    assert read_card(path(name)).cannot_draft_for(read_card(path("grove-large"))) is None


def test_larger_target_solves_most_of_what_it_has_not_seen(answered):
    """Measured on many more: see docs/family.md; the thresholds leave room for this small sample."""
    assert accuracy(answered["grove-large"])["all"] >= 0.8
    assert accuracy(answered["grove-large"])["all"] > accuracy(answered["grove-small"])["all"]


@pytest.mark.parametrize("target", ["grove-large", "grove-small"])
def test_draft_agrees_with_targets(target, models, answered):
    """The share of a target's greedy tokens that the draft would have proposed; speculation lives from it."""
    exits = read_card(path("grove-draft")).exits
    shares = agreement(models["grove-draft"], answered[target], exits)

    assert exits == (1, 2, 4)
    assert shares[0] >= 0.8
    assert shares[1] >= 0.9
    assert shares[2] >= 0.93
    assert shares[0] < shares[2]
