"""The draft's side of the rules that need its distribution: truncate, draw from exactly that, ship exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from specgrove.core.tree import TokenTree
from specgrove.errors import TreeError
from specgrove.sampling.choose import best
from specgrove.sampling.noise import NoiseKey, gumbel


@dataclass(frozen=True, slots=True)
class Proposal:
    """The draft's law at one node, as it crosses the wire: its m ids and their probabilities."""

    ids: Tensor
    """[m] int64, distinct."""
    probabilities: Tensor
    """[m] float32, positive. The law is these numbers divided by their sum."""

    def law(self, vocab_size: int, device: torch.device | str = "cpu") -> Tensor:
        """[vocab_size] float64, summing to one."""
        out = torch.zeros(vocab_size, dtype=torch.float64, device=device)
        mass = self.probabilities.to(device, torch.float64)
        out[self.ids.to(device)] = mass / mass.sum()
        return out


def truncate(logits: Tensor, temperature: float, m: int) -> Proposal:
    """The m most likely tokens of softmax(logits / temperature), renormalised; [vocab] -> m or fewer ids.

    Tokens whose probability is 0 in float32 are left out: the draft could never draw them.
    """
    ids, logp = best(torch.log_softmax(logits.double() / temperature, dim=-1)[None], m)
    probabilities = torch.softmax(logp[0], dim=-1).to(torch.float32)
    kept = probabilities > 0
    return Proposal(ids[0][kept], probabilities[kept])


def draw_children(proposal: Proposal, k: int, key: NoiseKey, position: int) -> list[int]:
    """k tokens without replacement from exactly `proposal`, in the order of their draw (Gumbel-top-k).

    Fewer when the proposal holds fewer; that depends on the law and not on the draw, so it is allowed (A.5). `key` has
    purpose DRAFT: noise that the target's draws use would bias the rules that test the draft's law.
    """
    noise = gumbel([key], [position], proposal.ids, proposal.ids.device)[0]
    order = (proposal.probabilities.double().log() + noise).argsort(descending=True, stable=True)
    return [int(token) for token in proposal.ids[order[:k]].tolist()]


def check_proposals(tree: TokenTree, proposals: Mapping[int, Proposal], vocab_size: int) -> None:
    """Refuse laws that the rules cannot judge by; raises TreeError that names the node. -1 is the root."""
    for node, below in enumerate(tree.children(), start=-1):
        if not below:
            continue
        law = proposals.get(node)
        if law is None:
            raise TreeError(f"node {node} has children but came without the law they were drawn from")
        ids = law.ids.tolist()
        if law.probabilities.shape != law.ids.shape or len(set(ids)) != len(ids):
            raise TreeError(f"the law of node {node} needs distinct ids and one probability each")
        if not all(0 <= token < vocab_size for token in ids):
            raise TreeError(f"the law of node {node} holds a token outside the vocabulary of {vocab_size}")
        if not bool((torch.isfinite(law.probabilities) & (law.probabilities > 0)).all()):
            raise TreeError(f"the law of node {node} needs positive, finite probabilities")
        stray = {tree.tokens[child] for child in below}.difference(ids)
        if stray:
            raise TreeError(f"node {node} has child {min(stray)}, which its law cannot draw")
