"""Logits of a model cut at several depths, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedModel


def exit_logits(model: PreTrainedModel, ids: Tensor, exits: Sequence[int], mask: Tensor | None = None) -> list[Tensor]:
    """Logits of each exit: [rows, length, vocab]. ids: [rows, length]; mask as transformers takes it.

    An exit is the model after so many layers, with the same final norm and head; the carried hidden state is the one
    before the norm (Sorted LLaMA, arXiv 2309.08968).
    """
    body, head = model.model, model.get_output_embeddings()
    layers = model.config.num_hidden_layers
    inner = any(depth < layers for depth in exits)
    out = body(input_ids=ids, attention_mask=mask, use_cache=False, output_hidden_states=inner)
    return [head(out.last_hidden_state if d == layers else body.norm(out.hidden_states[d])) for d in exits]
