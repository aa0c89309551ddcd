"""The two hooks into transformers: an attention function over the pool, and a cache that writes into it.

Everything that depends on how transformers 5.24 names and calls things is here. Models call `cache.update(keys, values,
layer)` and then the attention function of the same layer; both find the pass that runs in this thread.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache

from specgrove.engine.attention import AttentionPlan
from specgrove.engine.kv_store import KVStore, LayerShape
from specgrove.errors import UnsupportedModel

NAME = "specgrove"
_thread = threading.local()

OWN_ATTENTION = "it does not use the attention interface of transformers (recurrent, or attention code of its own)"
_NEUTRAL = {"softcap", "s_aux", "position_bias", "sinks", "head_mask", "attention_bias"}
"""Arguments that change the scores in a way we do not compute; only None is taken."""


class PoolCache(Cache):
    """Writes the new rows of a pass into the pool. `get_seq_length` is 0: positions are always given explicitly."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(layers=[])
        self.store = store
        self.plan: AttentionPlan | None = None
        self.layer = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """key_states and value_states are [1, kv_heads, total, d]."""
        assert self.plan is not None
        self.layer, write, rows = layer_idx, self.plan.write, self.plan.rows
        keys, values = self.store.keys[layer_idx], self.store.values[layer_idx]
        if key_states.shape[2] > rows:
            key_states, value_states = key_states[:, :, :rows], value_states[:, :, :rows]
        if isinstance(write, slice):
            keys[write] = key_states[0].transpose(0, 1)
            values[write] = value_states[0].transpose(0, 1)
        else:
            keys.index_copy_(0, write, key_states[0].transpose(0, 1))
            values.index_copy_(0, write, value_states[0].transpose(0, 1))
        return key_states, value_states

    def attend(self, query: Tensor, scale: float | None, window: int | None) -> Tensor:
        """Attention of the layer that was updated last."""
        assert self.plan is not None
        store, layer, rows = self.store, self.layer, self.plan.rows
        filling = query.shape[2] - rows
        query = query[:, :, :rows] if filling else query
        out = self.plan.attend(query, store.keys[layer], store.values[layer], scale, window)
        return torch.nn.functional.pad(out, (0, 0, 0, 0, 0, filling)) if filling else out

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Only asked for a mask that is thrown away."""
        return query_length, 0


class ShapeCache(Cache):
    """Records the shapes of keys and values, and refuses what the hooks would compute wrongly."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.shapes: dict[int, LayerShape] = {}
        self.dtype = torch.float32
        self.fault = ""
        self._open: int | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Note one layer; its attention call must follow before the next update."""
        if self._open is not None:
            self.fault = self.fault or OWN_ATTENTION
        if layer_idx in self.shapes:
            self.fault = self.fault or f"layer {layer_idx} keeps more than one pair of keys and values"
        self._open = layer_idx
        self.shapes[layer_idx] = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        self.dtype = key_states.dtype
        return key_states, value_states

    def note(self, query: Tensor, mask: Tensor | None, options: dict[str, Any]) -> Tensor:
        """One attention call; returns zeros of the right shape [1, total, heads, d]."""
        if self._open is None:
            self.fault = self.fault or "a layer attends without writing keys of its own (shared or cross attention)"
            return query.transpose(1, 2)
        shape = self.shapes[self._open]
        self._open = None
        used = sorted(k for k in _NEUTRAL if options.get(k) is not None)
        if used:
            self.fault = self.fault or f"its attention uses {', '.join(used)}"
        if mask is not None or options.get("is_causal") is False:
            self.fault = self.fault or "its attention takes a mask of its own"
        if query.shape[1] % shape.kv_heads:
            self.fault = self.fault or f"{query.shape[1]} query heads do not divide by {shape.kv_heads} key heads"
        return query.new_zeros(1, query.shape[2], query.shape[1], shape.value_dim)

    def finish(self) -> list[LayerShape]:
        """Shapes in layer order. Raises UnsupportedModel."""
        if not self.fault and not self.shapes:
            self.fault = OWN_ATTENTION
        if not self.fault and (self._open is not None or sorted(self.shapes) != list(range(len(self.shapes)))):
            self.fault = "only some of its layers use the attention interface of transformers (hybrid)"
        if self.fault:
            raise UnsupportedModel(self.fault)
        return [self.shapes[i] for i in range(len(self.shapes))]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Only asked for a mask that is thrown away."""
        return query_length, 0


def _attention(
    module: torch.nn.Module,
    query: Tensor,  # [1, heads, total, d]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The hook: keys and values are read from the pool, so the ones passed in are not used."""
    cache: PoolCache | ShapeCache = _thread.cache
    if isinstance(cache, PoolCache):
        return cache.attend(query, scaling, sliding_window), None
    return cache.note(query, attention_mask, options), None


def _no_mask(*_: Any, **__: Any) -> None:
    """Masks are made in attention.py, once per pass."""


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)


class HookedModel:
    """Calls a model with our cache: the one place that knows the names of its arguments.

    size_for: rows that a pass over so many is filled up to.
    """

    def __init__(self, model: PreTrainedModel, size_for: Callable[[int], int] = int) -> None:
        self.model, self._size_for = model, size_for
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._slices = "logits_to_keep" in names

    def __call__(
        self,
        tokens: Tensor,  # [1, total]
        positions: Tensor,  # [1, total]
        keep: Tensor,  # [m] rows whose logits are wanted
        cache: PoolCache | ShapeCache,
    ) -> Tensor:
        """Logits [m, vocab rows] in the model's dtype."""
        options: dict[str, Any] = {self._cache_name: cache, "use_cache": True}
        filling = self._size_for(tokens.shape[1]) - tokens.shape[1]
        if filling:  # any token, anywhere: the hooks drop what comes of it
            tokens, positions = (torch.nn.functional.pad(each, (0, filling)) for each in (tokens, positions))
        if self._slices:
            options["logits_to_keep"] = keep
        _thread.cache = cache
        try:
            logits: Tensor = self.model(input_ids=tokens, position_ids=positions, **options).logits[0]
        finally:
            _thread.cache = None
        return logits if self._slices else logits[keep]
