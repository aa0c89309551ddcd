"""What the trained targets write themselves: samples for the draft, which has to guess their words."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
CHUNK = 2000
"""Questions that are answered and kept at a time; an interruption loses no more."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Training questions with the answers that targets wrote, and the time that writing them took."""

    samples: list[Sample]
    seconds: float


def written(
    targets: Mapping[str, PreTrainedModel],
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    count: int,
    path: Path,
    report: Report = lambda _: None,
) -> Outputs:
    """`count` training questions, each answered by every target, greedily and at temperature 1.

    What is written is kept in `path`, chunk by chunk, and read from there by a later call with the same questions and
    the same weights.
    """
    questions = list(islice(training(seed, part=PART), count))
    kept = _kept(path)
    tick = Ticker("outputs", len(targets) * len(TEMPERATURES) * count, report).tick
    samples, seconds = [], 0.0
    for name, model in targets.items():
        weights = _digest(model)
        for temperature in TEMPERATURES:
            for start in range(0, count, CHUNK):
                chunk = questions[start : start + CHUNK]
                key = _key(name, weights, temperature, seed, chunk)
                if key not in kept:
                    kept[key] = _write(model, tokenizer, chunk, temperature, key, path)
                texts, took = kept[key]
                samples += [replace(q, answer=text) for q, text in zip(chunk, texts, strict=True)]
                seconds += took
                tick(len(chunk))
    return Outputs(samples, seconds)


def _write(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    questions: Sequence[Sample],
    temperature: float,
    key: str,
    path: Path,
) -> tuple[list[str], float]:
    began = time.perf_counter()
    torch.manual_seed(int(key[:15], 16))
    texts = [one.text for one in answer(model, tokenizer, questions, temperature=temperature)]
    seconds = round(time.perf_counter() - began, 1)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "seconds": seconds, "texts": texts}) + "\n")
    return texts, seconds


def _kept(path: Path) -> dict[str, tuple[list[str], float]]:
    """Finished chunks by key; a line that a crash cut off is taken away."""
    found: dict[str, tuple[list[str], float]] = {}
    if not path.exists():
        return found
    whole, newline, torn = path.read_bytes().rpartition(b"\n")
    if torn:
        path.write_bytes(whole + newline)
    for line in whole.splitlines():
        chunk = json.loads(line)
        found[chunk["key"]] = chunk["texts"], chunk["seconds"]
    return found


def _key(name: str, weights: str, temperature: float, seed: int, questions: Sequence[Sample]) -> str:
    """Hex digest of everything that an answer depends on."""
    text = repr((name, weights, temperature, seed, [one.messages for one in questions]))
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(model: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Ticker:
    """Progress of many answers under one name."""

    def __init__(self, name: str, total: int, report: Report) -> None:
        self._name, self._total, self._report = name, total, report
        self._done, self._began = 0, time.monotonic()

    def tick(self, more: int) -> None:
        """So many more have come."""
        self._done += more
        left = (time.monotonic() - self._began) * (self._total - self._done) / max(1, self._done)
        self._report(Progress(self._name, self._done, self._total, None, self._done / self._total, left))


def mixed(seed: int, step: int, outputs: Sequence[Sample]) -> Iterator[Sample]:
    """The samples of a step: the targets' own, and in between data as the targets were trained on."""
    rng = random.Random(f"specgrove-mixed/{seed}/{step}")
    for sample in training(seed, part=step):
        while rng.random() < SHARE:
            yield rng.choice(outputs)
        yield sample
