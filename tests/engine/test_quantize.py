"""Weights of 8 bits: the product is that of the rounded weights, and rows do not depend on their company."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from specgrove.engine import linear_kernel, quantize
from specgrove.errors import ConfigError

needs_kernel = pytest.mark.skipif(linear_kernel.product("int8") is None, reason="no compiler, or no AVX2 and FMA")


def layer(in_features: int, out_features: int, *, bias: bool = False) -> nn.Linear:
    """A plain layer that is only run."""
    return nn.Linear(in_features, out_features, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


def exact(module, x):
    """The product with the layer's own integers and scales, in float64."""
    weight = module.weight.double() * module.scale.double()[:, None]
    return nn.functional.linear(x.double(), weight, None if module.bias is None else module.bias.double())


def test_rounding():
    """To the nearest integer, by a scale for each row; a row of zeros stays zeros."""
    weight = torch.tensor([[1.0, -0.5, 0.004], [0.0, 0.0, 0.0], [254.0, 2.0, 3.0]])
    integers, scale = quantize.rounded(weight)

    assert integers.tolist() == [[127, -64, 1], [0, 0, 0], [127, 1, 2]]
    assert scale[0] == pytest.approx(1 / 127)
    error = (integers.float() * scale[:, None] - weight).abs().amax(1)
    assert (error <= scale / 2 + 1e-6).all()


@needs_kernel
@settings(max_examples=30, deadline=None)
@given(
    rows=st.one_of(st.integers(0, 40), st.integers(60, 70)),
    in_features=st.one_of(st.integers(1, 70), st.integers(1000, 1100), st.sampled_from([2048, 3000])),
    out_features=st.integers(1, 60),
    bias=st.booleans(),
    seed=st.integers(0, 9),
)
def test_product_is_that_of_the_rounded_weights(rows, in_features, out_features, bias, seed):
    """Half a place of bfloat16 from the float64 product, and what float32 sums lose; any remainder of any tile."""
    torch.manual_seed(seed)
    module = layer(in_features, out_features, bias=bias)
    assert quantize.quantize(module, "int8") == 1
    x = torch.randn(rows, in_features).bfloat16()
    out, true = module(x), exact(module, x)
    weight = module.weight.double().abs() * module.scale.double()[:, None]
    lost = (in_features + 4) * 2**-24 * nn.functional.linear(x.double().abs(), weight)

    assert (out.shape, out.dtype) == ((rows, out_features), torch.bfloat16)
    assert ((out.double() - true).abs() <= true.abs() * 2**-8 + 2 * lost + 1e-6).all()


@needs_kernel
@pytest.mark.parametrize(("in_features", "out_features"), [(896, 200), (1111, 53), (40, 7)])
def test_a_row_has_the_same_bits_in_any_company(in_features, out_features):
    """Alone, among any number of others, at any place, on any number of threads."""
    torch.manual_seed(1)
    module = layer(in_features, out_features, bias=True)
    quantize.quantize(module, "int8")
    x = torch.randn(70, in_features).bfloat16()
    alone = torch.cat([module(row[None]) for row in x])
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for n in [*range(1, 10), 13, 32, 33, 70]:
                assert torch.equal(alone[:n], module(x[:n]))
                assert torch.equal(alone[-n:], module(x[-n:]))
    finally:
        torch.set_num_threads(threads)


@needs_kernel
def test_a_shared_head_gets_its_own_weights():
    """The embedding stays in bfloat16."""
    embedding = nn.Embedding(20, 16, dtype=torch.bfloat16)
    head = layer(16, 20)
    head.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "head": head, "other": layer(16, 16)})
    assert quantize.quantize(model, "int8") == 2

    assert embedding.weight.dtype is torch.bfloat16
    assert head.weight.dtype is torch.int8
    assert model["embedding"](torch.tensor([3])).dtype is torch.bfloat16


@needs_kernel
def test_a_wrong_input_is_refused():
    """Before any address is given away."""
    module = layer(8, 4)
    quantize.quantize(module, "int8")
    for wrong in (torch.zeros(2, 8), torch.zeros(2, 9, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="expected"):
            module(wrong)


def test_models_that_cannot_be_quantized():
    """Are refused with what to do."""
    with pytest.raises(ConfigError, match="dtype: bfloat16"):
        quantize.quantize(nn.Linear(4, 4), "int8")
    with pytest.raises(ConfigError, match="no linear layers"):
        quantize.quantize(nn.Embedding(4, 4), "int8")
