"""Weights of fewer bits: less to read from memory for every token.

On a CPU with AVX2 `Int8Linear` reads 8-bit weights once for all rows (linear.c) and gives a row the same bits in any
company, as FusedLinear does. Elsewhere torchao does it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from specgrove.engine import linear_kernel
from specgrove.engine.linear import LONE_PRODUCTS
from specgrove.errors import ConfigError

Quantization = Literal["int8"]
LARGEST = 127


class Int8Linear(nn.Linear):
    """An nn.Linear over bfloat16 inputs whose class and weights were changed by `quantize`."""

    product: linear_kernel.Product
    scale: Tensor
    """[out] float32: a weight is its integer times the scale of its row."""
    scratch: Tensor
    """As of FusedLinear."""

    def forward(self, input: Tensor) -> Tensor:
        """Input [..., in] to [..., out], both bfloat16."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        out_features, in_features = weight.shape
        if input.dtype is not torch.bfloat16 or input.shape[-1] != in_features:
            raise ValueError(f"expected [..., {in_features}] bfloat16, got {list(input.shape)} {input.dtype}")
        x = input.contiguous()  # kept by this name while its address is in use
        out = torch.empty(*input.shape[:-1], out_features, dtype=torch.bfloat16)
        rows = input.numel() // in_features
        self.product(
            x.data_ptr(),
            weight.data_ptr(),
            self.scale.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            self.scratch.data_ptr(),
            rows,
            in_features,
            out_features,
            torch.get_num_threads() if rows * weight.numel() > LONE_PRODUCTS else 1,
        )
        return out


def quantize(network: nn.Module, kind: Quantization) -> int:
    """Let all linear layers of a bfloat16 model that is only run use weights of fewer bits; returns how many do.

    Integers are rounded to nearest, symmetric, one scale for each output. Embeddings stay as they are; a head that
    shares its weights with them gets its own. Raises ConfigError where this cannot be done.
    """
    layers = [m for m in network.modules() if type(m) is nn.Linear]
    if not layers:
        raise ConfigError("this model has no linear layers to quantize", param="quantization")
    if any(m.weight.dtype is not torch.bfloat16 for m in layers):
        raise ConfigError(f"{kind} weights need dtype: bfloat16 for the rest of the model", param="quantization")
    product = linear_kernel.product("int8") if all(m.weight.device.type == "cpu" for m in layers) else None
    if product is None:
        return _by_torchao(network, len(layers))
    scratch = torch.empty(max(linear_kernel.scratch_numbers(m.in_features) for m in layers))
    for module in layers:
        weight, scale = rounded(module.weight)
        del module.weight  # the parameter; one that is shared lives on where it is used
        module.register_buffer("weight", weight)
        module.__class__ = Int8Linear
        vars(module).update(product=product, scale=scale, scratch=scratch)
    return len(layers)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [out, in] int8 and scales [out] float32, whose product is nearest to `weight` [out, in]."""
    wide = weight.detach().float()
    scale = (wide.abs().amax(1) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (wide / scale[:, None]).round_().to(torch.int8).contiguous(), scale


def _by_torchao(network: nn.Module, count: int) -> int:
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise ConfigError(
            "quantization needs torchao on this device: pip install 'specgrove[quantization]'", param="quantization"
        ) from None
    quantize_(network, Int8WeightOnlyConfig())
    return count
