"""The oracle: what a target alone would emit, from cacheless full forward passes and transformers' own processors.

It shares nothing with the engine, the KV pool, the verifier or `sampling.warp`. It takes the noise bits from
`sampling.noise`, because the noise *defines* the seeded text (design.md section 2).

An output is judged teacher-forced: one full forward over prompt and output gives the logits at every position, and each
emitted token must be the oracle's own choice given the tokens before it. By induction the whole text is then the
oracle's. Where the gap between the two best scores is under `NEAR_TIE`, another choice is a counted near-tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specgrove.sampling.noise import NoiseKey, gumbel

NEAR_TIE = 2e-5
"""Largest gap of the two best scores at which float32 may flip the choice (design.md section 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The sampling parameters of a request, as the client gave them."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A position at which the server's token is not the oracle's."""

    position: int
    emitted: int
    expected: int
    gap: float
    """Score of the oracle's token minus score of the emitted one."""

    @property
    def near_tie(self) -> bool:
        """Small enough for floating point to explain it."""
        return self.gap < NEAR_TIE


class Oracle:
    """A target model in float32, run without any cache."""

    def __init__(self, path: Path, *, vocab_size: int) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.vocab_size = vocab_size

    @torch.inference_mode()
    def differences(self, prompt: Sequence[int], output: Sequence[int], asked: Asked) -> list[Difference]:
        """Every position of `output` at which the oracle would have chosen another token."""
        tokens = [*prompt, *output]
        logits = self.model(torch.tensor([tokens[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :].float()
        found = []
        for i, emitted in enumerate(output):
            scores = self._scores(logits[i, : self.vocab_size], tokens, len(prompt), len(prompt) + i, asked)
            best = scores.max()
            expected = int(torch.nonzero(scores == best)[0])
            if expected != emitted:
                found.append(Difference(len(prompt) + i, emitted, expected, float(best - scores[emitted])))
        return found

    @torch.inference_mode()
    def continuation(self, prompt: Sequence[int], count: int, asked: Asked) -> list[int]:
        """`count` tokens, one cacheless forward each (slow; for spot checks of the teacher-forced form)."""
        tokens = list(prompt)
        for _ in range(count):
            row = self.model(torch.tensor([tokens]), use_cache=False).logits[0, -1, : self.vocab_size].float()
            scores = self._scores(row, tokens, len(prompt), len(tokens), asked)
            tokens.append(int(torch.nonzero(scores == scores.max())[0]))
        return tokens[len(prompt) :]

    def _scores(
        self,
        row: torch.Tensor,  # [vocab] raw logits at the last known token
        tokens: Sequence[int],
        prompt: int,
        at: int,
        asked: Asked,
    ) -> torch.Tensor:
        """Scores whose argmax is the token at absolute index `at`, given `tokens[:at]`."""
        before = torch.tensor([list(tokens[:at])])
        out = torch.bincount(before[0, prompt:], minlength=self.vocab_size).float()
        row = row.clone()
        for token, bias in asked.logit_bias.items():
            row[token] += bias
        if asked.repetition_penalty != 1.0:
            row = RepetitionPenaltyLogitsProcessor(asked.repetition_penalty)(before, row[None])[0]
        row = row - asked.frequency_penalty * out - asked.presence_penalty * (out > 0)
        if asked.temperature == 0.0:
            return row
        warped = _warpers(asked)(before, row[None])[0]
        return warped + gumbel([NoiseKey(asked.seed, asked.choice)], [at], self.vocab_size, "cpu")[0]


def _warpers(asked: Asked) -> LogitsProcessorList:
    """transformers' own filters, in its order."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(asked.temperature)])
    if asked.top_k:
        warpers.append(TopKLogitsWarper(asked.top_k))
    if asked.top_p < 1.0:
        warpers.append(TopPLogitsWarper(asked.top_p))
    if asked.min_p > 0.0:
        warpers.append(MinPLogitsWarper(asked.min_p))
    return warpers
