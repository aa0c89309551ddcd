"""Compiled layers: the same logits, passes filled up without a trace in the pool, nothing compiled for other sizes."""

import shutil

import pytest
import torch
from tests.engine import zoo

from specgrove.engine import compiled
from specgrove.engine.hooks import HookedModel
from specgrove.engine.kv_pool import KVPool
from specgrove.engine.kv_store import KVStore
from specgrove.engine.runner import Passes
from specgrove.engine.selfcheck import layer_shapes


def passes(network, size_for):
    """Over a pool that starts as zeros."""
    shapes, dtype = layer_shapes(network)
    store = KVStore(shapes, 64, dtype, torch.device("cpu"))
    for plane in (*store.keys, *store.values):
        plane.zero_()
    return Passes(HookedModel(network, size_for), KVPool(store), vocab_size=zoo.VOCAB, rows_end=zoo.CONTEXT)


def test_rows_are_filled_up():
    """To the next size; a pass over more than the largest is left as it is."""
    assert [compiled.size_for(n) for n in (1, 3, 8, 100, 128, 129)] == [1, 4, 8, 128, 128, 129]


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_filled_passes_are_the_same(name):
    """Logits and pool, without compiling: fillers are computed and dropped."""
    network = zoo.model(name)
    plain, filled = passes(network, int), passes(network, lambda rows: rows + 3)
    logits = [each.prefill(each.pool.open(()), range(5, 14), 4) for each in (plain, filled)]

    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)
    for one, other in zip(plain.pool.store.keys, filled.pool.store.keys, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_layers_give_the_same(monkeypatch):
    """Both inside and above the sizes; two layers share what was compiled, and other sizes add nothing."""
    monkeypatch.setattr(compiled, "SIZES", (1, 4))
    expected = zoo.passes(zoo.model("llama"))
    network = zoo.build(zoo.CONFIGS["llama"])
    count = compiled.compile_layers(network)
    own = passes(network, compiled.size_for)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for rows in (4, 1, 3, 9):
        logits = [each.prefill(each.pool.open(()), range(5, 5 + rows), rows) for each in (expected, own)]
        torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before

    assert count == 3 * network.config.num_hidden_layers
    assert graphs == 2 * 2  # norm and feed-forward, in two sizes
