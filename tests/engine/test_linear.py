"""Linear layers on CPUs without 16-bit instructions: the fused product, and the float32 blocks in its stead."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from specgrove.engine import linear, linear_kernel

NARROW = [torch.bfloat16, torch.float16]

needs_kernel = pytest.mark.skipif(linear_kernel.product() is None, reason="no compiler, or no AVX2 and FMA")


@pytest.fixture
def no_bfloat16(monkeypatch):
    """As on a CPU without bfloat16 instructions, in small blocks."""
    monkeypatch.setattr(linear, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(linear, "BLOCK_NUMBERS", 100)


@pytest.fixture
def no_kernel(monkeypatch):
    """As where the fused product cannot be compiled."""
    monkeypatch.setattr(linear_kernel, "product", lambda: None)


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    """A home directory without compiled kernels; the loader forgets the one it has."""
    monkeypatch.setenv("HOME", str(tmp_path))
    linear_kernel.product.cache_clear()
    yield tmp_path
    linear_kernel.product.cache_clear()


def layer(in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype = torch.bfloat16) -> nn.Linear:
    """A plain layer that is only run."""
    return nn.Linear(in_features, out_features, bias=bias, dtype=dtype).requires_grad_(False)


def fused(plain: nn.Linear) -> linear.FusedLinear:
    """The same weights under the fused product, whatever this CPU can do."""
    twin = linear.FusedLinear.__new__(linear.FusedLinear)
    scratch = torch.empty(linear_kernel.scratch_numbers(plain.in_features))
    vars(twin).update(vars(plain), product=linear_kernel.product(), scratch=scratch)
    return twin


def exact(plain: nn.Linear, x: Tensor) -> Tensor:
    """The product in float64."""
    return nn.functional.linear(
        x.double(), plain.weight.double(), plain.bias if plain.bias is None else plain.bias.double()
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(1, 7, 24), (3, 24), (2, 5, 24), (1, 2, 24), (24,), (0, 24)])
@pytest.mark.usefixtures("no_bfloat16", "no_kernel")
def test_same_product_in_blocks(bias, dtype, shape):
    """Within the last place of torch's own product; the last block is smaller than the others."""
    torch.manual_seed(0)
    module = layer(24, 37, bias=bias, dtype=dtype)
    x = torch.randn(shape).to(dtype)
    expected, true = module(x), exact(module, x)
    assert linear.widen(module) == 1
    out = module(x)

    assert (type(module), out.shape, out.dtype) == (linear.WideLinear, expected.shape, dtype)
    assert out.is_contiguous()
    assert torch.allclose(out.double(), true, rtol=torch.finfo(dtype).eps, atol=1e-5)


@needs_kernel
@settings(max_examples=30, deadline=None)
@given(
    rows=st.one_of(st.integers(0, 40), st.integers(60, 70)),
    in_features=st.one_of(st.integers(1, 70), st.integers(1000, 1100), st.sampled_from([2048, 3000])),
    out_features=st.integers(1, 60),
    bias=st.booleans(),
    seed=st.integers(0, 9),
)
def test_fused_product_is_rounded_once(rows, in_features, out_features, bias, seed):
    """Half a place of bfloat16 from the float64 product, and what float32 sums lose; any remainder of any tile."""
    torch.manual_seed(seed)
    module = layer(in_features, out_features, bias=bias)
    x = torch.randn(rows, in_features).bfloat16()
    out, true = fused(module)(x), exact(module, x)
    lost = in_features * 2**-24 * nn.functional.linear(x.double().abs(), module.weight.double().abs())

    assert out.shape == (rows, out_features)
    assert ((out.double() - true).abs() <= true.abs() * 2**-8 + 2 * lost + 1e-7).all()


@needs_kernel
@pytest.mark.parametrize(("in_features", "out_features"), [(896, 200), (1111, 53), (40, 7)])
def test_a_row_has_the_same_bits_in_any_company(in_features, out_features):
    """Alone, among any number of others, at any place, on any number of threads."""
    torch.manual_seed(1)
    module = layer(in_features, out_features, bias=True)
    twin, x = fused(module), torch.randn(70, in_features).bfloat16()
    alone = torch.cat([twin(row[None]) for row in x])
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            for n in [*range(1, 10), 13, 32, 33, 70]:
                assert torch.equal(alone[:n], twin(x[:n]))
                assert torch.equal(alone[-n:], twin(x[-n:]))
    finally:
        torch.set_num_threads(threads)


@needs_kernel
def test_rounding_to_nearest_even():
    """Ties go to the even neighbour, infinities stay, too large becomes infinite, not-a-number stays one."""
    values = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-15, torch.inf, -torch.inf, 3.39e38])
    module = layer(2, 1, bias=False)
    module.weight.fill_(1)
    x = torch.stack([values.bfloat16(), torch.zeros(7)], dim=1).bfloat16()
    x[:, 1] = (values - x[:, 0].float()).nan_to_num(0, 0, 0).bfloat16()  # both together are the value
    x[6] = torch.finfo(torch.bfloat16).max
    out = fused(module)(x)[:, 0]

    assert out.float().tolist() == [1.0, 1 + 2**-6, -1.0, 1 + 2**-7, torch.inf, -torch.inf, torch.inf]
    for bad in (torch.tensor([torch.nan, 0]), torch.tensor([torch.inf, -torch.inf])):
        assert fused(module)(bad.bfloat16()[None]).isnan().all()


@needs_kernel
def test_a_bad_row_does_not_touch_its_neighbours():
    """Not-a-number in one row stays there."""
    module = layer(50, 30, bias=False)
    x = torch.randn(6, 50).bfloat16()
    clean = fused(module)(x)
    x[3, 49] = torch.nan
    out = fused(module)(x)

    assert out[3].isnan().all()
    assert torch.equal(clean[[0, 1, 2, 4, 5]], out[[0, 1, 2, 4, 5]])


@needs_kernel
def test_any_layout_of_the_input():
    """Strided and transposed inputs, several leading dimensions and none."""
    module = layer(48, 20, bias=True)
    twin = fused(module)
    wide = torch.randn(5, 96).bfloat16()
    for strided in (wide[:, ::2], wide[:, 48:], wide.t()[:48].t()):
        whole = strided.contiguous()
        assert torch.equal(twin(whole), twin(strided))
    assert twin(wide[:, 48:].view(5, 1, 48)).shape == (5, 1, 20)
    assert torch.equal(twin(wide[:1, :48])[0], twin(wide[0, :48]))


@needs_kernel
def test_a_wrong_input_is_refused():
    """As torch refuses it, before any address is given away."""
    twin = fused(layer(8, 4, bias=False))
    with pytest.raises(RuntimeError, match="dtype"):
        twin(torch.zeros(2, 8))
    with pytest.raises(RuntimeError, match="shape"):
        twin(torch.zeros(2, 9, dtype=torch.bfloat16))


@needs_kernel
@pytest.mark.usefixtures("no_bfloat16")
def test_which_layers_change(monkeypatch):
    """bfloat16 is fused and float16 widened; float32 and subclasses stay; on a CPU with the instructions all stay."""

    class Own(nn.Linear):
        pass

    kinds = [torch.bfloat16, torch.float16, torch.float32]
    model = nn.ModuleList([*(layer(4, 4, bias=True, dtype=kind) for kind in kinds), Own(4, 4, dtype=torch.bfloat16)])
    assert linear.widen(model) == 2
    assert [type(m) for m in model] == [linear.FusedLinear, linear.WideLinear, nn.Linear, Own]
    assert set(model.state_dict()) == {f"{i}.{name}" for i in range(4) for name in ("weight", "bias")}
    monkeypatch.setattr(linear, "multiplies_bfloat16", lambda: True)
    assert linear.widen(layer(4, 4, bias=True)) == 0


@pytest.mark.parametrize(
    ("machine", "onednn", "avx512_bf16", "amx", "expected"),
    [
        ("x86_64", True, False, False, False),  # AVX-512 alone: oneDNN emulates, four rows cost 2.5 times one
        ("x86_64", True, True, False, True),
        ("x86_64", True, True, True, True),
        ("AMD64", False, False, False, False),
        ("aarch64", True, False, False, True),
        ("aarch64", False, False, False, False),
    ],
)
def test_who_multiplies_bfloat16(monkeypatch, machine, onednn, avx512_bf16, amx, expected):
    """Instructions count, not what oneDNN can emulate."""
    monkeypatch.setattr(linear.platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert linear.multiplies_bfloat16() is expected


@needs_kernel
def test_compiled_once(empty_home, monkeypatch):
    """The library is kept under a whole name; the next process needs no compiler."""
    assert linear_kernel.product() is not None
    kept = list((empty_home / ".cache" / "specgrove" / "kernels").iterdir())
    assert [file.suffix for file in kept] == [".so"]

    linear_kernel.product.cache_clear()
    monkeypatch.setenv("CC", "false")
    assert linear_kernel.product() is not None


@needs_kernel
def test_a_home_that_cannot_be_written(empty_home):
    """Costs the compilation at every start."""
    (empty_home / ".cache").write_text("in the way")
    assert linear_kernel.product() is not None


@pytest.mark.parametrize(
    ("compiler", "reason"), [("", "no C compiler found"), ("false", "exit status 1"), ("no-such-cc", "no-such-cc")]
)
@pytest.mark.usefixtures("no_bfloat16", "empty_home")
def test_without_a_compiler(compiler, reason, monkeypatch, caplog):
    """One line in the log, and the layers take float32 blocks."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CC", compiler)
    module = layer(4, 4, bias=False)
    with caplog.at_level(logging.INFO, logger=linear_kernel.__name__):
        assert linear.widen(nn.Sequential(module, layer(4, 4, bias=False))) == 2
        linear.widen(nn.Sequential(layer(4, 4, bias=False)))

    assert type(module) is linear.WideLinear
    assert [reason in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.usefixtures("empty_home")
def test_not_on_an_older_cpu(monkeypatch):
    """Without AVX2 nothing is compiled."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(linear_kernel, "_load", lambda: pytest.fail("compiled"))
    assert linear_kernel.product() is None


def test_the_source_is_part_of_the_package():
    """Beside the module that compiles it, with the same panel."""
    sources = [Path(linear_kernel.__file__).with_name(f"linear{end}") for end in (".h", ".c", "4.c")]
    assert f"#define PANEL {linear_kernel.PANEL} " in sources[0].read_text()
    assert all('#include "linear.h"' in source.read_text() for source in sources[1:])
