"""Two optimizers behind one step: orthogonalised momentum for matrices, AdamW for the rest.

Momentum whose singular values are all set to about 1 (Jordan et al., "Muon", 2024) needs far fewer steps than AdamW
for models of this size. torch.optim.Muon computes in bfloat16, which many CPUs emulate, so this one stays in float32
and treats equal shapes as one stack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that drives singular values towards 1."""


def orthogonalise(stack: Tensor, iterations: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices, roughly: singular values end between 0.7 and 1.2. stack: [n, rows, columns]."""
    a, b, c = NEWTON_SCHULZ
    tall = stack.shape[-2] > stack.shape[-1]
    x = stack.mT if tall else stack
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x


class FamilyOptimizer:
    """Steps a causal model; `rate` in step() scales both peak rates."""

    def __init__(self, model: nn.Module, *, matrix_rate: float, other_rate: float) -> None:
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
        taken = {id(p) for p in matrices}
        self._matrix_rate, self._other_rate = matrix_rate, other_rate
        self._adam = torch.optim.AdamW(
            [p for _, p in named if id(p) not in taken], lr=other_rate, betas=(0.9, 0.98), weight_decay=0.0
        )
        self._groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for parameter in matrices:
            self._groups.setdefault(tuple(parameter.shape), []).append(parameter)
        self._momenta = {
            shape: torch.zeros(len(members), *shape) for shape, members in self._groups.items()
        }  # [n, rows, columns] each

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients at `rate` times the peak rates, then clear them."""
        for group in self._adam.param_groups:
            group["lr"] = rate * self._other_rate
        self._adam.step()
        for shape, members in self._groups.items():
            gradients = torch.stack([m.grad if m.grad is not None else torch.zeros(shape) for m in members])
            momentum = self._momenta[shape].mul_(MOMENTUM).add_(gradients)
            update = orthogonalise(gradients.add_(momentum, alpha=MOMENTUM))
            scale = rate * self._matrix_rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for member, change in zip(members, update, strict=True):
                member.mul_(1 - 0.01 * rate * self._matrix_rate).sub_(change, alpha=scale)
        self._adam.zero_grad(set_to_none=True)
        for members in self._groups.values():
            for member in members:
                member.grad = None

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later."""
        return {"adam": self._adam.state_dict(), "momenta": list(self._momenta.values())}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of state()."""
        self._adam.load_state_dict(state["adam"])
        self._momenta = dict(zip(self._groups, state["momenta"], strict=True))
