"""Writing a trained model as an ordinary Hugging Face directory with its card, and reading the card back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from specgrove.core.cards import ModelCard, vocabulary_hash
from specgrove.engine.tokenizer import vocabulary
from specgrove.training.tokenizer import end_ids

CARD_FILE = "card.json"
WEIGHTS_FILE = "model.safetensors"


def weights_digest(directory: Path) -> str:
    """sha256 of the weights file, in hex."""
    return hashlib.sha256((directory / WEIGHTS_FILE).read_bytes()).hexdigest()


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write config, bfloat16 weights, tokenizer and generation settings. Rounds the model's own weights to bfloat16.

    The caller scores the model after this, so that the card speaks about the weights that are on disk.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ends = end_ids(tokenizer)
    model.generation_config = GenerationConfig(eos_token_id=list(ends), pad_token_id=ends[1], do_sample=False)
    model.to(torch.bfloat16)  # type: ignore[arg-type]  # transformers wraps `to` without its types
    model.save_pretrained(directory)
    model.float()
    tokenizer.save_pretrained(directory)
    for file in directory.iterdir():
        file.chmod(0o644)  # safetensors writes for the owner alone, which a wheel would keep


def make_card(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    directory: Path,
    *,
    trained_on: str,
    scores: Mapping[str, float],
    exits: tuple[int, ...] = (),
) -> ModelCard:
    """The card of an exported model; digest from the file on disk."""
    config = model.config
    pairs = list(vocabulary(tokenizer))
    return ModelCard(
        name=name,
        architecture=str(config.model_type),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=int(config.num_hidden_layers),
        hidden_size=int(config.hidden_size),
        vocab_size=len(pairs),
        vocab_hash=vocabulary_hash(pairs),
        weights_digest=weights_digest(directory),
        dtype="bfloat16",
        max_model_len=int(config.max_position_embeddings),
        exits=exits,
        trained_on=trained_on,
        scores=dict(scores),
    )


def write_card(card: ModelCard, directory: Path) -> None:
    """Write card.json beside the weights."""
    text = json.dumps(card.to_mapping(), indent=2, sort_keys=True)
    (directory / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def read_card(directory: Path) -> ModelCard:
    """Read card.json; TypeError names an unknown or missing key."""
    return ModelCard.from_mapping(json.loads((directory / CARD_FILE).read_text(encoding="utf-8")))
