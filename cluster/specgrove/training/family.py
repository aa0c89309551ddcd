"""The bundled family: which models it has, their shapes, and how training time is shared among them.

One tokenizer, two targets of clearly different size, one small sorted draft. Targets are of different architectures on
purpose: the engine has to serve both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen3Config

from specgrove.errors import ConfigError

Architecture = Literal["llama", "qwen3"]
MAX_POSITIONS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of the family and how it is trained."""

    name: str
    architecture: Architecture
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    share: float
    """Part of the family's training time that this model gets; what is left is the plain draft's, see PLAIN."""
    exits: tuple[int, ...] = ()
    """Depths that are trained to be models of their own (papers: Sorted LLaMA, S2D); empty: the full depth alone."""
    tokens_per_step: int = 3072
    """Training tokens in one optimizer step."""
    matrix_rate: float = 0.02
    """Peak learning rate of the matrices inside the layers (orthogonalised momentum)."""
    other_rate: float = 0.01
    """Peak learning rate of embeddings and norms (AdamW)."""


FAMILY: tuple[Member, ...] = (
    Member(
        name="grove-large",
        architecture="qwen3",
        layers=10,
        hidden_size=256,
        intermediate_size=704,
        heads=8,
        kv_heads=4,
        share=0.54,
        other_rate=0.006,
    ),
    Member(
        name="grove-small",
        architecture="llama",
        layers=8,
        hidden_size=192,
        intermediate_size=512,
        heads=6,
        kv_heads=3,
        share=0.22,
    ),
    Member(
        name="grove-draft",
        architecture="llama",
        layers=4,
        hidden_size=128,
        intermediate_size=352,
        heads=4,
        kv_heads=2,
        share=0.12,
        exits=(1, 2, 4),
    ),
)


PLAIN = replace(FAMILY[-1], name="grove-draft-plain", exits=())
"""The draft without sorted training, to compare with: same shape, same samples, same steps. Not part of the family."""


def model_config(member: Member, vocab_size: int, *, eos: int, pad: int) -> PretrainedConfig:
    """The transformers configuration of a member; embeddings are tied, so the head costs no parameters."""
    try:
        kind = {"llama": LlamaConfig, "qwen3": Qwen3Config}[member.architecture]
    except KeyError:
        raise ConfigError(f"no architecture {member.architecture!r} in the family; known: llama, qwen3") from None
    return kind(
        vocab_size=vocab_size,
        hidden_size=member.hidden_size,
        intermediate_size=member.intermediate_size,
        num_hidden_layers=member.layers,
        num_attention_heads=member.heads,
        num_key_value_heads=member.kv_heads,
        head_dim=member.hidden_size // member.heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )


def new_model(config: PretrainedConfig) -> PreTrainedModel:
    """A model with fresh float32 weights, drawn from torch's global generator."""
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model
