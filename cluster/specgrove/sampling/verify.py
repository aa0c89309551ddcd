"""The target's own draws, and rule `match` on whole batches of trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from specgrove.core.tree import ROOT, TokenTree
from specgrove.sampling import rule_match
from specgrove.sampling.choose import best, first_max
from specgrove.sampling.noise import NoiseKey, gumbel_shared, noised_best
from specgrove.sampling.verdict import Verdict
from specgrove.sampling.warp import Warp

__all__ = ["RawLogprobs", "Sampler", "Verdict", "VerifyJob", "raw_logprobs", "verify"]

Strategy = Literal["lazy", "fused"]

FUSED_VOCAB = 1 << 12
"""Up to this a CPU, too, draws all nodes together: calls cost there, not tokens."""


@dataclass(slots=True)
class Sampler:
    """One choice of one request: its parameters and its noise."""

    warp: Warp
    key: NoiseKey

    def draw(self, logits: Tensor, position: int, path: Sequence[int] = ()) -> int:
        """The target's own token at absolute index `position`; logits [vocab], `path` as in Warp.scores."""
        scores = self.warp.scores(logits, path)[None]
        if self.warp.greedy:
            return int(first_max(scores))
        return int(noised_best(scores, [self.key], [position], 1)[0])


@dataclass(slots=True)
class VerifyJob:
    """One tree and what the target says about it."""

    sampler: Sampler
    tree: TokenTree
    logits: Tensor
    """[1 + n, vocab]: row 0 judges the first level, row i + 1 the children of node i."""
    base: int
    """Committed tokens, prompt included; the first drawn token has this absolute index."""


def verify(jobs: Sequence[VerifyJob], strategy: Strategy | None = None) -> list[Verdict]:
    """Rule `match` for each job; draws nothing that depends on the batch, so jobs may be cut in any way.

    On a CPU only visited nodes are drawn (`lazy`). On a GPU, and for small vocabularies, all nodes are drawn together
    (`fused`), with one synchronisation. Both give the same verdicts; `strategy` is for tests.
    """
    if not jobs:
        return []
    if strategy is None:
        logits = jobs[0].logits
        strategy = "lazy" if logits.device.type == "cpu" and logits.shape[1] > FUSED_VOCAB else "fused"
    return [_walk_lazily(job) for job in jobs] if strategy == "lazy" else _fused(jobs)


def _walk_lazily(job: VerifyJob) -> Verdict:
    sampler, tree = job.sampler, job.tree
    path: list[int] = []

    def draw(node: int) -> int:
        if node != ROOT:
            path.append(tree.tokens[node])
        return sampler.draw(job.logits[node + 1], job.base + len(path), path)

    return rule_match.walk(tree, draw)


def _fused(jobs: Sequence[VerifyJob]) -> list[Verdict]:
    """Every node of every job drawn in one argmax."""
    rows: list[Tensor] = []
    keys: list[NoiseKey | None] = []
    positions: list[int] = []
    for job in jobs:
        warp, tree = job.sampler.warp, job.tree
        rows.append(warp.rows(job.logits, _paths(job)))
        keys += [None if warp.greedy else job.sampler.key] * (1 + len(tree))
        positions += [job.base, *(job.base + depth for depth in tree.depths)]
    scores = torch.cat(rows) if len(rows) > 1 else rows[0]
    if any(key is not None for key in keys):
        scores = scores + gumbel_shared(keys, positions, scores.shape[1], scores.device)
    drawn: list[int] = first_max(scores).tolist()
    verdicts = []
    for job in jobs:
        mine, drawn = drawn[: len(job.tree) + 1], drawn[len(job.tree) + 1 :]
        # mypy cannot type a lambda's default; it binds this job's draws.
        verdicts.append(rule_match.walk(job.tree, lambda node, mine=mine: mine[node + 1]))  # type: ignore[misc]
    return verdicts


def _paths(job: VerifyJob) -> list[Sequence[int]]:
    """Tokens of each row's own ancestors, itself included; left empty where they make no difference."""
    tree = job.tree
    if job.sampler.warp.plain:
        return [()] * (1 + len(tree))
    return [[tree.tokens[i] for i in tree.path(node)] for node in range(ROOT, len(tree))]


@dataclass(frozen=True, slots=True)
class RawLogprobs:
    """Log-probabilities of rows before filters and penalties, at temperature 1 (natural logarithm)."""

    chosen: list[float]
    """Of each row's token."""
    top: list[list[tuple[int, float]]]
    """The k best (id, log-probability) of each row, best first."""


def raw_logprobs(logits: Tensor, tokens: Sequence[int], k: int) -> RawLogprobs:
    """log_softmax of logits [rows, vocab] at `tokens` (one per row) and at the k best ids of each row."""
    if not len(tokens):
        return RawLogprobs([], [])
    x = logits.to(torch.float32)
    total = x.logsumexp(-1, keepdim=True)
    chosen = x.gather(1, torch.tensor(list(tokens), device=x.device)[:, None]) - total
    if k == 0:
        return RawLogprobs(chosen[:, 0].tolist(), [[] for _ in tokens])
    ids, values = best(x, k)
    pairs = zip(ids.tolist(), (values - total).tolist(), strict=True)
    return RawLogprobs(chosen[:, 0].tolist(), [list(zip(i, v, strict=True)) for i, v in pairs])
