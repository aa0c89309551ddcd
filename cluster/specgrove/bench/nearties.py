"""Is every emitted token the target's own? Each is judged by a cacheless forward pass of transformers' model.

Floating point: another batch shape gives slightly different logits, so a token may differ from the judge's where the
two best scores nearly tie. A difference is a near tie when the gap is at most epsilon, else it is real (design.md,
section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from specgrove.engine.reference import Reference
from specgrove.sampling.noise import NoiseKey, gumbel

EPSILON = {torch.float32: 2e-5, torch.bfloat16: 0.25, torch.float16: 0.04}
"""Largest gap of two scores that rounding may turn round. Logits of these models reach 16 to 32, where neighbours of
the 16-bit formats are 0.125 (bfloat16) and 0.016 (float16) apart: two steps are allowed."""


@dataclass(slots=True)
class Judged:
    """Differences of many outputs from the judge."""

    epsilon: float
    tokens: int = 0
    near_ties: int = 0
    real: int = 0
    largest_gap: float = 0.0
    differences: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "tokens": self.tokens,
            "near_ties": self.near_ties,
            "real_differences": self.real,
            "largest_gap": round(self.largest_gap, 6),
            "epsilon": self.epsilon,
            "differences": self.differences,
        }


def judge(
    reference: Reference,
    outputs: Sequence[tuple[Sequence[int], Sequence[int], int]],
    *,
    temperature: float,
    vocab_size: int,
    epsilon: float | None = None,
) -> Judged:
    """Judge outputs, each (prompt ids, output ids, seed); no filters or penalties but the temperature."""
    allowed = EPSILON[reference.target.dtype] if epsilon is None else epsilon
    out = Judged(allowed)
    for number, (prompt, output, seed) in enumerate(outputs):
        scores = reference.scores([*prompt, *output], len(prompt))[:, :vocab_size]
        if temperature > 0:
            positions = range(len(prompt), len(prompt) + len(output))
            keys = [NoiseKey(seed)] * len(output)
            scores = scores / temperature + gumbel(keys, positions, vocab_size, scores.device)
        best, expected = scores.max(-1)
        for i, token in enumerate(output):
            out.tokens += 1
            gap = float(best[i] - scores[i, token])
            if gap == 0.0:
                continue
            near = gap <= allowed / (temperature or 1.0)
            out.near_ties += near
            out.real += not near
            out.largest_gap = max(out.largest_gap, gap)
            out.differences.append(
                {"output": number, "position": i, "emitted": int(token), "judge": int(expected[i]), "gap": gap}
            )
    return out
