"""Weights of 8 and 4 bits: the product is that of the rounded weights, and rows do not depend on their company."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from specgrove.engine import linear_kernel, quantize
from specgrove.errors import ConfigError

needs_int8 = pytest.mark.skipif(linear_kernel.product("int8") is None, reason="no compiler, or no AVX2 and FMA")
needs_int4 = pytest.mark.skipif(linear_kernel.product("int4") is None, reason="no compiler, or no AVX-512")
KINDS = [pytest.param("int8", marks=needs_int8), pytest.param("int4", marks=needs_int4)]


def layer(in_features: int, out_features: int, *, bias: bool = False) -> nn.Linear:
    """A plain layer that is only run."""
    return nn.Linear(in_features, out_features, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


def weights(module):
    """What the layer's numbers and scales stand for, in float64: [out, in]."""
    if module.weight.dtype is torch.int8:
        return module.weight.double() * module.scale.double()[:, None]
    pairs = module.weight.view(module.out_features, -1, quantize.GROUP // 2)
    numbers = torch.cat([pairs & 15, pairs >> 4], -1).double() - 8
    return (numbers * module.scale.double()[..., None]).flatten(1)


def exact(module, x):
    """The product with these, in float64."""
    return nn.functional.linear(x.double(), weights(module), None if module.bias is None else module.bias.double())


def test_rounding_to_8_bits():
    """To the nearest integer, by a scale for each row; a row of zeros stays zeros."""
    weight = torch.tensor([[1.0, -0.5, 0.004], [0.0, 0.0, 0.0], [254.0, 2.0, 3.0]])
    integers, scale = quantize.rounded8(weight)

    assert integers.tolist() == [[127, -64, 1], [0, 0, 0], [127, 1, 2]]
    assert scale[0] == pytest.approx(1 / 127)
    error = (integers.float() * scale[:, None] - weight).abs().amax(1)
    assert (error <= scale / 2 + 1e-6).all()


def test_rounding_to_4_bits():
    """Groups have their own scales; the error is well under that of one scale for the row, and of the plain largest."""
    torch.manual_seed(0)
    weight = torch.randn(8, 96) * torch.tensor([0.01, 1.0, 30.0]).repeat_interleave(32)
    module = layer(96, 8)
    module.weight = nn.Parameter(weight.bfloat16(), requires_grad=False)
    pairs, scale = quantize.rounded4(module.weight)
    original = module.weight.double()
    module.weight = nn.Parameter(pairs, requires_grad=False)
    module.scale = scale
    error = (weights(module) - original).view(8, 3, 32).square().mean(-1).sqrt()

    assert (pairs.shape, scale.shape) == ((8, 48), (8, 3))
    assert (error / original.view(8, 3, 32).std(-1)).max() < 0.14
    plain = original.view(8, 3, 32)
    largest = plain.abs().amax(-1, keepdim=True) / 7
    naive = ((plain / largest).round() * largest - plain).square().mean(-1).sqrt()
    assert error.mean() < naive.mean()
    assert quantize.rounded4(torch.zeros(2, 32).bfloat16())[1].float().abs().max() == 0


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.one_of(st.integers(0, 40), st.integers(60, 70)),
    in_features=st.one_of(st.integers(1, 70), st.integers(1000, 1100), st.sampled_from([32, 64, 96, 2048])),
    out_features=st.integers(1, 60),
    bias=st.booleans(),
    seed=st.integers(0, 9),
)
def test_product_is_that_of_the_rounded_weights(kind, rows, in_features, out_features, bias, seed):
    """Half a place of bfloat16 from the float64 product, and what float32 sums lose; any remainder of any tile."""
    torch.manual_seed(seed)
    module = layer(in_features, out_features, bias=bias)
    assert quantize.quantize(module, kind) == 1
    assert module.weight.dtype is (torch.uint8 if kind == "int4" and in_features % 32 == 0 else torch.int8)
    x = torch.randn(rows, in_features).bfloat16()
    out, true = module(x), exact(module, x)
    lost = (in_features + 4) * 2**-24 * nn.functional.linear(x.double().abs(), weights(module).abs())

    assert (out.shape, out.dtype) == ((rows, out_features), torch.bfloat16)
    assert ((out.double() - true).abs() <= true.abs() * 2**-8 + 2 * lost + 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("in_features", "out_features"), [(896, 200), (1111, 53), (64, 7)])
def test_a_row_has_the_same_bits_in_any_company(kind, in_features, out_features):
    """Alone, among any number of others, at any place, on any number of threads."""
    torch.manual_seed(1)
    module = layer(in_features, out_features, bias=True)
    quantize.quantize(module, kind)
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_head_gets_its_own_weights(kind):
    """Of 8 bits; the embedding stays in bfloat16."""
    embedding = nn.Embedding(20, 32, dtype=torch.bfloat16)
    head = layer(32, 20)
    head.weight = embedding.weight
    model = nn.ModuleDict({"embedding": embedding, "head": head, "other": layer(32, 16)})
    assert quantize.quantize(model, kind) == 2

    assert embedding.weight.dtype is torch.bfloat16
    assert head.weight.dtype is torch.int8
    assert model["other"].weight.dtype is (torch.uint8 if kind == "int4" else torch.int8)
    assert model["embedding"](torch.tensor([3])).dtype is torch.bfloat16


@needs_int8
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
