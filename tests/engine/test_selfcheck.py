"""Models that the hooks would compute wrongly are refused at load, with the reason."""

from __future__ import annotations

import pytest
import torch
from tests.engine import zoo
from transformers import (
    BloomConfig,
    Gemma2Config,
    GPTNeoXConfig,
    GptOssConfig,
    JambaConfig,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    OPTConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    T5Config,
)

from specgrove.engine import attention, selfcheck
from specgrove.errors import UnsupportedModel

SIZES = zoo.SIZES


def verdict(config: PreTrainedConfig) -> str:
    """The reason for which a tiny model of this configuration is refused, or "served"."""
    reason = selfcheck.refusal(config)
    if reason is not None:
        return reason
    network = zoo.build(config)
    try:
        layers, dtype = selfcheck.layer_shapes(network)
        selfcheck.probe(network, layers, dtype, zoo.VOCAB)
    except UnsupportedModel as error:
        return error.message
    return "served"


REFUSED = {
    "encoder-decoder": (T5Config(vocab_size=96, d_model=32, d_ff=48, num_layers=1, num_heads=4), "encoder-decoder"),
    "recurrent": (MambaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=4), "linear_attention"),
    "hybrid jamba": (
        JambaConfig(**SIZES, attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4, use_mamba_kernels=False),
        "layers of type|hybrid|recurrent",
    ),
    "hybrid recurrent gemma": (
        RecurrentGemmaConfig(**SIZES, head_dim=8, attention_window_size=16, block_types=("recurrent", "attention")),
        "layers of type|hybrid|recurrent",
    ),
    "hybrid qwen3-next": (
        Qwen3NextConfig(**SIZES, head_dim=16, layer_types=["linear_attention", "full_attention"]),
        "linear_attention",
    ),
    "chunked llama4": (
        Llama4TextConfig(**SIZES, layer_types=["chunked_attention", "full_attention"]),
        "chunked_attention",
    ),
    "attention sinks": (
        GptOssConfig(**SIZES, head_dim=8, num_local_experts=2, layer_types=["full_attention"] * 2),
        "s_aux",
    ),
    "soft cap": (Gemma2Config(**SIZES, head_dim=8, sliding_window=8), "softcap"),
    "alibi bloom": (
        BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4),
        "attention interface",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """Recurrent, hybrid and encoder-decoder models, sinks, soft caps and ALiBi."""
    config, reason = REFUSED[name]
    told = verdict(config)

    assert any(part in told for part in reason.split("|")), told


@pytest.mark.parametrize("name", sorted(zoo.CONFIGS))
def test_served(name):
    """Negative control of the refusals: what parity tests cover passes the probe."""
    assert verdict(zoo.CONFIGS[name]) == "served"


def test_more_served():
    """Learned positions with an offset, and rotary embeddings on a part of each head."""
    sizes = {"vocab_size": 96, "max_position_embeddings": 256, "hidden_size": 32, "num_hidden_layers": 2}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    opt = OPTConfig(**sizes, **ends, ffn_dim=48, num_attention_heads=4, word_embed_proj_dim=32)
    neox = GPTNeoXConfig(**sizes, **ends, intermediate_size=48, num_attention_heads=4)

    assert (verdict(opt), verdict(neox)) == ("served", "served")


def test_the_probe_sees_a_forgotten_window(monkeypatch):
    """Negative control: with windows ignored, mistral is refused."""
    monkeypatch.setattr(attention.AttentionPlan, "_narrowed", staticmethod(lambda span, window: False))

    assert "differ" in verdict(zoo.CONFIGS["mistral"])


def test_the_probe_sees_a_wrong_tree_mask(monkeypatch):
    """Negative control: with siblings visible to each other, llama is refused."""
    seen = attention.Span.visible
    monkeypatch.setattr(attention.Span, "visible", lambda self, w: None if self.n == 6 else seen(self, w))

    assert "differ" in verdict(zoo.CONFIGS["llama"])


def test_the_probe_leaves_the_model_as_it_was():
    """Windows are narrowed for the probe alone, and our attention stays selected."""
    network = zoo.build(zoo.CONFIGS["mistral"])
    layers, dtype = selfcheck.layer_shapes(network)
    selfcheck.probe(network, layers, dtype, zoo.VOCAB)

    assert (network.config.sliding_window, network.config._attn_implementation) == (12, "specgrove")


def test_bfloat16_passes_and_its_tolerance_still_tells(monkeypatch):
    """Rounding is well under the tolerance of bfloat16, a wrong mask is over it."""
    network = zoo.build(zoo.CONFIGS["llama"]).to(torch.bfloat16)
    layers, dtype = selfcheck.layer_shapes(network)
    assert selfcheck.probe(network, layers, dtype, zoo.VOCAB) < 0.03
    seen = attention.Span.visible
    monkeypatch.setattr(attention.Span, "visible", lambda self, w: None if self.n == 6 else seen(self, w))
    with pytest.raises(UnsupportedModel, match="differ"):
        selfcheck.probe(network, layers, dtype, zoo.VOCAB)


def test_rope_that_depends_on_the_batch_limits_the_context():
    """Dynamic scaling would mix sessions of one pass; below the original length nothing is scaled."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}

    assert selfcheck.longest_context(LlamaConfig(**SIZES, rope_parameters=rope)) == 64
    assert selfcheck.longest_context(LlamaConfig(**SIZES)) == 256
