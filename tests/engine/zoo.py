"""Tiny random models of every covered architecture, and plain forward passes to compare with."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from specgrove.core.tree import TokenTree
from specgrove.engine.batch import Segment
from specgrove.engine.hooks import NAME, HookedModel
from specgrove.engine.kv_pool import KVPool, KVSequence
from specgrove.engine.kv_store import KVStore
from specgrove.engine.runner import Passes
from specgrove.engine.selfcheck import layer_shapes

VOCAB = 96
CONTEXT = 256

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CONFIGS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=12),
    "gemma3": Gemma3TextConfig(
        **{**SIZES, "num_hidden_layers": 3},
        head_dim=16,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "gpt2": GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, bos_token_id=1, eos_token_id=2
    ),
    "phi3": Phi3Config(**SIZES),
    "olmo2": Olmo2Config(**SIZES),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}


@functools.cache
def model(name: str) -> PreTrainedModel:
    """A tiny random model in float32 with our attention; large weights, so that logits differ clearly."""
    return build(CONFIGS[name])


def build(config: PreTrainedConfig) -> PreTrainedModel:
    """Random weights in float32, our attention."""
    torch.manual_seed(0)
    network: PreTrainedModel = AutoModelForCausalLM.from_config(config, attn_implementation=NAME, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.25 if "embed" not in name else 0.6)
    return network.eval().requires_grad_(False)


def passes(network: PreTrainedModel, slots: int = 512) -> Passes:
    """The engine's forward over a fresh pool."""
    shapes, dtype = layer_shapes(network)
    store = KVStore(shapes, slots, dtype, torch.device("cpu"))
    return Passes(HookedModel(network), KVPool(store), vocab_size=VOCAB, rows_end=CONTEXT)


@torch.inference_mode()
def plain(network: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """Logits [len(tokens), vocab] by the model's own attention, without a cache."""
    network.set_attn_implementation("eager")
    try:
        return network(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0].float()
    finally:
        network.set_attn_implementation(NAME)


@torch.inference_mode()
def plain_last(network: PreTrainedModel, texts: Sequence[Sequence[int]]) -> Tensor:
    """Logits [len(texts), vocab] after each text, as `plain` gives them, in one padded pass (padding comes behind)."""
    width = max(map(len, texts))
    sent = torch.tensor([[*text, *[0] * (width - len(text))] for text in texts])
    network.set_attn_implementation("eager")
    try:
        logits = network(input_ids=sent, use_cache=False).logits.float()
    finally:
        network.set_attn_implementation(NAME)
    return logits[torch.arange(len(texts)), torch.tensor([len(text) - 1 for text in texts])]


def chunk(sequence: KVSequence, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> Segment:
    """Reserve rows for the next tokens of a sequence; all logits unless told otherwise."""
    positions = range(sequence.length, sequence.length + len(tokens))
    sequence.reserve(positions)
    return Segment(sequence, tokens, positions, None, range(len(tokens)) if wanted is None else wanted)


def tree_segment(sequence: KVSequence, pending: int, tree: TokenTree) -> Segment:
    """A pending token and a tree below it, all logits wanted."""
    base = sequence.length + 1
    positions = [base - 1, *tree.positions(base)]
    sequence.reserve(positions)
    mask = np.ones((len(positions), len(positions)), dtype=np.bool_)
    mask[0, 1:] = False
    mask[1:, 1:] = tree.mask()
    return Segment(sequence, [pending, *tree.tokens], positions, mask, range(len(positions)))


def paths(pending: int, tree: TokenTree) -> list[list[int]]:
    """For each row of tree_segment, the tokens from the pending one down to it."""
    return [[pending], *([pending, *(tree.tokens[i] for i in tree.path(n))] for n in range(len(tree)))]


def random_tree(rng: np.random.Generator, size: int) -> TokenTree:
    """A tree of `size` nodes without duplicate siblings, rather deep than wide."""
    tokens: list[int] = []
    parents: list[int] = []
    for node in range(size):
        parent = int(rng.integers(-1 if rng.random() < 0.4 else max(-1, node - 2), node))
        used = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        token = int(rng.integers(3, VOCAB))
        while token in used:
            token = int(rng.integers(3, VOCAB))
        tokens.append(token)
        parents.append(parent)
    return TokenTree(tuple(tokens), tuple(parents))
