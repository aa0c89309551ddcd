"""verify(): both strategies, ties, round boundaries, and the same text as plain decoding."""

from __future__ import annotations

import random
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from tests.sampling.enumeration import GOLDEN
from tests.sampling.statistics import ALPHA, fit, total_variation, total_variation_bound

from specgrove.core.sampling import SamplingParams
from specgrove.core.tree import EMPTY, TokenTree
from specgrove.sampling.choose import first_max, first_max_by_ties
from specgrove.sampling.noise import LARGE_VOCAB, NoiseKey, gumbel
from specgrove.sampling.verify import Sampler, Verdict, VerifyJob, raw_logprobs, verify
from specgrove.sampling.warp import Warp

PARAMS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.0, repetition_penalty=1.3, min_tokens=40),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(temperature=0.9, top_p=0.8, presence_penalty=0.5, frequency_penalty=0.2),
    SamplingParams(temperature=1.3, min_p=0.05, logit_bias={3: 4.0}, banned_token_ids=(1,)),
]


def sampler(params: SamplingParams, vocab: int, seed: int = 7, choice: int = 0) -> Sampler:
    """One choice without a prompt; token 0 stops."""
    return Sampler(Warp(params, prompt=(), stop_ids=(0,), vocab_size=vocab, device="cpu"), NoiseKey(seed, choice))


def random_tree(rng: random.Random, tokens: list[int], size: int) -> TokenTree:
    """Up to `size` nodes, no duplicate siblings."""
    parents: list[int] = []
    carried: list[int] = []
    for _ in range(size):
        parent, token = rng.randint(-1, len(parents) - 1), rng.choice(tokens)
        if (parent, token) not in zip(parents, carried, strict=True):
            parents.append(parent)
            carried.append(token)
    return TokenTree(tuple(carried), tuple(parents))


@pytest.mark.parametrize("vocab", [12, LARGE_VOCAB + 500])
def test_lazy_and_fused_agree(vocab: int):
    """Mixed batches of greedy, filtered and penalised jobs: the GPU's strategy gives the CPU's verdicts."""
    rng, gen = random.Random(3), torch.Generator().manual_seed(3)
    deep = 0
    for _ in range(20 if vocab < 100 else 3):
        jobs = []
        for i, params in enumerate(PARAMS):
            logits = torch.randn(17, vocab, generator=gen) * (2 if vocab < 100 else 5)
            likely = logits.sum(0).topk(2).indices.tolist()
            logits[:, likely] += 4 if vocab < 100 else 20
            tree = random_tree(rng, likely, rng.randint(0, 16) if vocab < 100 else 16)
            jobs.append(VerifyJob(sampler(params, vocab, seed=i), tree, logits[: len(tree) + 1], rng.randint(1, 50)))
        lazy, fused = verify(jobs, "lazy"), verify(jobs, "fused")
        assert lazy == fused
        assert lazy == [verify([job])[0] for job in jobs]  # the batch does not show
        deep += sum(len(verdict.accepted) > 1 for verdict in lazy)
    assert deep > 2
    assert verify([]) == []


def test_large_vocabularies_are_cut_exactly():
    """Candidates cut before noise is made: the same token as the formula over the whole row, peaked or flat."""
    vocab = LARGE_VOCAB + 1000
    for spread in (0.0, 1.0, 5.0, 40.0):
        x = torch.randn(vocab, generator=torch.Generator().manual_seed(1)) * spread
        for params in (SamplingParams(), SamplingParams(temperature=0.6, top_p=0.9), SamplingParams(top_k=50)):
            one = sampler(params, vocab, seed=11)
            for position in range(5):
                noisy = one.warp.scores(x) + gumbel([one.key], [position], vocab)[0]
                assert one.draw(x, position) == int(noisy.argmax())


def test_ties_go_to_the_lowest_id():
    """Greedy picks the lowest of equal logits, in both implementations of first_max and through verify()."""
    x = torch.tensor([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], [-torch.inf, -torch.inf, 0.0, 0.0]])
    assert first_max(x).tolist() == first_max_by_ties(x).tolist() == [1, 0, 2]
    coarse = torch.randint(0, 5, (200, 64), generator=torch.Generator().manual_seed(0)).float()
    assert torch.equal(first_max(coarse), first_max_by_ties(coarse))
    job = VerifyJob(sampler(SamplingParams(temperature=0.0), 4), TokenTree((3, 1), (-1, -1)), x, 5)
    assert verify([job], "lazy") == verify([job], "fused") == [Verdict((1,), (1, 2))]


def markov(seed: int) -> torch.Tensor:
    """[4, 4] log-probabilities of a random chain over four tokens."""
    return torch.log_softmax(torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)), dim=-1)


def decode(
    table: torch.Tensor, key: NoiseKey, length: int, draft, params: SamplingParams, *, stuck=False
) -> list[list[int]]:
    """Rounds of one stream whose first token follows token 0; `stuck` reuses one round's noise in all (control)."""
    one = Sampler(Warp(params, prompt=(), stop_ids=(), vocab_size=4, device="cpu"), key)
    rounds: list[list[int]] = []
    text = [0]
    while len(text) <= length:
        tree = draft(text)
        logits = table[[text[-1], *tree.tokens]]
        verdict = verify([VerifyJob(one, tree, logits, 1 if stuck else len(text))])[0]
        text += verdict.emitted
        one.warp.append(verdict.emitted)
        rounds.append(list(verdict.emitted))
    return rounds


def wild_draft(seed: int):
    """Random trees of random size: good, bad and empty ones."""
    rng = random.Random(seed)
    return lambda text: random_tree(rng, [0, 1, 2, 3], rng.randint(0, 9)) if rng.random() < 0.9 else EMPTY


@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0.8, top_p=0.9, frequency_penalty=0.1)]
)
def test_same_seed_same_text(params: SamplingParams):
    """Whatever is drafted, the stream is the one that plain decoding emits."""
    for seed in range(10):
        plain = decode(markov(1), NoiseKey(seed), 60, lambda text: EMPTY, params)
        drafted = decode(markov(1), NoiseKey(seed), 60, wild_draft(seed), params)
        assert list(chain(*drafted))[:60] == list(chain(*plain))[:60]
        assert len(drafted) < len(plain)


def _bigrams(streams: list[list[list[int]]]) -> np.ndarray:
    counts = np.zeros((4, 4))
    for rounds in streams:
        text = list(chain(*rounds))
        np.add.at(counts, (text[:-1], text[1:]), 1)
    return counts


def _rows_fit(counts: np.ndarray, table: torch.Tensor) -> list[float]:
    return [fit(counts[a], table[a].exp().double().tolist()) for a in range(4)]


def test_bigrams_across_round_boundaries():
    """Pairs inside rounds, across rounds, and after long or short rounds all follow the chain; stuck noise does not."""
    table = markov(2)
    streams = [decode(table, NoiseKey(seed), 150, wild_draft(seed), SamplingParams()) for seed in range(40)]
    counts = _bigrams(streams)
    assert min(_rows_fit(counts, table)) > ALPHA
    for a in range(4):
        law = table[a].exp().tolist()
        assert total_variation(counts[a], law) < total_variation_bound(4, int(counts[a].sum()))
    across = {short: np.zeros((4, 4)) for short in (True, False)}
    for rounds in streams:
        for before, after in pairwise(rounds):
            across[len(before) == 1][before[-1], after[0]] += 1
    for boundary in across.values():
        assert boundary.sum() > 500
        assert min(_rows_fit(boundary, table)) > ALPHA
    stuck = [decode(table, NoiseKey(seed), 150, wild_draft(seed), SamplingParams(), stuck=True) for seed in range(15)]
    assert min(_rows_fit(_bigrams(stuck), table)) < ALPHA


def test_two_rows_of_a_batch_are_independent():
    """Requests of different seed, and choices of one request, in one batch: their joint law is the product (B8)."""
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(1, 1)
    law = np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2])
    for other in (lambda i: (2 * i + 1, 0), lambda i: (2 * i, 1)):
        counts = np.zeros((3, 3))
        for i in range(800):
            pair = [sampler(SamplingParams(), 3, 2 * i), sampler(SamplingParams(), 3, *other(i))]
            a, b = verify([VerifyJob(one, EMPTY, logits, 9) for one in pair])
            counts[a.emitted[0], b.emitted[0]] += 1
        assert fit(counts, law) > ALPHA
    same = np.diag(np.bincount([0] * 50 + [1] * 30 + [2] * 20) * 8)  # negative control: one noise for both
    assert fit(same, law) < ALPHA


def test_tv_bound_golden():
    """The bound of papers/algorithms.md C.3."""
    for row in GOLDEN["tv_bound"]["rows"]:
        assert round(total_variation_bound(row["K"], row["N"], row["delta"]), 6) == row["threshold"]


def test_raw_logprobs():
    """Before filters, at temperature 1: the chosen token's and the k best, best first."""
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0)).bfloat16()
    wanted = torch.log_softmax(x.float(), dim=-1)
    got = raw_logprobs(x, [4, 5, 6], 3)
    torch.testing.assert_close(torch.tensor(got.chosen), wanted[range(3), [4, 5, 6]])
    for row in range(3):
        assert [token for token, _ in got.top[row]] == wanted[row].argsort(descending=True, stable=True)[:3].tolist()
        torch.testing.assert_close(
            torch.tensor([v for _, v in got.top[row]]), wanted[row].sort(descending=True).values[:3]
        )
    assert raw_logprobs(x, [4, 5, 6], 0).top == [[], [], []]
    assert raw_logprobs(x[:0], [], 2).chosen == []


@pytest.mark.gpu
def test_cuda_verdicts():
    """The fused strategy on CUDA gives the CPU's verdicts."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    rng, gen = random.Random(3), torch.Generator().manual_seed(3)
    for vocab in (12, 2048, 151_665):
        for i, params in enumerate(PARAMS):
            logits = torch.randn(17, vocab, generator=gen) * 3
            tree = random_tree(rng, logits.sum(0).topk(4).indices.tolist(), 16)
            here = VerifyJob(sampler(params, vocab, i), tree, logits[: len(tree) + 1], 9)
            there = VerifyJob(
                Sampler(Warp(params, prompt=(), stop_ids=(0,), vocab_size=vocab, device="cuda"), NoiseKey(i)),
                tree, here.logits.cuda(), 9,
            )  # fmt: skip
            assert verify([here]) == verify([there])
