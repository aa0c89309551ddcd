"""Training rows: whole conversations packed one after another into rows of fixed length.

In most rows a conversation sees itself alone, which is what makes copying from the question quick to learn. Every
eighth step has long rows without that mask, so that the models have seen attention over larger distances than one
exchange. Where a conversation stands in its row is random, hence its positions are.

The samples of a step follow from (seed, step) alone, so a resumed run sees what an uninterrupted one would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from specgrove.training.records import Sample
from specgrove.training.tokenizer import conversation_ids, end_ids

SHORT, LONG, LONG_EVERY = 256, 768, 8
PROMPT_WEIGHT = 0.1
"""Loss weight of tokens that the user writes; they are mostly unpredictable, but teach a little language."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed rows. Position i of `targets` and `weights` is about the token after position i of `ids`."""

    ids: Tensor  # [rows, length]
    targets: Tensor  # [rows, length]
    weights: Tensor  # [rows, length] float32
    mask: Tensor | None  # [rows, 1, length, length] bool, True where attended; None is causal


def is_long(step: int) -> bool:
    """Whether a step has long rows in which conversations see the ones before them."""
    return step % LONG_EVERY == LONG_EVERY - 1


def own_conversation(marks: Tensor) -> Tensor:
    """Causal mask within equal marks. marks: [rows, length]; result: [rows, 1, length, length] bool."""
    same = marks[:, None, :, None] == marks[:, None, None, :]
    return same.tril()


@dataclass(slots=True)
class _Row:
    """A row being filled: ids, loss weights, and the number of the conversation that each token belongs to."""

    ids: list[int]
    weights: list[float]
    marks: list[int]


def _row(stream: Iterator[tuple[list[int], list[bool]]], length: int, filler: int) -> _Row:
    """One row of `length` + 1 tokens: conversations until the next would not fit, then filler of weight 0."""
    row = _Row([], [], [])
    for number in range(length):
        piece, written = next(stream)
        if len(row.ids) + len(piece) > length + 1:
            break
        row.ids += piece
        row.weights += [1.0 if own else PROMPT_WEIGHT for own in written]
        row.marks += [number] * len(piece)
    gap = length + 1 - len(row.ids)
    return _Row(row.ids + [filler] * gap, row.weights + [0.0] * gap, row.marks + [length] * gap)


def batch(tokenizer: PreTrainedTokenizerFast, samples: Iterator[Sample], step: int, tokens: int) -> Batch:
    """About `tokens` tokens of the next samples, in the form that this step has."""
    length = LONG if is_long(step) else SHORT
    stream = (
        conversation_ids(tokenizer, [*sample.messages, {"role": "assistant", "content": sample.answer}])
        for sample in samples
    )
    _, filler = end_ids(tokenizer)
    rows = [_row(stream, length, filler) for _ in range(max(1, tokens // length))]
    ids, weights = torch.tensor([row.ids for row in rows]), torch.tensor([row.weights for row in rows])
    mask = None if is_long(step) else own_conversation(torch.tensor([row.marks[:-1] for row in rows]))
    return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), weights[:, 1:].contiguous(), mask)
