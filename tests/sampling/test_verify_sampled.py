"""The rejection rules on logits, with the request's own noise and the draft's side of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.sampling.enumeration import GOLDEN
from tests.sampling.statistics import ALPHA, fit

from specgrove.core.sampling import SamplingParams
from specgrove.core.tree import TokenTree
from specgrove.errors import TreeError
from specgrove.sampling import verify_sampled as module
from specgrove.sampling.noise import NoiseKey, Purpose, gumbel
from specgrove.sampling.proposal import Proposal, check_proposals, draw_children, truncate
from specgrove.sampling.verify import Sampler, VerifyJob, verify
from specgrove.sampling.verify_sampled import Luck, verify_sampled
from specgrove.sampling.warp import Warp

P = torch.tensor([[0.5, 0.3, 0.2], *GOLDEN["rsd_c_two_levels"]["P_cond"]]).log()
Q = torch.tensor([[0.2, 0.5, 0.3], *GOLDEN["rsd_c_two_levels"]["Q_cond"]]).log()
"""Logits after the prompt, and after each of three tokens."""


def judge(
    seed: int, branching: tuple[int, int], *, rule="recursive_rejection", base=10, m=3, params=None, purpose=None
):
    """Draft a tree of two levels and judge it, all with production noise; the emitted tokens."""
    params = params or SamplingParams()
    key = NoiseKey(seed, 0, Purpose.DRAFT)
    proposals = {-1: truncate(Q[0], 1.0, m)}
    top = draw_children(proposals[-1], branching[0], key, base)
    tokens, parents = list(top), [-1] * len(top)
    for node, token in enumerate(top):
        proposals[node] = truncate(Q[1 + token], 1.0, m)
        below = draw_children(proposals[node], branching[1], key, base + 1)
        tokens += below
        parents += [node] * len(below)
    tree = TokenTree(tuple(tokens), tuple(parents))
    check_proposals(tree, proposals, 3)
    warp = Warp(params, prompt=(), stop_ids=(), vocab_size=3, device="cpu")
    logits = P[[0, *(1 + t for t in tokens)]]
    return verify_sampled(VerifyJob(Sampler(warp, NoiseKey(seed)), tree, logits, base), rule, proposals)


def joint(run, seeds: int = 500) -> np.ndarray:
    """Counts of the first two tokens; a round of one token is continued by an empty one at the next position."""
    counts = np.zeros((3, 3))
    for seed in range(seeds):
        emitted = list(run(seed).emitted)
        if len(emitted) < 2:
            warp = Warp(SamplingParams(), prompt=(), stop_ids=(), vocab_size=3, device="cpu")
            job = VerifyJob(Sampler(warp, NoiseKey(seed)), TokenTree(), P[[1 + emitted[0]]], 11)
            emitted += verify_sampled(job, "recursive_rejection", {}).emitted
        counts[emitted[0], emitted[1]] += 1
    return counts


JOINT = (P[0].softmax(0)[:, None] * P[1:].softmax(-1)).tolist()


@pytest.mark.parametrize(
    ("rule", "branching", "m"),
    [("recursive_rejection", (2, 2), 3), ("recursive_rejection", (2, 1), 2), ("rejection", (1, 1), 3)],
)
def test_joint_law_of_two_tokens(rule: str, branching: tuple[int, int], m: int):
    """Full and truncated drafts; the second token may come from this round or the next."""
    assert fit(joint(lambda seed: judge(seed, branching, rule=rule, m=m)), JOINT) > ALPHA


def test_rng_reuse_trap():
    """Two rounds of a fair coin are independent; with the same position in both, as in a public code, they are not."""
    golden = GOLDEN["rng_reuse_trap"]
    even = torch.zeros(1, 2)
    warp = Warp(SamplingParams(), prompt=(), stop_ids=(), vocab_size=2, device="cpu")

    def first(seed: int, base: int) -> int:
        proposal = truncate(even[0], 1.0, 2)
        token = draw_children(proposal, 1, NoiseKey(seed, 0, Purpose.DRAFT), base)
        job = VerifyJob(Sampler(warp, NoiseKey(seed)), TokenTree.chain(token), even.repeat(2, 1), base)
        verdict = verify_sampled(job, "rejection", {-1: proposal})
        assert verdict.accepted == (0,)
        return verdict.emitted[0]

    fresh, reused = np.zeros(4), np.zeros(4)
    for seed in range(150):
        fresh[2 * first(seed, 5) + first(seed, 7)] += 1
        reused[2 * first(seed, 5) + first(seed, 5)] += 1
    assert fit(fresh, list(golden["joint_correct"].values())) > ALPHA
    assert fit(reused, list(golden["joint_correct"].values())) < ALPHA
    assert reused[1] == reused[2] == 0


def test_strict_inequality(monkeypatch: pytest.MonkeyPatch):
    """u = 0 never accepts a token without probability; `<=` would."""
    monkeypatch.setattr(module, "uniform", lambda *_: torch.zeros(1, 1))
    luck = Luck(NoiseKey(1), 0)
    assert GOLDEN["strict_inequality"]["correct"] == 0.0
    assert not luck.accept(0, 3, 0.0)
    assert luck.accept(0, 3, 1e-30)


def test_impossible_tokens_are_never_emitted():
    """A draft that puts its mass on tokens which the filters exclude costs its tokens and nothing else."""
    params = SamplingParams(banned_token_ids=(1,))
    law = np.array([5, 0, 2])
    counts = np.zeros(3)
    for seed in range(250):
        counts[judge(seed, (2, 1), params=params).emitted[0]] += 1
    assert counts[1] == 0
    assert fit(counts, law) > ALPHA


def test_greedy_is_match():
    """At temperature 0 both rules are the greedy walk."""
    warp = Warp(SamplingParams(temperature=0.0), prompt=(), stop_ids=(), vocab_size=3, device="cpu")
    job = VerifyJob(Sampler(warp, NoiseKey(3)), TokenTree.chain([0, 0]), P[[0, 1, 1]], 4)
    assert verify_sampled(job, "rejection", {}) == verify([job])[0]


def test_accept_uniforms_are_fresh_for_each_child():
    """Uniforms of two siblings, and of one token at two positions, differ."""
    luck = Luck(NoiseKey(1), 0)
    pattern = [[luck.accept(depth, token, 0.5) for token in range(64)] for depth in range(2)]
    assert pattern[0] != pattern[1]
    assert 10 < sum(pattern[0]) < 54


def test_truncate_ships_what_it_draws_from():
    """m ids, float32, renormalised; what is drawn is in it, at any temperature; zeros are left out."""
    logits = torch.tensor([0.0, 5.0, 3.0, -500.0, 4.0])
    proposal = truncate(logits, 0.5, 4)
    assert proposal.probabilities.dtype == torch.float32
    assert proposal.ids.tolist() == [1, 4, 2, 0]
    wanted = torch.softmax(logits[proposal.ids].double() / 0.5, 0)
    torch.testing.assert_close(proposal.probabilities.double(), wanted, rtol=1e-6, atol=0)
    assert truncate(logits, 1.0, 5).ids.tolist() == [1, 4, 2, 0]
    law = proposal.law(5)
    assert law.dtype == torch.float64
    assert abs(float(law.sum()) - 1) < 1e-15
    assert law[3] == 0
    assert len(draw_children(proposal, 9, NoiseKey(1, 0, Purpose.DRAFT), 0)) == 4


def test_draw_children_is_gumbel_topk_of_the_shipped_law():
    """Order and identity come from log p + noise at the shipped ids."""
    proposal = truncate(torch.randn(50, generator=torch.Generator().manual_seed(2)), 1.0, 8)
    key = NoiseKey(9, 0, Purpose.DRAFT)
    noisy = proposal.probabilities.log() + gumbel([key], [33], 50)[0, proposal.ids]
    assert draw_children(proposal, 3, key, 33) == proposal.ids[noisy.argsort(descending=True)[:3]].tolist()


@pytest.mark.parametrize(
    ("proposals", "why"),
    [
        ({}, "node -1 has children but came without"),
        ({-1: Proposal(torch.tensor([1, 1]), torch.tensor([0.5, 0.5]))}, "distinct ids"),
        ({-1: Proposal(torch.tensor([1, 2]), torch.tensor([0.5]))}, "one probability each"),
        ({-1: Proposal(torch.tensor([1, 7]), torch.tensor([0.5, 0.5]))}, "outside the vocabulary"),
        ({-1: Proposal(torch.tensor([1, 2]), torch.tensor([0.5, 0.0]))}, "positive"),
        ({-1: Proposal(torch.tensor([1, 2]), torch.tensor([0.5, torch.nan]))}, "positive"),
        ({-1: Proposal(torch.tensor([0, 2]), torch.tensor([0.5, 0.5]))}, "child 1"),
    ],
)
def test_bad_laws_are_refused(proposals, why: str):
    """A hostile draft's law is a TreeError that says what is wrong."""
    with pytest.raises(TreeError, match=why):
        check_proposals(TokenTree((1,), (-1,)), proposals, 3)


def test_rejection_needs_a_chain():
    """A branching tree under `rejection` is a TreeError."""
    warp = Warp(SamplingParams(), prompt=(), stop_ids=(), vocab_size=3, device="cpu")
    job = VerifyJob(Sampler(warp, NoiseKey(3)), TokenTree((0, 1), (-1, -1)), P[[0, 1, 2]], 4)
    with pytest.raises(TreeError, match="chain"):
        verify_sampled(job, "rejection", {-1: truncate(Q[0], 1.0, 3)})
