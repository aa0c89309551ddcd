"""From a directory to an engine, and one sentence for everything that is wrong with it."""

from __future__ import annotations

import json
import socket

import pytest
import torch
from tests.engine import zoo
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, FalconConfig, LlamaConfig, PreTrainedTokenizerFast

from specgrove.core.sampling import SamplingFields
from specgrove.engine import linear_kernel
from specgrove.engine.batch import Segment
from specgrove.engine.loader import EngineOptions, load
from specgrove.engine.weights import weights_digest
from specgrove.errors import ConfigError, UnsupportedModel


def tokenizer(words: int = 0) -> PreTrainedTokenizerFast:
    """The byte alphabet and two specials, ids 0 to 257."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def write(directory, rows=272, **changes):
    """A tiny llama with `rows` rows of head, of which 258 are tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(**{**zoo.SIZES, "vocab_size": rows, "eos_token_id": 257, **changes})
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    (directory / "generation_config.json").write_text(json.dumps({"temperature": 0.7, "eos_token_id": [257, 5]}))
    return directory


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path_factory):
    """Digests are remembered somewhere else."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model directory."""
    return write(tmp_path_factory.mktemp("tiny"))


def test_engine_of_a_directory(tiny):
    """Card, ids, defaults, budget, and logits without padding columns in float32."""
    engine = load(str(tiny), EngineOptions(max_model_len=100))

    assert (engine.card.vocab_size, engine.vocab_rows, engine.card.max_model_len) == (258, 272, 100)
    assert (
        engine.card.architecture,
        engine.card.dtype,
        engine.card.layers,
        engine.card.hidden_size,
    ) == ("llama", "bfloat16", 2, 32)
    assert SamplingFields(temperature=0.7) == engine.defaults
    assert engine.eos_token_ids == (5, 257)
    assert engine.pool.stats().total == 8 * 100 + 8 * 64
    sequence = engine.pool.open([1, 2, 3])
    logits = engine.prefill(sequence, [1, 2, 3])
    assert ((1, 258), torch.float32) == (tuple(logits.shape), logits.dtype)


def test_padded_vocabularies_pair(tiny, tmp_path):
    """Heads of different size with the same real tokens give the same vocabulary hash."""
    other = load(str(write(tmp_path, rows=320)), EngineOptions())
    card = load(str(tiny), EngineOptions()).card

    assert other.card.vocab_hash == card.vocab_hash
    assert other.card.cannot_draft_for(card) is None
    assert other.card.weights_digest != card.weights_digest


def test_a_sorted_model_can_stop_at_an_exit(tmp_path):
    """Its logits are those of the model cut there, with the same norm and head; other depths are refused."""
    directory = write(tmp_path / "sorted", num_hidden_layers=3)
    (directory / "card.json").write_text(json.dumps({"exits": [1, 3], "scores": {"accuracy_all": 0.5}}))
    whole = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    whole.model.layers, whole.config.num_hidden_layers = whole.model.layers[:1], 1
    ids = [5, 6, 7, 8]

    engine = load(str(directory), EngineOptions(dtype="float32", exit=1))
    sequence = engine.pool.open(())
    sequence.reserve(range(len(ids)))
    logits = engine.forward([Segment(sequence, ids, range(len(ids)), None, range(len(ids)))])

    assert (engine.card.layers, engine.card.exits, engine.card.scores) == (1, (1,), {})
    expected = whole(input_ids=torch.tensor([ids])).logits[0, :, : engine.card.vocab_size]
    assert torch.allclose(logits[:, : engine.card.vocab_size], expected, atol=1e-5)
    with pytest.raises(ConfigError, match="no exit 2; exits on its card: 1, 3"):
        load(str(directory), EngineOptions(exit=2))


@pytest.mark.parametrize(("kind", "likeness"), [("int8", 0.99), ("int4", 0.9)])
def test_weights_can_be_rounded(tiny, kind, likeness):
    """The card says so; logits stay near those of the model as it is; float32 models are refused."""
    if linear_kernel.product(kind) is None:
        pytest.skip("this CPU has no product for them")
    plain, rounded = load(str(tiny), EngineOptions()), load(str(tiny), EngineOptions(quantization=kind))
    found = [engine.prefill(engine.pool.open(()), [5, 6, 7, 8])[0, :200] for engine in (plain, rounded)]

    assert (plain.card.dtype, rounded.card.dtype) == ("bfloat16", kind)
    assert rounded.card.parameters == plain.card.parameters
    assert not torch.equal(*found)
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > likeness
    with pytest.raises(ConfigError, match="dtype: bfloat16"):
        load(str(tiny), EngineOptions(dtype="float32", quantization=kind))


def test_dtype_can_be_chosen(tiny):
    """float32 runs the same weights in another dtype; the digest stays."""
    engine = load(str(tiny), EngineOptions(dtype="float32", kv_slots=64))

    assert ("float32", torch.float32, 64) == (
        engine.card.dtype,
        engine.pool.store.keys[0].dtype,
        engine.pool.stats().total,
    )


def test_digest_is_remembered_until_the_file_changes(tmp_path):
    """Content decides; the note is keyed by path, size and time of change."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"one")
    first = weights_digest([file])
    assert first == weights_digest([file])
    file.write_bytes(b"other")

    assert first != weights_digest([file])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int3"}, "int3"),
        ({"device": "abacus"}, "abacus"),
        ({"device": "cuda:7"}, "cuda:7"),
        ({"max_model_len": 257}, "max_model_len 257 is over the model's 256"),
        ({"kv_slots": 64, "kv_bytes": 64}, "not both"),
        ({"kv_slots": 64, "max_model_len": 100}, "cannot hold a session"),
        ({"kv_bytes": 10}, "holds 0 tokens"),
    ],
)
def test_options_that_cannot_be_honoured(tiny, options, words):
    """Each is named."""
    with pytest.raises(ConfigError, match=words):
        load(str(tiny), EngineOptions(**options))


def test_missing_things_are_named(tiny, tmp_path, monkeypatch):
    """A path that is not there, an empty directory, a file, no weights, and a hub that cannot be reached."""
    with pytest.raises(ConfigError, match=r"model directory \./nowhere does not exist"):
        load("./nowhere", EngineOptions())
    with pytest.raises(ConfigError, match=r"model directory /a/b/c does not exist"):
        load("/a/b/c", EngineOptions())
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        load(str(tmp_path), EngineOptions())
    with pytest.raises(ConfigError, match="is a file"):
        load(str(tiny / "config.json"), EngineOptions())
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no \*\.safetensors files"):
        load(str(tmp_path), EngineOptions())

    def unreachable(*args, **kwargs):
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(socket.socket, "connect", unreachable)
    with pytest.raises(ConfigError, match="no-such-org/no-such-model is no bundled model"):
        load("no-such-org/no-such-model", EngineOptions())


def test_refusal_names_the_architecture(tmp_path):
    """ALiBi goes through attention code of its own."""
    config = FalconConfig(
        vocab_size=272, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, alibi=True, bos_token_id=256,
        eos_token_id=257,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModel, match="FalconForCausalLM cannot be served: it does not use"):
        load(str(tmp_path), EngineOptions())
