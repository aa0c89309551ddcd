"""The engine: one ragged forward pass over segments of many sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specgrove.core.cards import ModelCard
from specgrove.core.sampling import SamplingFields
from specgrove.engine.batch import Segment, build
from specgrove.engine.hooks import HookedModel, PoolCache
from specgrove.engine.kv_pool import KVPool, KVSequence
from specgrove.engine.tokenizer import TextCodec

_GATHER_BYTES = {"cpu": 128 << 10, "cuda": 64 << 20}
"""Bytes of keys or values per layer that a padded attention call may copy: on a CPU a copy soon costs more than the
dispatch of one call per segment; on a GPU launches cost more than copies."""


class Passes:
    """Runs a hooked model over one pool. Not thread-safe."""

    def __init__(
        self, model: HookedModel, pool: KVPool, *, vocab_size: int, unused_ids: Sequence[int] = (), rows_end: int
    ) -> None:
        self.model = model
        self.pool = pool
        self.device = pool.store.keys[0].device
        self._cache = PoolCache(pool.store)
        self._vocab_size = vocab_size
        self._unused = torch.tensor(list(unused_ids), dtype=torch.long, device=self.device) if unused_ids else None
        self._rows_end = rows_end
        row = max(plane[0].numel() * plane.itemsize for plane in pool.store.keys + pool.store.values)
        self._gather_rows = _GATHER_BYTES.get(self.device.type, _GATHER_BYTES["cuda"]) // row

    @torch.inference_mode()
    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """Write the new rows and return the wanted logits, [wanted rows, vocab_size] float32 on the device."""
        store = self.pool.store
        batch = build(
            segments, store.keys[0].dtype, self.device, gather_rows=self._gather_rows, rows_end=self._rows_end
        )
        self._cache.plan = batch.attention
        logits = self.model(batch.tokens, batch.positions, batch.keep, self._cache)[:, : self._vocab_size].float()
        if self._unused is not None:
            logits.index_fill_(1, self._unused, float("-inf"))
        return logits

    def prefill(self, sequence: KVSequence, tokens: Sequence[int], chunk: int) -> Tensor:
        """Append and commit `tokens` in chunks; returns the logits after the last one, [1, vocab_size].

        Raises CapacityError (retryable); the chunks done so far stay committed.
        """
        logits = torch.empty(0)
        for start in range(0, len(tokens), chunk):
            piece = tokens[start : start + chunk]
            positions = range(sequence.length, sequence.length + len(piece))
            sequence.reserve(positions)
            wanted = (len(piece) - 1,) if start + chunk >= len(tokens) else ()
            logits = self.forward([Segment(sequence, piece, positions, None, wanted)])
            sequence.commit(range(len(piece)), piece)
        return logits


class Engine:
    """One loaded model with its pool and tokenizer; made by `loader.load`. One device thread calls it."""

    def __init__(
        self,
        *,
        passes: Passes,
        card: ModelCard,
        codec: TextCodec,
        defaults: SamplingFields,
        eos_token_ids: tuple[int, ...],
        vocab_rows: int,
        max_prefill_tokens: int,
    ) -> None:
        self._passes = passes
        self.pool = passes.pool
        self.device = passes.device
        self.card = card
        self.codec = codec
        self.defaults = defaults
        """Sampling fields that generation_config.json sets; the others are unset."""
        self.eos_token_ids = eos_token_ids
        """End-of-sequence ids of config, generation_config.json and tokenizer together."""
        self.vocab_rows = vocab_rows
        """Rows of the model's head, padding included."""
        self.max_prefill_tokens = max_prefill_tokens
        """Longest prompt piece that is worth one pass."""

    def forward(self, segments: Sequence[Segment]) -> Tensor:
        """One pass over all segments, each of another sequence.

        Returns [sum(len(s.wanted)), card.vocab_size] float32 on the device, in the order of the segments; ids that no
        token has are minus infinity.
        """
        return self._passes.forward(segments)

    def prefill(self, sequence: KVSequence, tokens: Sequence[int]) -> Tensor:
        """Append and commit `tokens` in chunks; returns the logits after the last one, [1, vocab_size].

        Raises CapacityError (retryable); the chunks done so far stay committed.
        """
        return self._passes.prefill(sequence, tokens, self.max_prefill_tokens)
