"""Linear layers for CPUs without bfloat16 instructions.

There, torch multiplies one 16-bit row at a time or, with AVX-512, emulates the instructions: 4 rows take 2.5 to 4 times
as long as one. `FusedLinear` reads each bfloat16 weight once for all rows (linear.c), and gives a row the same bits in
any company, so that a plain step and the pass over a tree agree. Where that cannot be compiled, and for float16,
`WideLinear` widens the weights to float32 block by block, each small enough to stay in the cache, and multiplies in
float32. Both sum in float32 and round once, as torch's own kernel does.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn

from specgrove.engine import linear_kernel

BLOCK_NUMBERS = 384 << 10
"""Numbers of a weight block; 1.5 MiB in float32, within a core's share of the caches."""
FEW_ROWS = 2
"""Up to this many rows torch's own kernel is as fast as WideLinear."""
LONE_PRODUCTS = 1 << 19
"""Up to this many multiplications waking a second thread takes longer than it saves."""


class FusedLinear(nn.Linear):
    """A bfloat16 nn.Linear whose class was changed by `widen`."""

    product: linear_kernel.Product
    scratch: Tensor
    """[linear_kernel.scratch_numbers(in) at least] float32, one for a whole model; its passes run in one thread."""

    def forward(self, input: Tensor) -> Tensor:
        """Input [..., in] to [..., out], both bfloat16."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        out_features, in_features = weight.shape
        if input.dtype is not torch.bfloat16 or input.shape[-1] != in_features:
            return nn.functional.linear(input, weight, bias)  # which says what is wrong
        x = input.contiguous()  # kept by this name while its address is in use
        out = torch.empty(*input.shape[:-1], out_features, dtype=torch.bfloat16)
        rows = input.numel() // in_features
        self.product(
            x.data_ptr(),
            weight.data_ptr(),
            None,
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            self.scratch.data_ptr(),
            rows,
            in_features,
            out_features,
            torch.get_num_threads() if rows * weight.numel() > LONE_PRODUCTS else 1,
        )
        return out


class WideLinear(nn.Linear):
    """A 16-bit nn.Linear whose class was changed by `widen`."""

    block: Tensor
    """[at least BLOCK_NUMBERS] float32 scratch, one for a whole model; its passes run in one thread."""

    def forward(self, input: Tensor) -> Tensor:
        """Input [..., in] to [..., out], in the dtype of the weights."""
        rows = input.numel() // self.in_features
        if rows <= FEW_ROWS:
            return nn.functional.linear(input, self.weight, self.bias)
        wide_input = input.reshape(rows, self.in_features).float()
        step = max(1, BLOCK_NUMBERS // self.in_features)
        out = torch.empty(rows, self.out_features)
        for start in range(0, self.out_features, step):
            piece = self.weight[start : start + step]
            wide = self.block[: piece.numel()].view(piece.shape).copy_(piece)
            torch.mm(wide_input, wide.t(), out=out[:, start : start + step])
        if self.bias is not None:
            out += self.bias
        return out.to(input.dtype).view(*input.shape[:-1], -1)


def widen(model: nn.Module) -> int:
    """Let the 16-bit linear layers of a CPU model use FusedLinear or WideLinear where it pays; returns how many do.

    For models that are only run, not trained. Must be called under no other thread's use of the model. Layers of a
    subclass of nn.Linear are left alone.
    """
    if multiplies_bfloat16():
        return 0
    narrow = [m for m in model.modules() if type(m) is nn.Linear and m.weight.device.type == "cpu"]
    narrow = [m for m in narrow if m.weight.itemsize == 2]
    longest = max((m.in_features for m in narrow), default=0)
    scratch = torch.empty(max(BLOCK_NUMBERS, linear_kernel.scratch_numbers(longest)))
    fits = [m.weight.dtype is torch.bfloat16 and m.weight.is_contiguous() for m in narrow]
    product = linear_kernel.product() if any(fits) else None
    for module, fit in zip(narrow, fits, strict=True):
        if fit and product is not None:
            module.__class__ = FusedLinear
            vars(module).update(product=product, scratch=scratch)  # not parameters to save or move
        else:
            module.__class__ = WideLinear
            vars(module).update(block=scratch)
    return len(narrow)


def multiplies_bfloat16() -> bool:
    """Has this CPU instructions for products of bfloat16? oneDNN claims to support it with any AVX-512."""
    if platform.machine() in linear_kernel.X86:
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
