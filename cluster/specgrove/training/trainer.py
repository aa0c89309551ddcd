"""One model's training loop: constant rate, then a linear decay; checkpoints; resumes where it stopped.

The number of steps is decided by the clock once: when STABLE of the time is used, the total is fixed so that the decay
fills the rest. It is kept in the checkpoint and in the card; given in advance, the run does not look at the clock at
all and repeats up to float noise.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from specgrove.training.exits import exit_logits
from specgrove.training.family import Member
from specgrove.training.optimizer import FamilyOptimizer
from specgrove.training.records import Sample
from specgrove.training.rows import Batch, batch

STABLE = 0.5
"""Part of the steps at the full learning rate; the rest decays to zero."""
WARMUP_STEPS = 20
CHECKPOINT_S = 60.0
"""Seconds between checkpoints."""
LOOK_EVERY = 100
"""Steps between two points of the held-out loss curve."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a model's training stands. `fraction` is of this model's work, `remaining_s` an estimate in seconds.

    The answers that targets write for the draft are reported as a model called `outputs`, the last evaluation as one
    called `scores`; they have no loss.
    """

    model: str
    step: int
    steps: int | None
    loss: float | None
    fraction: float
    remaining_s: float


Report = Callable[[Progress], None]
Source = Callable[[int], Iterator[Sample]]


def rate(step: int, steps: int | None) -> float:
    """Learning rate of a step relative to the peak; `steps` is the total, None while undecided."""
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    if steps is None:
        return warm
    left = (steps - step) / max(1.0, steps * (1 - STABLE))
    return min(warm, max(0.0, min(1.0, left)))


def exit_losses(model: PreTrainedModel, rows: Batch, exits: Sequence[int]) -> torch.Tensor:
    """Mean cross-entropy in nats over the batch's weights, for each exit: [len(exits)]."""
    weights, targets = rows.weights.flatten(), rows.targets.flatten()
    losses = []
    for logits in exit_logits(model, rows.ids, exits, rows.mask):
        each = functional.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="none")
        losses.append((each * weights).sum() / weights.sum())
    return torch.stack(losses)


class Run:
    """A model under training; everything that a checkpoint holds.

    source: the samples of a step, by its number.  held_out: rows of the loss curve, if one is wanted.  looks_at: the
    exits that the curve shows, also those that are not trained.  compiled: fuse what the layers do, a quarter faster on
    a CPU after half a minute; without a C++ compiler it changes nothing.
    """

    def __init__(
        self,
        member: Member,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        source: Source,
        *,
        held_out: Batch | None = None,
        looks_at: Sequence[int] = (),
        compiled: bool = False,
    ) -> None:
        self.member, self.model, self.seed, self._source = member, model, seed, source
        self.looks_at = tuple(looks_at) or member.exits or (member.layers,)
        self.curve: list[list[float]] = []
        """Rows of (step, held-out loss at each exit of looks_at)."""
        self._held_out = held_out
        wanted = compiled and shutil.which(os.environ.get("CXX", "g++")) is not None
        self._fused = [torch.compile(layer.forward, dynamic=False) for layer in model.model.layers] if wanted else []
        self.exits = member.exits or (member.layers,)
        self.step, self.elapsed_s, self.loss = 0, 0.0, float("nan")
        self.steps: int | None = None
        self._tokenizer = tokenizer
        self._optimizer = FamilyOptimizer(model, matrix_rate=member.matrix_rate, other_rate=member.other_rate)

    def advance(self) -> None:
        """One optimizer step on the batch of (seed, step)."""
        started = time.perf_counter()
        rows = batch(self._tokenizer, self._source(self.step), self.step, self.member.tokens_per_step)
        with self._fast_layers():
            loss = exit_losses(self.model, rows, self.exits).mean()
            loss.backward()
        self._optimizer.step(rate(self.step, self.steps))
        latest = float(loss.detach())
        self.loss = latest if self.loss != self.loss else 0.95 * self.loss + 0.05 * latest
        self.step += 1
        self.elapsed_s += time.perf_counter() - started

    @contextmanager
    def _fast_layers(self) -> Iterator[None]:
        """Only for steps, whose shapes are always the same two; every other shape would be compiled anew."""
        layers = self.model.model.layers if self._fused else ()
        for layer, forward in zip(layers, self._fused, strict=False):
            layer.forward = forward
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward  # the instance's; the class has its own

    @torch.no_grad()
    def look(self) -> None:
        """Add a point to the curve."""
        if self._held_out is not None and not (self.curve and self.curve[-1][0] == self.step):
            self.model.eval()
            self.curve.append([float(self.step), *exit_losses(self.model, self._held_out, self.looks_at).tolist()])
            self.model.train()

    def decide_steps(self, budget_s: float) -> None:
        """Fix the total once the constant part of the time is used up."""
        if self.steps is None and self.elapsed_s >= STABLE * budget_s:
            self.steps = max(self.step + 1, round(self.step / STABLE))

    def progress(self, budget_s: float) -> Progress:
        """Where the run stands, from the clock until the total is fixed, from the steps afterwards."""
        if self.steps is None:
            fraction, left = self.elapsed_s / budget_s if budget_s else 1.0, budget_s - self.elapsed_s
        else:
            fraction = self.step / self.steps
            left = (self.steps - self.step) * self.elapsed_s / max(1, self.step)
        return Progress(self.member.name, self.step, self.steps, self.loss, min(1.0, fraction), max(0.0, left))

    def save(self, path: Path) -> None:
        """Write a checkpoint; a crash while writing leaves the former one."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state(),
            "counters": [self.step, self.steps, self.elapsed_s, self.loss, self.seed],
            "curve": self.curve,
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, path)

    def restore(self, path: Path) -> bool:
        """Go on from a checkpoint of the same seed, if there is one."""
        if not path.exists():
            return False
        state = torch.load(path, weights_only=True)
        if state["counters"][4] != self.seed:
            return False
        self.step, self.steps, self.elapsed_s, self.loss, _ = state["counters"]
        self.curve = state.get("curve", [])
        self.model.load_state_dict(state["model"])
        self._optimizer.restore(state["optimizer"])
        return True


def train(run: Run, *, budget_s: float, steps: int | None, checkpoint: Path, report: Report) -> None:
    """Train to the end of the schedule; `steps` fixes the total in advance instead of `budget_s`."""
    run.steps = steps if steps is not None else run.steps
    run.model.train()
    saved = time.monotonic()
    while run.steps is None or run.step < run.steps:
        run.decide_steps(budget_s)
        if run.step % LOOK_EVERY == 0:
            run.look()
        run.advance()
        report(run.progress(budget_s))
        if time.monotonic() - saved >= CHECKPOINT_S:
            run.save(checkpoint)
            saved = time.monotonic()
    run.look()
    run.save(checkpoint)
