"""Noise: known answers, the same words by every way to ask, uniform and independent along every part of the key."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.sampling.enumeration import GOLDEN
from tests.sampling.statistics import ALPHA, fit, independence

from specgrove.sampling import noise
from specgrove.sampling.noise import NoiseKey, Purpose, bits, gumbel, gumbel_rows, gumbel_shared, top_noised, uniform

BASE = NoiseKey(seed=0xDEADBEEF_CAFEF00D, choice=3, purpose=Purpose.DRAFT)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((noise.WORD,) * 4, (noise.WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
@pytest.mark.parametrize("library", [np.array, torch.tensor])
def test_philox_known_answers(counter, key, words, library):
    """The published Philox4x32-10 vectors (Random123's kat_vectors), with NumPy's and torch's integers."""
    schedule = [[(key[i] + r * noise._WEYL[i]) & noise.WORD for i in (0, 1)] for r in range(noise.ROUNDS)]
    got = noise._philox(
        library([[counter[0]]]), library(counter[1:])[:, None, None], library(schedule)[:, :, None, None]
    )
    assert tuple(int(np.asarray(word).item()) for word in got) == words


def test_frozen_vectors():
    """Bits, and Gumbel values to one unit in the last place, of noise version 1. A change here needs a new version."""
    assert noise.NOISE_VERSION == 1
    keys = [NoiseKey(0), BASE, NoiseKey(2**64 - 1, 2**32 - 1, Purpose.RESIDUAL)]
    positions = [0, 100, 2**31]
    assert bits(keys, positions, 6).tolist() == FROZEN_BITS
    assert bits(keys, positions, torch.tensor([151664])).tolist() == FROZEN_FAR
    got = gumbel(keys, positions, 3).numpy()
    assert np.abs(got.view(np.int32) - np.array(FROZEN_GUMBEL, dtype=np.float32).view(np.int32)).max() <= 1


FROZEN_BITS = [
    [2604552105, 2978944249, 2725873102, 3838677766, 1794333362, 3506991978],
    [1664539654, 2514065917, 879593957, 866810343, 600248242, 1069514808],
    [4072982672, 2827690725, 1691852341, 2303809049, 1712730028, 3860647899],
]
FROZEN_FAR = [[3133704935], [2335409499], [1035167197]]
FROZEN_GUMBEL = [
    [0.0699185506, -0.167909533, -0.00692142639],
    [0.712742925, 0.127464905, 1.47334731],
    [-1.08606422, -0.0714234486, 0.691677928],
]


def test_version_changes_the_noise(monkeypatch: pytest.MonkeyPatch):
    """The version is part of the counter."""
    before = bits([BASE], [5], 64)
    monkeypatch.setattr(noise, "NOISE_VERSION", 2)
    assert not torch.equal(before, bits([BASE], [5], 64))


def test_every_way_to_ask_gives_the_same_words():
    """Whole vocabulary, chosen ids, one row or many, any chunk: a word depends on (key, position, id) alone."""
    keys = [NoiseKey(seed, seed % 3, Purpose(seed % 4)) for seed in range(9)]
    positions = [7 * i for i in range(9)]
    whole = bits(keys, positions, 1003)
    assert whole.shape == (9, 1003)
    assert int(whole.min()) >= 0
    assert int(whole.max()) < 2**32
    ids = torch.randint(0, 1003, (9, 17), generator=torch.Generator().manual_seed(0))
    assert torch.equal(bits(keys, positions, ids), whole.gather(1, ids))
    assert torch.equal(bits(keys, positions, ids[0]), whole[:, ids[0]])
    assert torch.equal(torch.cat([bits([k], [t], 1003) for k, t in zip(keys, positions, strict=True)]), whole)
    assert torch.equal(bits(keys, positions, 10), whole[:, :10])


def test_small_chunks_give_the_same_words(monkeypatch: pytest.MonkeyPatch):
    """The CPU's chunk size does not show."""
    keys, positions = [NoiseKey(s) for s in range(5)], list(range(5))
    whole = bits(keys, positions, 301)
    monkeypatch.setattr(noise, "_CPU_BLOCKS", 100)
    assert torch.equal(bits(keys, positions, 301), whole)
    ids = torch.arange(5)[:, None] + torch.arange(40)
    assert torch.equal(bits(keys, positions, ids), whole.gather(1, ids))


def test_torch_path_gives_the_same_words(monkeypatch: pytest.MonkeyPatch):
    """What runs on a GPU, run with torch on the CPU, bit for bit."""
    keys, positions = [BASE, NoiseKey(1)], [0, 2**31 + 5]
    counters, schedule = noise._counters(keys, positions)
    words = noise._philox(torch.arange(64)[None], noise._torch(counters, "cpu"), noise._torch(schedule, "cpu"))
    assert torch.equal(torch.stack(words, dim=-1).flatten(1), bits(keys, positions, 256))


@pytest.mark.gpu
def test_cuda_gives_the_same_words():
    """Bits equal on CUDA and CPU; Gumbel values within one unit in the last place."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    keys, positions = [BASE, NoiseKey(1), NoiseKey(2**64 - 1)], [0, 77, 2**31 + 5]
    ids = torch.randint(0, 151_665, (3, 100))
    assert torch.equal(bits(keys, positions, 151_665, "cuda").cpu(), bits(keys, positions, 151_665))
    assert torch.equal(bits(keys, positions, ids, "cuda").cpu(), bits(keys, positions, ids))
    far, near = gumbel(keys, positions, 151_665, "cuda").cpu(), gumbel(keys, positions, 151_665)
    assert int((far.view(torch.int32) - near.view(torch.int32)).abs().max()) <= 1


def test_gumbel_is_the_documented_formula(monkeypatch: pytest.MonkeyPatch):
    """-log(-log1p(-v)) at the ends and in the middle, and the span that pruning relies on."""
    words = torch.tensor([[0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1]])
    monkeypatch.setattr(noise, "bits", lambda *_: words)
    v = [(w + 0.5) / 2**32 for w in words[0].tolist()]
    wanted = torch.tensor([-math.log(-math.log1p(-x)) for x in v], dtype=torch.float32)
    got = gumbel([BASE], [0], 6)[0]
    assert int((got.view(torch.int32) - wanted.view(torch.int32)).abs().max()) <= 1
    assert float(got[0] - got[-1]) < noise.NOISE_SPAN
    assert uniform([BASE], [0], 6)[0].tolist() == v
    assert min(v) > 0
    assert max(v) < 1


def _nibbles(words: torch.Tensor, shift: int) -> np.ndarray:
    return ((words >> shift) & 15).numpy().ravel()


SIBLINGS = {
    "position": lambda i: (BASE, [100 + i]),
    "seed": lambda i: (NoiseKey(1000 + i, 0), [100]),
    "high half of the seed": lambda i: (NoiseKey(i << 32, 0), [100]),
    "choice": lambda i: (NoiseKey(9, i), [100]),
    "purpose": lambda i: (NoiseKey(9, 0, Purpose(i)), [100]),
}


@pytest.mark.parametrize("shift", [0, 13, 28])
@pytest.mark.parametrize("part", SIBLINGS)
def test_neighbouring_keys_are_independent(part: str, shift: int):
    """Pairs of rows that differ by one in one part of the key: 256 joint cells, low, middle and high bits."""
    (a, at), (b, bt) = SIBLINGS[part](0), SIBLINGS[part](1)
    first, second = bits([a, b], at + bt, 60_000)
    assert independence(_nibbles(first, shift), _nibbles(second, shift)) > ALPHA
    assert independence(_nibbles(first[:-1], shift), _nibbles(second[1:], shift)) > ALPHA


@pytest.mark.parametrize("step", [1, 2, 3, 4, 256])
def test_neighbouring_ids_are_independent(step: int):
    """Words of ids that share a Philox block, and of ids that do not."""
    words = bits([BASE], [3], 120_000)[0]
    assert independence(_nibbles(words[:-step], 28), _nibbles(words[step:], 28)) > ALPHA
    assert independence(_nibbles(words[:-step], 0), _nibbles(words[step:], 0)) > ALPHA


def test_independence_test_has_teeth():
    """Negative control: reused noise, and noise shifted by one id, are found at once."""
    words = bits([BASE], [3], 60_000)[0]
    nibbles = _nibbles(words, 28)
    assert independence(nibbles, nibbles) < ALPHA
    assert independence(nibbles[1:], np.roll(nibbles, 1)[1:] & 7) < ALPHA


def test_uniform_bytes_and_bits():
    """Each byte is uniform, each bit fair, across many small rows as decoding asks for them."""
    words = bits([NoiseKey(seed) for seed in range(50)] * 20, [t for t in range(20) for _ in range(50)], 100)
    for shift in (0, 8, 16, 24):
        byte = ((words >> shift) & 255).numpy().ravel()
        assert fit(np.bincount(byte, minlength=256), np.ones(256)) > ALPHA
    ones = sum(((words >> bit) & 1).double() for bit in range(32)).sum()
    total = words.numel() * 32
    assert abs(float(ones) - total / 2) < 5 * math.sqrt(total) / 2


def test_one_bit_of_the_key_changes_half_the_word():
    """Avalanche: any single bit of seed, position or choice flips half of the bits."""
    whole = bits([BASE], [64], 2000)
    others = [(NoiseKey(BASE.seed ^ 1 << bit, 3, Purpose.DRAFT), 64) for bit in range(0, 64, 7)]
    others += [(NoiseKey(BASE.seed, 3 ^ 1 << bit, Purpose.DRAFT), 64) for bit in (0, 5)]
    others += [(BASE, 64 ^ 1 << bit) for bit in (0, 5, 16)]
    changed = bits([key for key, _ in others], [position for _, position in others], 2000) ^ whole
    flipped = sum(((changed >> bit) & 1) for bit in range(32)).double().mean(1)
    assert float((flipped - 16).abs().max()) < 0.5


def test_shared_rows_and_greedy_rows():
    """Rows of one key and position are equal, and a key of None is silent."""
    keys = [BASE, None, BASE, NoiseKey(1)]
    got = gumbel_shared(keys, [4, 4, 4, 5], 33, "cpu")
    assert torch.equal(got[[0]], gumbel([BASE], [4], 33))
    assert torch.equal(got[0], got[2])
    assert not got[1].any()
    assert torch.equal(got[[3]], gumbel([NoiseKey(1)], [5], 33))
    assert not gumbel_shared([None], [0], 5, "cpu").any()


@pytest.mark.parametrize("vocab", [33, noise.LARGE_VOCAB, noise.LARGE_VOCAB + 1])
def test_kept_rows_are_the_same_noise(vocab: int):
    """Rows from kept runs equal rows made alone: any order, any key, again after others took their place."""
    keys = [BASE, NoiseKey(9, 1), NoiseKey(9, 1, Purpose.DRAFT), BASE]
    for first in (0, 15, 16, 1000, 0):
        positions = [first + 3, first, first, first + noise.RUN]
        assert torch.equal(gumbel_rows(keys, positions, vocab), gumbel(keys, positions, vocab))


@pytest.mark.parametrize("vocab", [50, noise.LARGE_VOCAB + 3000])
def test_top_noised_is_the_plain_formula(vocab: int):
    """Ids and scores equal to the formula over the whole vocabulary, also where candidates are cut first."""
    logits = torch.randn(6, vocab, generator=torch.Generator().manual_seed(1)) * 6
    temperatures = [0.7, 0.0, 1.0, 0.7, 1.0, 0.3]
    keys = [BASE, BASE, BASE, BASE, NoiseKey(5), NoiseKey(6)]
    positions = [10, 10, 10, 10, 11, 12]
    ids, scores = top_noised(logits, temperatures, keys, positions, 4)
    for row, t in enumerate(temperatures):
        wanted = logits[row] / t + gumbel([keys[row]], [positions[row]], vocab)[0] if t else logits[row]
        order = wanted.argsort(descending=True, stable=True)[:4]
        assert ids[row].tolist() == order.tolist()
        assert torch.equal(scores[row], wanted[order])


def test_top_noised_ties_go_to_the_lowest_id():
    """Greedy rows: among equal logits the lowest id comes first."""
    ids, _ = top_noised(torch.zeros(1, 40).index_fill_(1, torch.tensor([9, 4, 30]), 1.0), [0.0], [BASE], [0], 3)
    assert ids.tolist() == [[4, 9, 30]]
    assert top_noised(torch.zeros(2, 40), [0.0, 0.0], [BASE] * 2, [0, 0], 1)[0].tolist() == [[0], [0]]


def test_gumbel_topk_ordered_pairs():
    """Ordered pairs drawn by top_noised have the golden without-replacement law."""
    q = torch.tensor([0.5, 0.3, 0.2])
    n = 20_000
    ids, _ = top_noised(q.log().repeat(n, 1), [1.0] * n, [NoiseKey(s) for s in range(n)], [17] * n, 2)
    pairs = GOLDEN["gumbel_topk_ordered_pairs"]["pairs_float"]
    counts = [int(((ids[:, 0] == int(k[0])) & (ids[:, 1] == int(k[2]))).sum()) for k in pairs]
    assert fit(counts, list(pairs.values())) > ALPHA
    resorted = ids.sort(dim=1).values  # negative control: the order of the draw is lost
    counts = [int(((resorted[:, 0] == int(k[0])) & (resorted[:, 1] == int(k[2]))).sum()) for k in pairs]
    assert fit(counts, list(pairs.values())) < ALPHA
