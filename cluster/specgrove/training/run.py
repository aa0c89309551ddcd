"""`specgrove train family`: tokenizer, then each model in turn, then scores and cards."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from specgrove.core.cards import ModelCard
from specgrove.errors import ConfigError
from specgrove.training.evaluate import Answered, accuracy, agreement, answer, held_out_losses
from specgrove.training.export import export, make_card, write_card
from specgrove.training.family import FAMILY, PLAIN, Member, model_config, new_model
from specgrove.training.outputs import SHARE, Outputs, Ticker, mixed, written
from specgrove.training.records import HELD_OUT_ONE_IN, KINDS, Sample, held_out, training
from specgrove.training.rows import batch
from specgrove.training.tokenizer import end_ids, load_tokenizer, train_tokenizer
from specgrove.training.trainer import Progress, Run, Source, train

WORK = "training"
"""Folder below the output that holds the tokenizer, checkpoints and the seed; may be deleted when all is done."""
REPORT = "report.json"
"""In WORK: what `eval report` reads about the training."""
OUTPUTS = "outputs.jsonl"
LOOK_SEED, LOOK_TOKENS = 2, 4096
"""Held-out rows of the loss curves."""
SCORE_SEED = 1
"""Held-out seed of the scores on the cards; the test and parity suites use others."""


def _tokenizer(work: Path, seed: int, resume: bool) -> PreTrainedTokenizerFast:
    """The run's tokenizer: read if this folder belongs to the same run, else trained; clears a former run's files."""
    mark, directory = work / "run.json", work / "tokenizer"
    plan = repr((FAMILY, [(one.messages, one.answer) for one in islice(training(seed), 300)]))
    run = {"seed": seed, "plan": hashlib.sha256(plan.encode()).hexdigest()}
    if resume and mark.exists() and json.loads(mark.read_text(encoding="utf-8")) == run:
        return load_tokenizer(directory)
    # The mark goes first and comes back last, in one piece: what is there with it belongs to it.
    mark.unlink(missing_ok=True)
    for stale in (*work.glob("*.pt"), work / OUTPUTS):
        stale.unlink(missing_ok=True)
    tokenizer = train_tokenizer(seed)
    tokenizer.save_pretrained(directory)
    part = mark.with_suffix(".part")
    part.write_text(json.dumps(run), encoding="utf-8")
    part.replace(mark)
    return tokenizer


class _Training:
    """What all models of one family run share."""

    def __init__(
        self,
        work: Path,
        tokenizer: PreTrainedTokenizerFast,
        seed: int,
        report: Callable[[Progress], None],
        compiled: bool,
    ):
        self._work, self._tokenizer, self._seed, self._report = work, tokenizer, seed, report
        self._compiled = compiled
        self._look = batch(tokenizer, iter(held_out(LOOK_SEED, LOOK_TOKENS // 30)), 0, LOOK_TOKENS)

    def train(
        self, member: Member, source: Source, *, budget_s: float, steps: int | None, looks_at: Sequence[int] = ()
    ) -> Run:
        """Train one model, or go on with it; a finished one is only loaded."""
        ends = end_ids(self._tokenizer)
        torch.manual_seed(self._seed)
        model = new_model(model_config(member, len(self._tokenizer), eos=ends[0], pad=ends[1]))
        run = Run(
            member,
            model,
            self._tokenizer,
            self._seed,
            source,
            held_out=self._look,
            looks_at=looks_at,
            compiled=self._compiled,
        )
        checkpoint = self._work / f"{member.name}.pt"
        run.restore(checkpoint)
        train(run, budget_s=budget_s, steps=steps, checkpoint=checkpoint, report=self._report)
        return run

    def outputs(self, runs: Mapping[str, Run], count: int) -> Outputs:
        """What the targets write, for the draft to learn from."""
        targets = {name: run.model for name, run in runs.items()}
        return written(targets, self._tokenizer, self._seed, count, self._work / OUTPUTS, self._report)


def _trained_on(run: Run) -> str:
    tokens = run.step * run.member.tokens_per_step
    own = f"{SHARE:.0%} questions of such records answered by the targets, the rest " if run.member.exits else ""
    return (
        f"{own}specgrove's own records ({len(KINDS)} kinds, one canonical problem in {HELD_OUT_ONE_IN} held out), "
        f"seed {run.seed}, {run.step} steps of {run.member.tokens_per_step} tokens ({tokens / 1e6:.1f} M), "
        f"{run.elapsed_s / 60:.1f} minutes on a CPU"
    )


def _scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    samples: Sequence[Sample],
    exits: Sequence[int],
    tick: Callable[[int], None],
) -> tuple[dict[str, float], list[Answered]]:
    """Accuracy by kind and loss; also the answers themselves, to measure a draft against."""
    answered = answer(model, tokenizer, samples, tick=tick)
    scores = {f"accuracy_{kind}": value for kind, value in accuracy(answered).items()}
    *inner, scores["held_out_loss"] = held_out_losses(model, tokenizer, samples, exits)
    scores |= {f"held_out_loss_exit_{depth}": loss for depth, loss in zip(exits, inner, strict=False)}
    return scores, answered


def finish(
    runs: Mapping[str, Run],
    plain: Run,
    tokenizer: PreTrainedTokenizerFast,
    out: Path,
    *,
    score_samples: int,
    outputs: Outputs,
    report: Callable[[Progress], None],
) -> dict[str, ModelCard]:
    """Export every model, score what was exported, write the cards and the report. The last model is the draft.

    The plain draft is written beside the family and gets no card: it is there to compare with.
    """
    samples, began = held_out(SCORE_SEED, score_samples), time.perf_counter()
    for name, run in {**runs, plain.member.name: plain}.items():
        export(run.model, tokenizer, out / name)
    tick = Ticker("scores", len(runs) * len(samples), report).tick
    scored = {name: _scores(run.model, tokenizer, samples, run.exits, tick) for name, run in runs.items()}
    *targets, draft = runs
    exits = runs[draft].exits
    for target in targets:
        shares = agreement(runs[draft].model, scored[target][1], exits)
        scored[draft][0].update({f"agreement_{target}_exit_{e}": s for e, s in zip(exits, shares, strict=True)})
    cards = {}
    for name, run in runs.items():
        scores = {key: round(value, 4) for key, value in scored[name][0].items()}
        trained_on, own = _trained_on(run), run.member.exits
        cards[name] = make_card(name, run.model, tokenizer, out / name, trained_on=trained_on, scores=scores, exits=own)
        write_card(cards[name], out / name)
    losses = {
        "sorted": held_out_losses(runs[draft].model, tokenizer, samples, exits),
        "plain": held_out_losses(plain.model, tokenizer, samples, exits),
    }
    found = {
        "exits": exits,
        "held_out_loss": losses,
        "threads": torch.get_num_threads(),
        "outputs": {"answers": len(outputs.samples), "minutes": round(outputs.seconds / 60, 1)},
        "scoring_minutes": round((time.perf_counter() - began) / 60, 1),
        "models": {run.member.name: _history(run) for run in (*runs.values(), plain)},
    }
    (out / WORK / REPORT).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return cards


def _history(run: Run) -> dict[str, Any]:
    """How a model was trained: for the report."""
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "steps": run.step,
        "tokens_per_step": run.member.tokens_per_step,
        "minutes": round(run.elapsed_s / 60, 1),
        "looks_at": run.looks_at,
        "curve": run.curve,
    }


def train_family(
    out: Path,
    *,
    minutes: float,
    seed: int,
    resume: bool = True,
    progress: Callable[[Progress], None] = lambda _: None,
    steps: Mapping[str, int] | None = None,
    score_samples: int = 300,
    outputs: int = 6000,
    compiled: bool = True,
) -> dict[str, ModelCard]:
    """Train the bundled family into `out`, one Hugging Face directory a model, and return the cards.

    minutes: time in optimizer steps of all models together (answers for the draft and scores come on top, about a tenth
    on 2 cores); a loaded machine gets fewer steps, not more time. steps: exact steps
    by model name instead (they are on the cards), which repeats a run up to float noise. resume: go on from the
    checkpoints of an interrupted run of the same seed; False starts again. progress: called after every step.
    outputs: questions that both targets answer for the draft to learn from. compiled: as for Run.

    Raises ConfigError for a time or outputs that are not positive, or for unknown names in `steps`.
    """
    if outputs < 1:
        raise ConfigError(f"the draft learns from at least one question, got {outputs}", param="outputs")
    if not minutes > 0:
        raise ConfigError(f"training time must be over 0 minutes, got {minutes}", param="minutes")
    unknown = set(steps or {}) - {member.name for member in FAMILY}
    if unknown:
        raise ConfigError(f"no model {sorted(unknown)[0]!r} in the family", param="steps")
    work = out / WORK
    work.mkdir(parents=True, exist_ok=True)
    if not resume:
        (work / "run.json").unlink(missing_ok=True)
    tokenizer = _tokenizer(work, seed, resume)
    training_of = _Training(work, tokenizer, seed, progress, compiled)
    runs: dict[str, Run] = {}
    source: Source = partial(training, seed)
    answered = Outputs([], 0.0)
    for member in FAMILY:
        if member.exits:
            answered = training_of.outputs(runs, outputs)
            source = partial(mixed, seed, outputs=answered.samples)
        budget_s, exact = minutes * 60 * member.share, (steps or {}).get(member.name)
        runs[member.name] = training_of.train(member, source, budget_s=budget_s, steps=exact)
    draft = runs[FAMILY[-1].name]
    plain = training_of.train(PLAIN, source, budget_s=0.0, steps=draft.step, looks_at=draft.exits)
    return finish(runs, plain, tokenizer, out, score_samples=score_samples, outputs=answered, report=progress)
