"""Scores of a trained model: held-out accuracy by the checkers, held-out loss, and agreement with a draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from specgrove.training.exits import exit_logits
from specgrove.training.records import Sample
from specgrove.training.tokenizer import TURN_END, end_ids, prompt_ids

MAX_ANSWER_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Answered:
    """A sample with the model's answer: prompt ids, answer ids (end token included if it came), and text."""

    sample: Sample
    prompt: list[int]
    answer: list[int]
    text: str


@torch.no_grad()
def _continue(model: PreTrainedModel, prompts: Tensor, ends: set[int], temperature: float) -> list[list[int]]:
    """Continuations of prompts of one length, each up to its end token. prompts: [n, length]."""
    answers: list[list[int]] = [[] for _ in range(len(prompts))]
    alive = set(range(len(prompts)))
    fed, cache = prompts, None
    for _ in range(MAX_ANSWER_TOKENS):
        out = model(input_ids=fed, cache=cache, use_cache=True, logits_to_keep=1)
        cache, logits = out.cache, out.logits[:, -1]  # [n, vocab]
        if temperature:
            logits = logits / temperature - torch.empty_like(logits).exponential_().log()
        picked = logits.argmax(-1)  # [n]
        for index in sorted(alive):
            answers[index].append(int(picked[index]))
            if answers[index][-1] in ends:
                alive.discard(index)
        if not alive:
            break
        fed = picked[:, None]
    return answers


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    samples: Sequence[Sample],
    *,
    temperature: float = 0.0,
    tick: Callable[[int], None] = lambda _: None,
) -> list[Answered]:
    """Answers in the order of the samples; prompts of equal length run as one batch, so nothing is padded.

    Greedy, or sampled with torch's global generator. tick hears how many have come, batch by batch.
    """
    model.eval()
    prompts = [prompt_ids(tokenizer, sample.messages) for sample in samples]
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(index)
    done: dict[int, list[int]] = {}
    ends = set(end_ids(tokenizer))
    for members in by_length.values():
        replies = _continue(model, torch.tensor([prompts[i] for i in members]), ends, temperature)
        done |= zip(members, replies, strict=True)
        tick(len(members))
    return [
        Answered(sample, prompts[i], done[i], str(tokenizer.decode(done[i], skip_special_tokens=True)))
        for i, sample in enumerate(samples)
    ]


def accuracy(answered: Sequence[Answered]) -> dict[str, float]:
    """Share of right answers by kind, and `all`, each from 0 to 1."""
    right: dict[str, list[bool]] = {"all": []}
    for one in answered:
        verdict = one.sample.check(one.text)
        right["all"].append(verdict)
        right.setdefault(one.sample.kind, []).append(verdict)
    return {kind: sum(verdicts) / max(1, len(verdicts)) for kind, verdicts in right.items()}


@torch.no_grad()
def held_out_losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, samples: Sequence[Sample], exits: Sequence[int]
) -> list[float]:
    """Mean cross-entropy in nats per token of the reference answers, end token included, at each exit."""
    model.eval()
    totals, tokens = [0.0] * len(exits), 0
    for sample in samples:
        prompt = prompt_ids(tokenizer, sample.messages)
        reply = list(tokenizer.encode(sample.answer + TURN_END, add_special_tokens=False))
        for index, logits in enumerate(exit_logits(model, torch.tensor([prompt + reply]), exits)):
            judged = logits[0, len(prompt) - 1 : -1]  # [len(reply), vocab]
            totals[index] += float(functional.cross_entropy(judged.float(), torch.tensor(reply), reduction="sum"))
        tokens += len(reply)
    return [total / max(1, tokens) for total in totals]


@torch.no_grad()
def agreement(draft: PreTrainedModel, answered: Sequence[Answered], exits: Sequence[int]) -> list[float]:
    """Share of the target's tokens that are also the draft's argmax at each exit, given the target's tokens before."""
    draft.eval()
    same, total = [0] * len(exits), 0
    for one in answered:
        own = torch.tensor(one.answer)
        for index, logits in enumerate(exit_logits(draft, torch.tensor([one.prompt + one.answer]), exits)):
            same[index] += int((logits[0, len(one.prompt) - 1 : -1].argmax(-1) == own).sum())
        total += len(one.answer)
    return [count / max(1, total) for count in same]
