"""Linear layers for CPUs without bfloat16 instructions.

There, torch multiplies one 16-bit row at full memory speed, but several rows one by one: 16 rows take 16 times as long
as one. `WideLinear` widens the weights to float32 block by block, each block small enough to stay in the cache, and
multiplies in float32: 16 rows take 3 times as long as one. Sums are in float32 and the result is rounded once, as in
torch's own kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK_NUMBERS = 384 << 10
"""Numbers of a weight block; 1.5 MiB in float32, within a core's share of the caches."""
FEW_ROWS = 2
"""Up to this many rows torch's own kernel is as fast."""


class WideLinear(nn.Linear):
    """An nn.Linear whose class was changed by `widen`."""

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
    """Let the 16-bit linear layers of a CPU model use WideLinear where it pays; returns how many do.

    Must be called under no other thread's use of the model. Layers of a subclass of nn.Linear are left alone.
    """
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return 0
    narrow = [m for m in model.modules() if type(m) is nn.Linear and m.weight.device.type == "cpu"]
    narrow = [m for m in narrow if m.weight.itemsize == 2]
    block = torch.empty(max([BLOCK_NUMBERS, *(m.in_features for m in narrow)]))
    for module in narrow:
        module.__class__ = WideLinear
        object.__setattr__(module, "block", block)  # scratch, not a buffer to save or move
    return len(narrow)
