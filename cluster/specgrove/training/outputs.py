"""What the trained targets write themselves: samples for the draft, which has to guess their words."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from specgrove.training.evaluate import answer
from specgrove.training.records import Sample, training
from specgrove.training.trainer import Progress, Report

PART = 1 << 30
"""Number of the stream that the questions come from; steps of a training never get so far."""
SHARE = 0.6
"""Part of the draft's samples that a target has written."""
TEMPERATURES = (0.0, 1.0)


def written(
    targets: Mapping[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    count: int,
    path: Path,
    report: Report = lambda _: None,
) -> list[Sample]:
    """`count` training questions, each answered by every target, greedily and at temperature 1; kept in `path`."""
    questions = list(islice(training(seed, part=PART), count))
    if not path.exists():
        torch.manual_seed(seed)
        tick = _Ticker(len(targets) * len(TEMPERATURES) * count, report).tick
        texts = {
            f"{name} {temperature}": [
                one.text for one in answer(model, tokenizer, questions, temperature=temperature, tick=tick)
            ]
            for name, model in targets.items()
            for temperature in TEMPERATURES
        }
        part = path.with_suffix(".part")
        part.write_text(json.dumps(texts), encoding="utf-8")
        part.replace(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    return [replace(q, answer=text) for texts in found.values() for q, text in zip(questions, texts, strict=True)]


class _Ticker:
    """Progress of the answers, under the name `outputs`."""

    def __init__(self, total: int, report: Report) -> None:
        self._total, self._report, self._done, self._began = total, report, 0, time.monotonic()

    def tick(self, more: int) -> None:
        self._done += more
        left = (time.monotonic() - self._began) * (self._total - self._done) / max(1, self._done)
        self._report(Progress("outputs", self._done, self._total, None, self._done / self._total, left))


def mixed(seed: int, step: int, outputs: Sequence[Sample]) -> Iterator[Sample]:
    """The samples of a step: the targets' own, and in between data as the targets were trained on."""
    rng = random.Random(f"specgrove-mixed/{seed}/{step}")
    for sample in training(seed, part=step):
        while rng.random() < SHARE:
            yield rng.choice(outputs)
        yield sample
