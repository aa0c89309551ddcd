"""Filters and penalties against transformers' processors, OpenAI's formula, and themselves along tree paths."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.sampling.enumeration import GOLDEN, close
from transformers.generation import logits_process as hf

from specgrove.core.sampling import SamplingParams
from specgrove.errors import RequestError
from specgrove.sampling import filters
from specgrove.sampling.warp import Warp

VOCAB = 300
PROMPT = [5, 7, 7, 250, 11]
OUTPUT = [9, 9, 7, 30]


def logits(seed: int = 0, vocab: int = VOCAB, spread: float = 3.0) -> torch.Tensor:
    """[vocab] random logits."""
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * spread


def warp(params: SamplingParams, *, out=(), prompt=PROMPT, stops=(), vocab: int = VOCAB) -> Warp:
    """A Warp with some output committed."""
    made = Warp(params, prompt=prompt, stop_ids=stops, vocab_size=vocab, device="cpu")
    made.append(out)
    return made


def assert_same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Same excluded tokens, same scores to rounding."""
    assert torch.equal(got.isinf(), wanted.isinf())
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


PROCESSORS = {
    "temperature": ({"temperature": 0.7}, lambda: hf.TemperatureLogitsWarper(0.7)),
    "top_k": ({"top_k": 17}, lambda: hf.TopKLogitsWarper(17)),
    "top_k over the vocabulary": ({"top_k": 10_000}, lambda: hf.TopKLogitsWarper(10_000)),
    "top_p": ({"top_p": 0.8}, lambda: hf.TopPLogitsWarper(0.8)),
    "top_p small": ({"top_p": 0.01}, lambda: hf.TopPLogitsWarper(0.01)),
    "min_p": ({"min_p": 0.05}, lambda: hf.MinPLogitsWarper(0.05)),
    "min_p of one": ({"min_p": 1.0}, lambda: hf.MinPLogitsWarper(1.0)),
    "repetition": ({"repetition_penalty": 1.3}, lambda: hf.RepetitionPenaltyLogitsProcessor(1.3)),
    "repetition under one": ({"repetition_penalty": 0.8}, lambda: hf.RepetitionPenaltyLogitsProcessor(0.8)),
    "bias": (
        {"logit_bias": {3: 5.0, 200: -100.0}},
        lambda: hf.SequenceBiasLogitsProcessor([[[3], 5.0], [[200], -100.0]]),
    ),
    "banned": ({"banned_token_ids": (4, 9)}, lambda: hf.SuppressTokensLogitsProcessor([4, 9])),
    "min_tokens": (
        {"min_tokens": 5},
        lambda: hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), 5, eos_token_id=[2, 9]),
    ),
    "min_tokens reached": (
        {"min_tokens": 4},
        lambda: hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), 4, eos_token_id=[2, 9]),
    ),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_each_processor_is_transformers(name: str):
    """One processor at a time, on several rows of logits."""
    fields, make = PROCESSORS[name]
    processor = make()
    made = warp(SamplingParams(**fields), out=OUTPUT, stops=(2, 9))
    for seed in range(5):
        x = logits(seed)
        wanted = processor(torch.tensor([PROMPT + OUTPUT]), x.clone()[None])[0]
        assert_same(made.scores(x), wanted)


def test_order_is_transformers():
    """All together, in the order in which generate() builds its list; another order gives other scores."""
    params = SamplingParams(
        temperature=0.6, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.2, logit_bias={9: 12.0}, min_tokens=6
    )
    chain = [
        hf.SequenceBiasLogitsProcessor([[[9], 12.0]]),
        hf.RepetitionPenaltyLogitsProcessor(1.2),
        hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, eos_token_id=[2]),
        hf.TemperatureLogitsWarper(0.6),
        hf.TopKLogitsWarper(40),
        hf.TopPLogitsWarper(0.9),
        hf.MinPLogitsWarper(0.02),
    ]
    made = warp(params, out=OUTPUT, stops=(2,))
    ids = torch.tensor([PROMPT + OUTPUT])
    differs = False
    for seed in range(5):
        wanted = swapped = logits(seed)[None]
        for processor in chain:
            wanted = processor(ids, wanted)
        for processor in (chain[1], chain[0], *chain[2:]):
            swapped = processor(ids, swapped)
        assert_same(made.scores(logits(seed)), wanted[0])
        differs |= not torch.allclose(swapped[0], wanted[0])
    assert differs


def test_top_p_and_top_k_compound():
    """top-p counts the mass of what top-k left, not of the whole row."""
    x = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05]).log()
    made = warp(SamplingParams(top_k=2, top_p=0.69), vocab=5, prompt=())
    assert made.scores(x).isfinite().tolist() == [True, False, False, False, False]
    alone = warp(SamplingParams(top_p=0.69), vocab=5, prompt=())
    assert alone.scores(x).isfinite().tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("case", ["a", "b"])
def test_top_p_direction(case: str):
    """The golden nucleus; the inverted mask of a public repository gives another law."""
    golden = GOLDEN["top_p_direction"][case]
    p = torch.tensor(golden["p"])
    kept = torch.softmax(filters.keep(p.log()[None], top_p=golden["top_p"])[0], dim=-1)
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(kept.tolist(), golden["correct"], strict=True))
    order = p.argsort(descending=True)
    inverted = p.clone()
    inverted[order[p[order].cumsum(0) <= 1 - golden["top_p"]]] = 0
    inverted /= inverted.sum()
    assert torch.allclose(inverted, torch.tensor(golden["specexec_repo"]), atol=1e-6)
    assert not torch.allclose(inverted, kept, atol=1e-3)


@pytest.mark.parametrize("first_look", [4, 64, 5000])
@pytest.mark.parametrize("spread", [0.1, 2.0, 8.0])
def test_nucleus_is_smallest(first_look: int, spread: float):
    """Kept mass reaches top_p, and without the smallest kept token it would not, however far the first look went."""
    x = torch.stack([logits(seed, 5000, spread) for seed in range(4)])
    p = torch.softmax(x.double(), dim=-1)
    for top_p in (0.1, 0.5, 0.9, 0.999):
        got = filters.keep(x, top_p=top_p, first_look=first_look)
        assert torch.equal(got, filters.keep(x, top_p=top_p, first_look=5000))
        kept = p * got.isfinite()
        least = torch.where(got.isfinite(), p, 1.0).amin(-1)
        assert bool((kept.sum(-1) >= top_p - 1e-6).all())
        assert bool((kept.sum(-1) - least < top_p + 1e-6).all())


@pytest.mark.parametrize("first_look", [2, 12])
def test_ties_at_the_edge(first_look: int):
    """top-p keeps the lowest ids among equals; top-k and min-p keep all equals; all equal at the end keeps one."""
    x = torch.tensor([[1.0, 2.0, 1.0, 1.0, 1.0, 0.0, -5.0, 1.0, -9.0, -9.0, -9.0, -9.0]])

    def kept(**filter_) -> list[int]:
        return filters.keep(x, first_look=first_look, **filter_)[0].isfinite().nonzero()[:, 0].tolist()

    assert kept(top_k=3) == [0, 1, 2, 3, 4, 7]
    assert kept(min_p=math.exp(-1)) == [0, 1, 2, 3, 4, 7]
    mass = torch.softmax(x, dim=-1)[0]
    assert kept(top_p=float(mass[1] + 1.5 * mass[0])) == [0, 1, 2]
    assert kept(top_k=3, top_p=float(mass[1] + 1.5 * mass[0]) / float(mass[[0, 1, 2, 3, 4, 7]].sum())) == [0, 1, 2]
    assert kept(top_p=0.0) == [1]
    assert filters.keep(torch.zeros(1, 12), top_p=0.2, first_look=first_look)[0].isfinite().nonzero().tolist() == [
        [0], [1], [2],
    ]  # fmt: skip


def test_openai_penalties():
    """logit - count * frequency - (count > 0) * presence over output tokens; the prompt does not count."""
    x = logits()
    got = warp(SamplingParams(presence_penalty=0.7, frequency_penalty=0.4), out=OUTPUT).scores(x)
    wanted = x.clone()
    for token, count in ((9, 2), (7, 1), (30, 1)):
        wanted[token] -= count * 0.4 + 0.7
    torch.testing.assert_close(got, wanted)
    assert got[5] == x[5]


def test_allowed_tokens():
    """Only allowed ids stay, less the banned ones."""
    got = warp(SamplingParams(allowed_token_ids=(1, 4, 9), banned_token_ids=(4,))).scores(logits())
    assert got.isfinite().nonzero()[:, 0].tolist() == [1, 9]


EVERYTHING = SamplingParams(
    temperature=0.8, top_k=100, top_p=0.95, min_p=0.001, repetition_penalty=1.2, presence_penalty=0.5,
    frequency_penalty=0.3, logit_bias={8: 2.0}, banned_token_ids=(3,), min_tokens=6,
)  # fmt: skip


@pytest.mark.parametrize("params", [EVERYTHING, replace(EVERYTHING, temperature=0.0)])
def test_a_path_counts_as_if_committed(params: SamplingParams):
    """A node's scores are bit for bit those it will have once its ancestors are committed (B12)."""
    best = logits().topk(3).indices.tolist()
    path = [*best, best[0], 7]
    before, after = warp(params, out=OUTPUT, stops=(2,)), warp(params, out=OUTPUT + path, stops=(2,))
    assert torch.equal(before.scores(logits(), path), after.scores(logits()))
    assert not torch.equal(before.scores(logits()), after.scores(logits()))  # the committed text alone is not enough


def test_rows_are_single_rows():
    """Nodes judged together get what each would get alone, penalties and min_tokens by their own depth."""
    made = warp(EVERYTHING, out=OUTPUT, stops=(2,))
    paths = [[], [4], [4, 4], [2, 9, 12], [7]]
    x = torch.stack([logits(seed) for seed in range(5)])
    x[:, 2] = 50.0  # the stop id would win wherever it is not banned
    together = made.rows(x, paths)
    for row, path in enumerate(paths):
        assert torch.equal(together[row], made.scores(x[row], path))
    assert together[:, 2].isfinite().tolist() == [False, False, True, True, False]


def test_plain_and_greedy():
    """`plain` says that nothing but temperature is left; greedy skips temperature and filters."""
    assert warp(SamplingParams()).plain
    assert warp(SamplingParams(temperature=0.3)).plain
    assert warp(SamplingParams(temperature=0.0, top_p=0.5, top_k=3, min_p=0.2)).plain
    assert not warp(SamplingParams(top_p=0.5)).plain
    assert not warp(SamplingParams(temperature=0.0, repetition_penalty=1.1)).plain
    assert torch.equal(warp(SamplingParams(temperature=0.0, top_p=0.5)).scores(logits()), logits())
    waiting = warp(SamplingParams(temperature=0.0, min_tokens=2), stops=(2,))
    assert not waiting.plain
    waiting.append([8, 8])
    assert waiting.plain
    assert warp(SamplingParams(top_k=VOCAB)).plain


def test_low_precision_logits_become_float32():
    """Scores of bfloat16 logits are float32 and unrounded by the warp."""
    x = logits().bfloat16()
    assert torch.equal(warp(SamplingParams(temperature=0.7)).scores(x), x.float() / 0.7)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": 1e-9}, "temperature"),
        ({"top_k": -2}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": math.nan}, "frequency_penalty"),
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: math.nan}}, "logit_bias"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids"),
        ({"banned_token_ids": (VOCAB,)}, "banned_token_ids"),
        ({"banned_token_ids": tuple(range(VOCAB))}, "banned_token_ids"),
        ({"allowed_token_ids": (2,), "min_tokens": 3}, "allowed_token_ids"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"seed": 2**64}, "seed"),
    ],
)
def test_absurd_parameters_are_refused(fields, param: str):
    """A RequestError names the parameter."""
    with pytest.raises(RequestError) as caught:
        warp(SamplingParams(**fields), stops=(2,))
    assert caught.value.param == param


def test_golden_helper_is_strict():
    """Negative control of close()."""
    assert not close([0.5, 0.5], [0.5, 0.4999999])
