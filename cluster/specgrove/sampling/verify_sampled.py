"""The rules that need the draft's laws, run on real logits with the request's own noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from specgrove.core.tree import ROOT, TokenTree
from specgrove.errors import TreeError
from specgrove.sampling import rule_recursive, rule_rejection
from specgrove.sampling.choose import first_max
from specgrove.sampling.noise import NoiseKey, Purpose, gumbel, uniform
from specgrove.sampling.proposal import Proposal
from specgrove.sampling.verdict import Verdict
from specgrove.sampling.verify import VerifyJob, verify


@dataclass(frozen=True, slots=True)
class Luck:
    """The random decisions of the rejection rules, made of the request's noise and keyed by absolute position."""

    key: NoiseKey
    base: int

    def accept(self, depth: int, token: int, ratio: float) -> bool:
        """u < ratio, strictly: a token without probability is never accepted (papers/algorithms.md B9)."""
        ids = torch.tensor([token])
        return float(uniform([replace(self.key, purpose=Purpose.ACCEPT)], [self.base + depth], ids)) < ratio

    def draw(self, depth: int, law: Tensor) -> int:
        """argmax of log law + Gumbel noise; tokens without mass are never drawn."""
        key = replace(self.key, purpose=Purpose.RESIDUAL)
        noise = gumbel([key], [self.base + depth], len(law), law.device)[0]
        return int(first_max((law.log() + noise)[None]))


def verify_sampled(
    job: VerifyJob, rule: Literal["rejection", "recursive_rejection"], q: Mapping[int, Proposal]
) -> Verdict:
    """Judge a tree by a rule that needs the draft's laws; `q` holds them by node, -1 for the root.

    Greedy requests are judged by `match`. Raises TreeError where a child has no mass in its law (check_proposals finds
    that on arrival) and for `rejection` on a tree that is no chain.
    """
    warp, tree, vocab = job.sampler.warp, job.tree, job.logits.shape[1]
    if warp.greedy:
        return verify([job])[0]

    def target(node: int) -> Tensor:
        path = [tree.tokens[i] for i in tree.path(node)]
        return torch.softmax(warp.scores(job.logits[node + 1], path).double(), dim=-1)

    def draft(node: int) -> Tensor:
        return q[node].law(vocab, job.logits.device)

    luck = Luck(job.sampler.key, job.base)
    if rule == "recursive_rejection":
        return rule_recursive.walk(tree, target, draft, luck)
    return rule_rejection.walk(_chain(tree), target, draft, luck)


def _chain(tree: TokenTree) -> tuple[int, ...]:
    if tree.parents != tuple(range(ROOT, len(tree) - 1)):
        raise TreeError("rule rejection judges one chain, and this tree branches")
    return tree.tokens
