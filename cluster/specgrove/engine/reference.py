"""transformers' own generation of a pair, as the yardstick that benchmarks and parity checks stand beside.

Nothing here touches our runner, pool or hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig, set_seed

from specgrove.engine.weights import locate

Schedule = Literal["default", "constant"]


@dataclass(frozen=True, slots=True)
class Generated:
    """New tokens of one call."""

    tokens: tuple[int, ...]


class Reference:
    """A target and, if given, its draft, as plain transformers models on one device.

    Bundled names, directories or hub ids. Raises ConfigError for a model that is not there.
    """

    def __init__(self, target: str, draft: str | None, *, dtype: str, device: str = "cpu") -> None:
        kwargs: dict[str, Any] = {"dtype": "auto" if dtype == "auto" else getattr(torch, dtype)}
        self.target: Any = _load(target, kwargs, device)
        self.draft: Any = None
        if draft is not None:
            self.draft = _load(draft, kwargs, device)
        self._device = device

    def plain(self, prompt: Sequence[int], count: int, *, temperature: float, seed: int) -> Generated:
        """`generate` with the target alone: exactly `count` new tokens."""
        return self._generate(prompt, count, temperature, seed, {})

    def assisted(
        self, prompt: Sequence[int], count: int, *, temperature: float, seed: int, schedule: Schedule, length: int = 5
    ) -> Generated:
        """Assisted generation: the library's defaults, or `length` draft tokens in every round without early exit."""
        assert self.draft is not None
        config = GenerationConfig(pad_token_id=0)
        if schedule == "constant":
            config.num_assistant_tokens = length
            config.num_assistant_tokens_schedule = "constant"
            config.assistant_confidence_threshold = 0.0
        self.draft.generation_config = config
        return self._generate(prompt, count, temperature, seed, {"assistant_model": self.draft})

    @torch.inference_mode()
    def scores(self, tokens: Sequence[int], first: int) -> Tensor:
        """Raw logits [len(tokens) - first, vocab] that judge tokens[first:], from one cacheless forward pass."""
        ids = torch.tensor([list(tokens[:-1])], device=self._device)
        logits: Tensor = self.target(ids, use_cache=False).logits[0, first - 1 :]
        return logits.float()

    @torch.inference_mode()
    def _generate(
        self, prompt: Sequence[int], count: int, temperature: float, seed: int, extra: dict[str, Any]
    ) -> Generated:
        """End-of-sequence is switched off, so that every run makes the same number of tokens."""
        set_seed(seed)
        ids = torch.tensor([list(prompt)], device=self._device)
        config = GenerationConfig(
            max_new_tokens=count,
            do_sample=temperature > 0,
            temperature=temperature if temperature > 0 else None,
            top_k=0 if temperature > 0 else None,
            eos_token_id=None,
            pad_token_id=0,
        )
        out = self.target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **extra)
        return Generated(tuple(out[0, len(prompt) :].tolist()))


def _load(path: str, kwargs: dict[str, Any], device: str) -> Any:
    """The model without its own generation defaults: `generate` would fill them in wherever we say nothing."""
    model: Any = AutoModelForCausalLM.from_pretrained(locate(path, None), **kwargs)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model.to(device).eval()
