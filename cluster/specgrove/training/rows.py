"""Training rows: whole conversations packed one after another into rows of fixed length.

Most rows are short; some are longer, so that the models have seen attention at larger distances than one exchange.
The batch of a step follows from (seed, step) alone, so a resumed run sees what an uninterrupted one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from specgrove.training.records import training
from specgrove.training.tokenizer import END_OF_TEXT, conversation_ids

PROMPT_WEIGHT = 0.05
"""Loss weight of tokens that the user writes; they are mostly unpredictable, but teach a little language."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed rows. Position i of `targets` and `weights` is about the token after position i of `ids`."""

    ids: Tensor  # [rows, length]
    targets: Tensor  # [rows, length]
    weights: Tensor  # [rows, length] float32


def row_length(step: int) -> int:
    """Length of a step's rows: 256, every eighth step 768."""
    return 768 if step % 8 == 7 else 256


def _row(stream: Iterator[tuple[list[int], list[bool]]], length: int, filler: int) -> tuple[list[int], list[float]]:
    """One row of `length` + 1 tokens: conversations until the next would not fit, then filler of weight 0."""
    ids: list[int] = []
    weights: list[float] = []
    while True:
        piece, written = next(stream)
        if len(ids) + len(piece) > length + 1:
            break
        ids += piece
        weights += [1.0 if own else PROMPT_WEIGHT for own in written]
    gap = length + 1 - len(ids)
    return ids + [filler] * gap, weights + [0.0] * gap


def batch(tokenizer: PreTrainedTokenizerFast, seed: int, step: int, tokens: int) -> Batch:
    """The batch of a step: about `tokens` tokens, the same for the same arguments."""
    length = row_length(step)
    samples = training(seed, part=step)
    stream = (
        conversation_ids(tokenizer, [*sample.messages, {"role": "assistant", "content": sample.answer}])
        for sample in samples
    )
    filler = int(tokenizer.convert_tokens_to_ids(END_OF_TEXT))  # type: ignore[arg-type]
    rows = [_row(stream, length, filler) for _ in range(max(1, tokens // length))]
    ids = torch.tensor([row for row, _ in rows])
    weights = torch.tensor([weight for _, weight in rows])
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous())
