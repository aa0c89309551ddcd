"""Weights of fewer bits: less to read from memory for every token.

On a CPU the fused products of linear.c (8 bits, AVX2) and linear4.c (4 bits, AVX-512) read the weights once for all
rows and give a row the same bits in any company, as FusedLinear does. Elsewhere torchao does it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from specgrove.engine import linear_kernel
from specgrove.engine.linear import LONE_PRODUCTS
from specgrove.errors import ConfigError

Quantization = Literal["int8", "int4"]
GROUP = 32
"""4-bit weights along `in` that share a scale."""
_TRIED = 24
"""Scales that are tried for each group of 4-bit weights."""


class PackedLinear(nn.Linear):
    """An nn.Linear over bfloat16 inputs whose class and weights were changed by `quantize`."""

    product: linear_kernel.Product
    scale: Tensor
    """8 bits: [out] float32, a weight is its integer times that of its row. 4 bits: [out, in / GROUP] bfloat16."""
    scratch: Tensor
    """As of FusedLinear."""

    def forward(self, input: Tensor) -> Tensor:
        """Input [..., in] to [..., out], both bfloat16."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if input.dtype is not torch.bfloat16 or input.shape[-1] != self.in_features:
            raise ValueError(f"expected [..., {self.in_features}] bfloat16, got {list(input.shape)} {input.dtype}")
        x = input.contiguous()  # kept by this name while its address is in use
        out = torch.empty(*input.shape[:-1], self.out_features, dtype=torch.bfloat16)
        rows = input.numel() // self.in_features
        self.product(
            x.data_ptr(),
            weight.data_ptr(),
            self.scale.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            self.scratch.data_ptr(),
            rows,
            self.in_features,
            self.out_features,
            torch.get_num_threads() if rows * self.in_features * self.out_features > LONE_PRODUCTS else 1,
        )
        return out


def quantize(network: nn.Module, kind: Quantization) -> int:
    """Let all linear layers of a bfloat16 model that is only run use weights of fewer bits; returns how many do.

    Embeddings stay as they are; a head that shares its weights with them gets its own, of 8 bits. Layers whose inputs
    are not whole groups get 8 bits as well. Raises ConfigError where this cannot be done.
    """
    layers = [m for m in network.modules() if type(m) is nn.Linear]
    if not layers:
        raise ConfigError("this model has no linear layers to quantize", param="quantization")
    if any(m.weight.dtype is not torch.bfloat16 for m in layers):
        raise ConfigError(f"{kind} weights need dtype: bfloat16 for the rest of the model", param="quantization")
    products = {numbers: linear_kernel.product(numbers) for numbers in ("int8", kind)}
    on_cpu = all(m.weight.device.type == "cpu" for m in layers)
    if not on_cpu or None in products.values():
        return _by_torchao(network, kind, len(layers))
    shared = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    scratch = torch.empty(max(linear_kernel.scratch_numbers(m.in_features) for m in layers))
    for module in layers:
        whole = kind == "int4" and module.in_features % GROUP == 0 and id(module.weight) not in shared
        numbers: Quantization = "int4" if whole else "int8"
        weight, scale = rounded4(module.weight) if whole else rounded8(module.weight)
        del module.weight  # the parameter; one that is shared lives on where it is used
        module.register_buffer("weight", weight)
        module.__class__ = PackedLinear
        vars(module).update(product=products[numbers], scale=scale, scratch=scratch)
    return len(layers)


def rounded8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [out, in] int8 and scales [out] float32, whose product is nearest to `weight` [out, in]."""
    wide = weight.detach().float()
    scale = (wide.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return (wide / scale[:, None]).round_().to(torch.int8).contiguous(), scale


def rounded4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of numbers [out, in / 2] uint8 and scales [out, in / GROUP] bfloat16 for `weight` [out, in].

    Of every group numbers l and 16 + l share a byte, the first in its lower half; a weight is (number - 8) * scale. The
    scale is the best of _TRIED around the one that just holds the largest weight, in squared error.
    """
    groups = weight.detach().float().view(weight.shape[0], -1, GROUP)
    extreme = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))  # the one that decides the sign of the scale
    best_error = torch.full(groups.shape[:2], torch.inf)
    best_scale = torch.zeros(groups.shape[:2], dtype=torch.bfloat16)
    best = torch.full_like(groups, 8)
    for step in range(_TRIED):
        scale = (extreme[..., 0] / (-8.5 + 2.5 * step / _TRIED)).to(torch.bfloat16)
        wide = scale.float()[..., None]
        numbers = (groups / torch.where(wide == 0, 1, wide)).round_().clamp_(-8, 7)
        error = (numbers * wide - groups).square().sum(-1)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_scale = torch.where(better, scale, best_scale)
        best = torch.where(better[..., None], numbers + 8, best)
    whole = best.to(torch.uint8)
    packed = whole[..., : GROUP // 2] | (whole[..., GROUP // 2 :] << 4)
    return packed.flatten(1).contiguous(), best_scale.contiguous()


def _by_torchao(network: nn.Module, kind: Quantization, count: int) -> int:
    try:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise ConfigError(
            f"{kind} on this device needs torchao: pip install 'specgrove[quantization]'", param="quantization"
        ) from None
    quantize_(network, Int8WeightOnlyConfig() if kind == "int8" else Int4WeightOnlyConfig(group_size=GROUP))
    return count
