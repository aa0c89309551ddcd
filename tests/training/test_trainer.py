"""A miniature family is trained, interrupted and resumed."""

import copy
import io
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from rich.console import Console

from specgrove.errors import ConfigError
from specgrove.training import run
from specgrove.training.display import shown
from specgrove.training.evaluate import agreement, answer
from specgrove.training.exits import exit_logits
from specgrove.training.family import FAMILY, model_config, new_model
from specgrove.training.optimizer import orthogonalise
from specgrove.training.outputs import TEMPERATURES, written
from specgrove.training.records import held_out, training
from specgrove.training.trainer import STABLE, WARMUP_STEPS, Progress, Run, rate


class Interrupted(Exception):
    """Raised by a progress callback in the middle of a run."""


@pytest.fixture
def tiny(monkeypatch, tokenizer):
    """The family's shapes, one layer of 32 each, so that a step takes milliseconds."""
    small = [
        replace(
            m,
            layers=2 if m.exits else 1,
            exits=(1, 2) if m.exits else (),
            hidden_size=32,
            intermediate_size=64,
            heads=2,
            kv_heads=1,
            tokens_per_step=256,
        )
        for m in FAMILY
    ]
    monkeypatch.setattr(run, "FAMILY", tuple(small))
    monkeypatch.setattr(run, "PLAIN", replace(small[-1], name="grove-draft-plain", exits=()))
    monkeypatch.setattr(run, "LOOK_TOKENS", 256)
    monkeypatch.setattr(run, "train_tokenizer", lambda seed: tokenizer)
    return {m.name: 3 for m in small}


def test_rate_warms_up_stays_and_decays():
    """Constant while the total is undecided, then down to zero on its last step."""
    assert rate(0, None) == 1 / WARMUP_STEPS
    assert rate(WARMUP_STEPS, None) == rate(10_000, None) == 1.0
    assert rate(int(1000 * STABLE) - 1, 1000) == 1.0
    assert 0 < rate(999, 1000) < 0.01


def test_orthogonalised_matrices_have_singular_values_near_one():
    """For wide and tall stacks alike."""
    for shape in ((2, 24, 64), (2, 64, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(*shape, generator=torch.Generator().manual_seed(0))))
        assert float(values.min()) > 0.5
        assert float(values.max()) < 1.5


def test_family_trains_by_the_clock(tiny, tmp_path):
    """A time budget decides the steps, and progress ends at the whole."""
    seen = []

    cards = run.train_family(
        tmp_path, minutes=0.02, seed=0, progress=seen.append, score_samples=1, outputs=2, compiled=False
    )

    assert list(cards) == [m.name for m in FAMILY]
    assert cards["grove-draft"].exits == (1, 2)
    assert [p.step for p in seen if p.model == "outputs"][-1] == 8
    last = {p.model: p for p in seen}
    assert all(p.step == p.steps and p.fraction == 1.0 and p.remaining_s == 0 for p in last.values())


@pytest.mark.parametrize(
    ("where", "step", "goes_on"),
    [
        ("grove-small", 2, ("grove-small", 2)),
        ("outputs", 3, ("outputs", 1)),
        ("grove-draft", 2, ("outputs", 1)),
        ("grove-draft-plain", 2, ("outputs", 1)),
        ("scores", 1, ("outputs", 1)),
    ],
)
def test_interrupted_family_resumes_to_the_same_weights(tiny, tmp_path, monkeypatch, where, step, goes_on):
    """Stopping anywhere and going on gives what an uninterrupted run gives."""
    monkeypatch.setattr("specgrove.training.trainer.CHECKPOINT_S", 0.0)
    monkeypatch.setattr("specgrove.training.outputs.CHUNK", 1)
    whole = run.train_family(
        tmp_path / "whole", minutes=1, seed=0, steps=tiny, score_samples=1, outputs=2, compiled=False
    )

    def stop(progress):
        if (progress.model, progress.step) == (where, step):
            raise Interrupted

    parts = tmp_path / "parts"
    with pytest.raises(Interrupted):
        run.train_family(
            parts, minutes=1, seed=0, steps=tiny, progress=stop, score_samples=1, outputs=2, compiled=False
        )
    answers = parts / run.WORK / run.OUTPUTS
    kept = answers.read_text() if answers.exists() else ""
    resumed = []
    again = run.train_family(
        parts, minutes=1, seed=0, steps=tiny, progress=resumed.append, score_samples=1, outputs=2, compiled=False
    )

    assert (resumed[0].model, resumed[0].step) == goes_on
    assert answers.read_text().startswith(kept)
    assert {n: c.weights_digest for n, c in again.items()} == {n: c.weights_digest for n, c in whole.items()}


def test_the_report_compares_sorted_and_plain(tiny, tmp_path):
    """Equal steps, the same exits looked at, and the plain draft is not part of the family."""
    cards = run.train_family(tmp_path, minutes=1, seed=0, steps=tiny, score_samples=2, outputs=2, compiled=False)
    report = json.loads((tmp_path / run.WORK / "report.json").read_text())
    sorted_, plain = (report["models"][name] for name in ("grove-draft", "grove-draft-plain"))

    assert "grove-draft-plain" not in cards
    assert sorted_["steps"] == plain["steps"] == 3
    assert sorted_["looks_at"] == plain["looks_at"] == [1, 2]
    assert [len(point) for point in sorted_["curve"]] == [3, 3]
    assert all(len(losses) == 2 for losses in report["held_out_loss"].values())


def test_exits_are_the_model_cut_short(tokenizer):
    """With the same norm and head; cut copies give the same logits."""
    torch.manual_seed(0)
    member = replace(FAMILY[-1], hidden_size=32, intermediate_size=64, heads=2, kv_heads=1)
    model = new_model(model_config(member, len(tokenizer), eos=2, pad=0)).eval()
    ids = torch.tensor([[5, 6, 7, 8]])

    for depth, logits in zip((1, 2, 4), exit_logits(model, ids, (1, 2, 4)), strict=True):
        cut = copy.deepcopy(model)
        cut.model.layers, cut.config.num_hidden_layers = cut.model.layers[:depth], depth
        assert torch.equal(logits, cut(input_ids=ids).logits)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_fused_layers_train_as_plain_ones_do(tokenizer):
    """The same losses up to rounding, and the model is itself again after a step."""
    losses = {}
    for compiled in (False, True):
        torch.manual_seed(0)
        model = new_model(model_config(replace(FAMILY[0], layers=1), len(tokenizer), eos=2, pad=0))
        one = Run(FAMILY[0], model, tokenizer, 0, partial(training, 0), compiled=compiled)
        one.exits = (1,)
        losses[compiled] = []
        for _ in range(3):
            one.advance()
            losses[compiled].append(one.loss)
        assert "forward" not in vars(model.model.layers[0])

    assert losses[True] == pytest.approx(losses[False], rel=1e-3)


def test_other_seed_starts_again(tiny, tmp_path):
    """Checkpoints of another seed are not mixed in."""
    first = run.train_family(tmp_path, minutes=1, seed=0, steps=tiny, score_samples=0, outputs=2, compiled=False)
    answers = (tmp_path / run.WORK / run.OUTPUTS).read_text()
    seen = []

    second = run.train_family(
        tmp_path, minutes=1, seed=1, steps=tiny, progress=seen.append, score_samples=0, outputs=2, compiled=False
    )

    assert seen[0].step == 1
    assert first["grove-large"].weights_digest != second["grove-large"].weights_digest
    assert not set((tmp_path / run.WORK / run.OUTPUTS).read_text().splitlines()) & set(answers.splitlines())


def test_answers_of_other_weights_are_not_taken(tiny, tmp_path, tokenizer):
    """A file from another target adds to the new answers, never replaces them; a line cut off by a crash is dropped."""
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(new_model(model_config(run.FAMILY[0], len(tokenizer), eos=2, pad=0)))
    first, second = models
    path = tmp_path / "outputs.jsonl"
    written({"m": first}, tokenizer, 0, 2, path)
    path.write_text(path.read_text() + '{"key": "torn')

    mine = written({"m": first}, tokenizer, 0, 2, path)
    alone = written({"m": second}, tokenizer, 0, 2, tmp_path / "alone.jsonl")
    theirs = written({"m": second}, tokenizer, 0, 2, path)

    texts = [[sample.answer for sample in one.samples] for one in (mine, theirs, alone)]
    assert texts[1] == texts[2] != texts[0]
    assert len(path.read_text().splitlines()) == 2 * len(TEMPERATURES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"minutes": 0}, "over 0 minutes"), ({"steps": {"x": 1}}, "no model"), ({"outputs": 0}, "at least one question")],
)
def test_impossible_arguments_are_refused(tmp_path, arguments, words):
    """Before any work is done."""
    with pytest.raises(ConfigError, match=words):
        run.train_family(tmp_path / "out", **{"minutes": 1.0, "seed": 0, **arguments})
    assert not (tmp_path / "out").exists()


def test_a_model_agrees_with_itself_alone(tiny, tokenizer):
    """Teacher-forced agreement of a model with its own greedy text is 1; with another text it is not."""
    torch.manual_seed(0)
    target = new_model(model_config(run.FAMILY[0], len(tokenizer), eos=2, pad=0))

    answered = answer(target, tokenizer, held_out(0, 1))
    other = [replace(one, answer=list(range(100, 110))) for one in answered]

    assert agreement(target, answered, (1,)) == [1.0]
    assert agreement(target, other, (1,)) == [0.0]


def test_bars_show_model_step_and_time_left():
    """What a person sees in the terminal."""
    out = io.StringIO()

    with shown(Console(file=out, width=120)) as report:
        report(Progress("grove-small", 7, 70, 1.25, 0.1, 61.0))

    assert "grove-small" in out.getvalue()
    assert "step 7 loss 1.250 1:01 left" in out.getvalue()
