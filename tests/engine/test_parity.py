"""The hooks against transformers itself, float32, on every covered architecture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.engine import zoo

from specgrove.engine import attention, batch
from specgrove.engine.hooks import NAME

ATOL = 2e-5
NAMES = sorted(zoo.CONFIGS)


def ids(seed: int, n: int) -> list[int]:
    """n token ids."""
    return np.random.default_rng(seed).integers(3, zoo.VOCAB, size=n).tolist()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal within float32 rounding, relative to the spread of the logits."""
    assert float((ours - theirs).abs().max() / theirs.std()) < ATOL


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_that_of_generate(name):
    """Thirty tokens, prompt longer than the sliding windows, prefilled in chunks of seven."""
    network, prompt = zoo.model(name), ids(1, 25)
    network.set_attn_implementation("sdpa")
    expected = network.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, 25),
        max_new_tokens=30,
        do_sample=False,
        eos_token_id=1000,
        pad_token_id=0,
    )
    network.set_attn_implementation(NAME)
    engine = zoo.passes(network)
    sequence = engine.pool.open(prompt)
    logits = engine.prefill(sequence, prompt, chunk=7)
    out = []
    for _ in range(30):
        out.append(int(logits[0].argmax()))
        logits = engine.forward([zoo.chunk(sequence, out[-1:])])
        sequence.commit([0], out[-1:])

    assert expected[0, 25:].tolist() == out


@pytest.mark.parametrize("name", NAMES)
def test_ragged_pass_equals_plain_passes(name):
    """Trees of three sessions, a lone token, a fresh prompt and a later chunk of another, in one pass."""
    network, rng = zoo.model(name), np.random.default_rng(5)
    engine = zoo.passes(network)
    sequences, texts, expected, segments = [], [], [], []
    for k, n in enumerate((20, 31, 3, 17, 24)):
        tokens = ids(10 + k, n)
        sequences.append(engine.pool.open(tokens))
        texts.append(tokens)
        engine.prefill(sequences[-1], tokens, chunk=16)
    for k, size in enumerate((6, 9, 4)):
        tree = zoo.random_tree(rng, size)
        segments.append(zoo.tree_segment(sequences[k], 7, tree))
        expected += [zoo.plain(network, texts[k] + path)[-1] for path in zoo.paths(7, tree)]
    segments.append(zoo.chunk(sequences[3], [9]))
    expected.append(zoo.plain(network, [*texts[3], 9])[-1])
    fresh, more = ids(30, 40), ids(31, 21)
    segments.append(zoo.chunk(engine.pool.open(fresh), fresh))
    expected += list(zoo.plain(network, fresh))
    segments.append(zoo.chunk(sequences[4], more))
    expected += list(zoo.plain(network, texts[4] + more)[24:])

    close(engine.forward(segments), torch.stack(expected))


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_tree_grown_depth_by_depth(name):
    """A draft's way: each depth is its own pass over rows reserved before; the commit keeps one path."""
    network, prompt = zoo.model(name), ids(2, 19)
    engine = zoo.passes(network)
    sequence = engine.pool.open(prompt)
    engine.prefill(sequence, prompt, chunk=64)
    engine.forward([zoo.chunk(sequence, [5])])
    sees = [[True]]
    tokens, parents = [5], [-1]
    for depth in range(1, 4):
        level = [i for i in range(len(tokens)) if len(zoo_path(parents, i)) == depth]
        new = [(p, 10 * depth + 3 * p + c) for p in level for c in range(2)]
        sequence.reserve([19 + depth] * len(new))
        first, rows = len(tokens), sequence.reserved
        mask = np.zeros((len(new), rows), dtype=bool)
        for j, (parent, token) in enumerate(new):
            mask[j, : len(sees[parent])] = sees[parent]
            mask[j, first + j] = True
            sees.append(mask[j].tolist())
            tokens.append(token)
            parents.append(parent)
        segment = batch.Segment(sequence, tokens[first:], [19 + depth] * len(new), mask, range(len(new)))
        logits = engine.forward([segment])
        for j in range(len(new)):
            path = [tokens[i] for i in zoo_path(parents, first + j)]
            close(logits[j], zoo.plain(network, prompt + path)[-1])
    path = zoo_path(parents, len(tokens) - 1)
    sequence.commit(path, [tokens[i] for i in path])

    after = engine.forward([zoo.chunk(sequence, [11])])

    close(after, zoo.plain(network, [*prompt, *(tokens[i] for i in path), 11])[-1:])
    engine.pool.check()


def zoo_path(parents: list[int], node: int) -> list[int]:
    """Rows from the pending token (row 0) down to `node`."""
    out = []
    while node >= 0:
        out.append(node)
        node = parents[node]
    return out[::-1]


@pytest.mark.parametrize("gather_rows", [0, 10_000])
def test_padded_and_single_calls_agree(gather_rows, monkeypatch):
    """The same pass with a call per segment, and with all segments in one padded call."""
    network = zoo.model("gemma3")
    engine = zoo.passes(network)
    engine._gather_rows = gather_rows
    shared = []
    monkeypatch.setattr(attention.Padded, "attend", spy(attention.Padded.attend, shared))
    texts = [ids(40 + k, n) for k, n in enumerate((5, 30, 18))]
    sequences = [engine.pool.open(t) for t in texts]
    for sequence, text in zip(sequences, texts, strict=True):
        engine.prefill(sequence, text, chunk=64)
    trees = [zoo.random_tree(np.random.default_rng(k), n) for k, n in enumerate((3, 1, 6))]

    logits = engine.forward([zoo.tree_segment(s, 4, t) for s, t in zip(sequences, trees, strict=True)])

    expected = [zoo.plain(network, text + p)[-1] for text, t in zip(texts, trees, strict=True) for p in zoo.paths(4, t)]
    close(logits, torch.stack(expected))
    assert bool(shared) == (gather_rows > 0)


def spy(function, calls):
    """`function`, counted."""

    def counted(*args):
        calls.append(1)
        return function(*args)

    return counted


def test_a_forgotten_window_would_be_seen(monkeypatch):
    """Negative control: without the sliding window the parity test fails."""
    monkeypatch.setattr(attention.AttentionPlan, "_narrowed", staticmethod(lambda span, window: False))
    with pytest.raises(AssertionError):
        test_ragged_pass_equals_plain_passes("mistral")


def test_a_causal_mask_in_place_of_the_tree_mask_would_be_seen(monkeypatch):
    """Negative control: siblings that see each other change the logits."""
    monkeypatch.setattr(zoo, "tree_segment", without_mask(zoo.tree_segment))
    with pytest.raises(AssertionError):
        test_ragged_pass_equals_plain_passes("llama")


def without_mask(make):
    """A maker of tree segments that forgets the mask."""

    def made(*args):
        segment = make(*args)
        segment.mask = None
        return segment

    return made
