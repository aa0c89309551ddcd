"""Wide multiplication of 16-bit weights on CPUs without 16-bit instructions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from specgrove.engine import linear


@pytest.fixture
def no_bfloat16(monkeypatch):
    """As on a CPU without bfloat16 instructions, in small blocks."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(linear, "BLOCK_NUMBERS", 100)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 7, 24), (3, 24), (2, 5, 24), (1, 2, 24)])
def test_same_product(no_bfloat16, bias, dtype, shape):
    """Within the last place of torch's own product; the last block is smaller than the others."""
    torch.manual_seed(0)
    layer = nn.Linear(24, 37, bias=bias, dtype=dtype).requires_grad_(False)
    x = torch.randn(shape).to(dtype)
    exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double() if bias else None)
    expected = layer(x)
    assert linear.widen(layer) == 1
    out = layer(x)

    assert (out.shape, out.dtype, out.is_contiguous()) == (expected.shape, dtype, True)
    assert torch.allclose(out.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_only_where_it_pays(no_bfloat16, monkeypatch):
    """float32 layers stay; on a CPU with the instructions all stay."""
    assert linear.widen(nn.Linear(4, 4)) == 0
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert linear.widen(nn.Linear(4, 4, dtype=torch.bfloat16)) == 0
