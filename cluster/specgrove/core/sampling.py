"""Sampling parameters: what a request sets, and what holds once the model's defaults are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingFields:
    """The sampling fields of a request; None means unset (the model's generation_config.json decides)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    banned_token_ids: tuple[int, ...] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Resolved sampling parameters of one request. Neutral values switch a filter off."""

    temperature: float = 1.0
    """0 means greedy: its own branch, never a very small temperature."""
    top_k: int = 0
    """0: off."""
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and output tokens, as in transformers."""
    presence_penalty: float = 0.0
    """Over output tokens, OpenAI's meaning."""
    frequency_penalty: float = 0.0
    """Over output tokens, OpenAI's meaning."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] = ()
    """Empty: all."""
    banned_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    """End-of-sequence and stop ids are banned until this many tokens are out."""
    seed: int = 0
    """Unsigned 64 bits."""

    @classmethod
    def resolve(cls, asked: SamplingFields, defaults: SamplingFields, *, seed: int, min_tokens: int = 0) -> Self:
        """Request fields first, then the model's defaults, then neutral values. `seed` is used when none was asked."""
        chosen: dict[str, object] = {"min_tokens": min_tokens, "seed": seed}
        for f in fields(SamplingFields):
            for source in (asked, defaults):
                value = getattr(source, f.name)
                if value is not None:
                    chosen[f.name] = value
                    break
        return cls(**chosen)  # type: ignore[arg-type]  # names come from SamplingFields, a subset of ours
