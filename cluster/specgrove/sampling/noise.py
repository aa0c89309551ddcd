"""Noise keyed by position: the same bits on every device, so that drafts and targets can share one draw.

The bits are Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with
key = the seed's two halves and counter = (id // 4, position, choice, 256 * version + purpose); token `id` takes word
id % 4 of its block. Different (version, seed, choice, purpose, position, id) never share a word of a block. Whoever
changes a bit of this raises NOISE_VERSION: seeds that clients hold would otherwise give other text.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specgrove.sampling.choose import best

NOISE_VERSION = 1
ROUNDS = 10
WORD = 0xFFFFFFFF
NOISE_SPAN = 26.01
"""Largest Gumbel value less the smallest one (22.874 and -3.130), rounded up."""
LARGE_VOCAB = 1 << 14
"""Above this the noise of a row costs more than finding out which tokens need it."""
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
RUN = 16
"""Positions whose noise a CPU makes at once, and keeps, for vocabularies that are not large: calls cost there."""
_CPU_BLOCKS = 1 << 15
"""Blocks computed at once on a CPU: four int64 words each, so that a round stays in the second-level cache."""


class Purpose(IntEnum):
    """What a draw decides; draws of different purpose are independent."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """Whose noise: the request's seed (unsigned 64 bits), the choice index (32 bits) and the purpose."""

    seed: int
    choice: int = 0
    purpose: Purpose = Purpose.TARGET


def bits(
    keys: Sequence[NoiseKey], positions: Sequence[int], ids: Tensor | int, device: torch.device | str = "cpu"
) -> Tensor:
    """32 random bits per (key, position, id), as int64 in [0, 2^32).

    One row per (keys[i], positions[i]). `ids` is a vocabulary size V (result [rows, V]) or ids, [m] for all rows or
    [rows, m] (result [rows, m]). Integer operations only: equal on CPU and CUDA.
    """
    if isinstance(ids, int):
        words = _words(keys, positions, torch.arange((ids + 3) // 4, device=device)[None], device)
        return words.flatten(1)[:, :ids]
    wanted = ids.to(device) if ids.dim() == 2 else ids.to(device)[None]
    words = _words(keys, positions, wanted >> 2, device)
    lanes = (wanted & 3).expand(words.shape[:2])
    return words.gather(2, lanes[..., None])[..., 0]


def uniform(
    keys: Sequence[NoiseKey], positions: Sequence[int], ids: Tensor | int, device: torch.device | str = "cpu"
) -> Tensor:
    """float64 in (0, 1): (bits + 1/2) / 2^32, never 0 and never 1; shapes as in bits()."""
    return bits(keys, positions, ids, device).to(torch.float64).add_(0.5).mul_(2.0**-32)


def gumbel(
    keys: Sequence[NoiseKey], positions: Sequence[int], ids: Tensor | int, device: torch.device | str = "cpu"
) -> Tensor:
    """Standard Gumbel as float32 in [-3.14, 22.88]; shapes as in bits().

    -log(-log1p(-v)) for v = uniform(), computed in float64 and rounded; devices agree to one unit in the last place.
    1 - v has 33 bits and is exact in float64, so log(1 - v) is as good as log1p(-v), and four times as fast.
    """
    rest = bits(keys, positions, ids, device).to(torch.float64).neg_().add_(2.0**32 - 0.5).mul_(2.0**-32)
    return rest.log_().neg_().log_().neg_().to(torch.float32)


def gumbel_rows(
    keys: Sequence[NoiseKey], positions: Sequence[int], vocab: int, device: torch.device | str = "cpu"
) -> Tensor:
    """gumbel() of whole rows, [rows, vocab]; decoding asks for one position after another, so that is made cheap."""
    if vocab > LARGE_VOCAB or torch.device(device).type != "cpu":
        return gumbel(keys, positions, vocab, device)
    return torch.stack([_run(k, p // RUN, vocab)[p % RUN] for k, p in zip(keys, positions, strict=True)])


@functools.lru_cache(maxsize=128)  # at most 128 MB
def _run(key: NoiseKey, run: int, vocab: int) -> Tensor:
    """[RUN, vocab] noise of a run of positions."""
    return gumbel([key] * RUN, range(run * RUN, (run + 1) * RUN), vocab)


def top_noised(
    logits: Tensor, temperatures: Sequence[float], keys: Sequence[NoiseKey], positions: Sequence[int], k: int
) -> tuple[Tensor, Tensor]:
    """The k tokens most likely to be the target's draw at each row, best first (design.md section 2).

    logits [rows, vocab]; ids [rows, k] int64 and scores [rows, k] float32 on the logits' device, where
    score = logits / T + g, and the logits alone in rows with T = 0: log-probabilities plus noise, up to a constant of
    the row. This is sampling without replacement from softmax(logits / T) (Gumbel-top-k); rows at one position of one
    key share their noise.
    """
    scores = logits.float()
    if not any(t > 0 for t in temperatures):
        return best(scores, k)
    scales = [[t if t > 0 else 1.0] for t in temperatures]
    scale = scales[0][0] if scales.count(scales[0]) == len(scales) else torch.tensor(scales, device=scores.device)
    sampled = [key if t > 0 else None for key, t in zip(keys, temperatures, strict=True)]
    return noised_best(scores / scale, sampled, positions, k)


def noised_best(
    scores: Tensor, keys: Sequence[NoiseKey | None], positions: Sequence[int], k: int
) -> tuple[Tensor, Tensor]:
    """Ids and values, [rows, k], of the k best of scores + noise; a key of None adds none. scores [rows, vocab].

    On a CPU a large vocabulary is first cut to the tokens that can win: noise spans no more than NOISE_SPAN, so what
    lies further than that below the k-th best score cannot reach it.
    """
    vocab = scores.shape[1]
    if scores.device.type == "cpu" and vocab > LARGE_VOCAB:
        floor = scores.amax(-1, keepdim=True) if k == 1 else scores.topk(k, dim=-1).values[:, -1:]
        floor = floor - NOISE_SPAN - 1e-6 * floor.abs()  # the last term covers rounding in score + noise
        able = torch.from_numpy(np.flatnonzero((scores >= floor).numpy().any(axis=0)))
        if len(able) * 4 < vocab:
            ids, values = best(scores[:, able] + gumbel_shared(keys, positions, able, scores.device), k)
            return able[ids], values
    return best(scores + gumbel_shared(keys, positions, vocab, scores.device), k)


def gumbel_shared(
    keys: Sequence[NoiseKey | None], positions: Sequence[int], ids: Tensor | int, device: torch.device | str
) -> Tensor:
    """gumbel() where rows may repeat (key, position), computed once each, and a key of None gives a row of zeros.

    `ids` is a vocabulary size or [m] ids for all rows.
    """
    slots: dict[tuple[NoiseKey, int], int] = {}
    rows = [
        slots.setdefault((key, position), len(slots)) if key is not None else -1
        for key, position in zip(keys, positions, strict=True)
    ]
    width = ids if isinstance(ids, int) else len(ids)
    if not slots:
        return torch.zeros((len(rows), width), device=device)
    of, at = [key for key, _ in slots], [position for _, position in slots]
    noise = gumbel_rows(of, at, ids, device) if isinstance(ids, int) else gumbel(of, at, ids, device)
    if rows == list(range(len(slots))):
        return noise
    if len(slots) == 1 and -1 not in rows:
        return noise.expand(len(rows), width)
    if -1 in rows:
        noise = torch.cat((noise, noise.new_zeros((1, width))))
    return noise[torch.tensor([row % len(noise) for row in rows], device=device)]


def _words(keys: Sequence[NoiseKey], positions: Sequence[int], blocks: Tensor, device: torch.device | str) -> Tensor:
    """[rows, n, 4] int64: Philox words of the blocks ([1 or rows, n]).

    NumPy does the work on a CPU: the same operators, a tenth of torch's cost per operation on small rows.
    """
    if torch.device(device).type != "cpu":
        counters, schedule = _counters(keys, positions)
        return torch.stack(_philox(blocks, _torch(counters, device), _torch(schedule, device)), dim=-1)
    out = np.empty((len(keys), blocks.shape[1], 4), dtype=np.int64)
    step = max(1, _CPU_BLOCKS // max(1, blocks.shape[1]))
    for top in range(0, len(keys), step):
        part = slice(top, top + step)
        counters, schedule = _counters(keys[part], positions[part])
        block = blocks.numpy() if len(blocks) == 1 else blocks.numpy()[part]
        for lane, word in enumerate(_philox(block, counters, schedule)):
            out[part, :, lane] = word
    return torch.from_numpy(out)


def _torch(values: Any, device: torch.device | str) -> Tensor:
    return torch.from_numpy(values).to(device, non_blocking=True)


def _counters(keys: Sequence[NoiseKey], positions: Sequence[int]) -> tuple[Any, Any]:
    """Counter words 1 to 3, [3, rows, 1], and the key schedule, [ROUNDS, 2, rows, 1]; both int64."""
    counters = np.array(
        [list(positions), [k.choice for k in keys], [NOISE_VERSION << 8 | k.purpose for k in keys]], dtype=np.int64
    )
    seeds = np.array([[k.seed & WORD for k in keys], [k.seed >> 32 & WORD for k in keys]], dtype=np.int64)
    steps = np.arange(ROUNDS, dtype=np.int64)[:, None, None] * np.array(_WEYL, dtype=np.int64)[None, :, None]
    return counters[:, :, None], ((seeds[None] + steps) & WORD)[..., None]


def _philox(c0: Any, counters: Any, schedule: Any) -> tuple[Any, Any, Any, Any]:
    """Philox4x32 on int64 arrays (NumPy or torch) that hold unsigned 32-bit words; the four words of each block.

    Products wrap modulo 2^64 and shifts are arithmetic, so the upper halves hold rubbish until the mask cuts it.
    """
    x0, x1, x2, x3 = c0, counters[0], counters[1], counters[2]
    for k0, k1 in schedule:
        left, right = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0 = ((right >> 32) ^ x1 ^ k0) & WORD
        x2 = ((left >> 32) ^ x3 ^ k1) & WORD
        x1, x3 = right, left
    return x0, x1 & WORD, x2, x3 & WORD
