"""The family's evaluation: what counts as right, the search against straight answers, and the page."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specgrove.bench import countdown as searching
from specgrove.bench import family, family_report
from specgrove.client.aio import AsyncClient
from specgrove.core.request import SpeculationStats
from specgrove.errors import ConfigError
from specgrove.models import path
from specgrove.training import countdown
from specgrove.training.records import held_out


@dataclass
class Choice:
    """One choice of a reply."""

    text: str
    tokens: tuple[int, ...] = (1, 2, 3, 4)
    stats: SpeculationStats = field(default_factory=lambda: SpeculationStats(rounds=2))


@dataclass
class Reply:
    """A reply."""

    choices: list[Choice]


class Scripted(AsyncClient):
    """A client whose model is a function from (prompt, options) to texts; it dials nobody."""

    def __init__(self, say: Any) -> None:
        self._say = say

    async def complete(self, model: str, prompt: Any, **options: Any) -> Reply:
        asked = prompt if isinstance(prompt, str) else prompt[-1].content
        return Reply([Choice(text) for text in self._say(model, asked, **options)])


async def test_right_and_wrong_answers_are_told_apart():
    """By kind and by side of the wordings; a few wrong ones are kept to look at."""
    references = {
        sample.messages[-1]["content"]: sample.answer
        for unseen in (False, True)
        for sample in held_out(0, 12, unseen=unseen, kinds=["sort", "blocks3"])
    }

    def say(model: str, asked: str, **_: Any) -> list[str]:
        return [references[asked] if model == "good" else "no idea"]

    report = await family.evaluate(Scripted(say), ["good", "bad"], seed=0, count=6, kinds=["sort", "blocks3"])

    for side in ("trained", "unseen"):
        for kind in ("sort", "blocks3"):
            good, bad = report["good"][side][kind], report["bad"][side][kind]
            assert (good.asked, good.accuracy, good.tokens_per_round) == (6, 1.0, 2.0)
            assert 0 < good.distinct <= 6
            assert family.grouped(report["good"][side])["all"].right == 12
            assert (bad.asked, bad.accuracy, len(bad.wrong)) == (6, 0.0, family.SHOWN_WRONG)


async def test_unknown_kinds_are_refused():
    """By name, before anything is asked."""
    with pytest.raises(ConfigError, match="no kind 'chess'"):
        await family.evaluate(Scripted(None), ["m"], seed=0, count=1, kinds=["chess"])


def judge_well(asked: str) -> str:
    """The exact judgment of a state, from the question's wording."""
    left, target = asked.removeprefix("Left: ").split(". Target: ")
    return countdown.judgment(tuple(map(int, left.split())), int(target.split(".")[0]))


def propose(prompt: str, task: searching.Task) -> list[str]:
    """Every thought of the state that the prompt has come to, and one that breaks the rules."""
    state: countdown.State | None = task.numbers
    for line in prompt.split("assistant\n")[1].splitlines():
        assert state is not None
        state = countdown.after(state, line)
    assert state is not None
    return [line for line, _ in countdown.thoughts(state)] + ["1 + 1 = 3 (left: 3)"]


async def test_search_with_exact_judgments_solves_everything_and_with_inverted_ones_does_not():
    """The judgments decide: the same proposals, judged the wrong way round, lose the way."""
    tasks = searching.tasks(3, 12, kinds=["countdown4"])
    inverted = {countdown.SURE: countdown.IMPOSSIBLE, countdown.LIKELY: countdown.IMPOSSIBLE}
    solved = {}
    for well in (True, False):
        count = 0
        for task in tasks:

            def say(model: str, asked: str, task: searching.Task = task, well: bool = well, **_: Any) -> list[str]:
                if not asked.startswith("Left"):
                    return propose(asked, task)
                word = judge_well(asked)
                return ["1 + 1 = 2\n" + (word if well else inverted.get(word, countdown.SURE))]

            count += await searching.Search(Scripted(say), "m", seed=0).breadth_first(task)
        solved[well] = count

    assert solved[True] == len(tasks)
    assert solved[False] < len(tasks) / 2


async def test_a_model_that_breaks_the_rules_finds_nothing():
    """Lines that are no thoughts are dropped, so no state is left."""
    [task] = searching.tasks(0, 1)
    search = searching.Search(Scripted(lambda *_, **__: ["7 * 7 = 50 (left: 50)"]), "m", seed=0)

    assert not await search.breadth_first(task)
    assert not await search.straight(task)


def test_wilson_intervals():
    """Against values worked out by hand: 8 of 10, and the ends."""
    low, high = searching.wilson(8, 10)

    assert (low, high) == (pytest.approx(0.4902, abs=1e-3), pytest.approx(0.9433, abs=1e-3))
    assert searching.wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-9)
    assert searching.wilson(10, 10)[1] == pytest.approx(1.0, abs=1e-9)


def test_a_missing_report_is_named(tmp_path: Path):
    """With its path."""
    with pytest.raises(ConfigError, match=r"report\.json"):
        family_report.write(tmp_path, tmp_path / "scores.json", tmp_path)


def mapped(halves: dict[str, dict[str, family.Score]]) -> dict[str, Any]:
    """As `eval family` writes it."""
    return {side: {kind: score.to_mapping() for kind, score in scores.items()} for side, scores in halves.items()}


@pytest.mark.parametrize(
    ("text", "words"), [("{", "is not JSON"), ('{"groups": {}, "models": {}}', "no scores of grove-large")]
)
def test_unusable_scores_are_refused(tmp_path: Path, text: str, words: str):
    """Before anything is written."""
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "report.json").write_text("{}")
    (tmp_path / "scores.json").write_text(text)

    with pytest.raises(ConfigError, match=words):
        family_report.write(tmp_path, tmp_path / "scores.json", tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_the_page_is_written_from_the_figures(tmp_path: Path):
    """Tables and plots, the same for the same figures."""
    trained_side, unseen_side = (
        {kind: family.Score(asked=4, distinct=2, right=right, tokens=tokens, stats=SpeculationStats(rounds=10))}
        for kind, right, tokens in (("sort", 3, 40), ("sort", 2, 30))
    )
    few = family.Score(asked=4, distinct=1, right=1, tokens=20, stats=SpeculationStats(rounds=10))
    halves = {"trained": trained_side, "unseen": unseen_side}
    for side in halves.values():
        side |= {"blocks3": few, "blocks4": few}
    evaluated = {
        "seed": 5,
        "count": 40,
        "models": dict.fromkeys(family_report.TARGETS, mapped(halves)),
        "groups": dict.fromkeys(family_report.TARGETS, mapped({s: family.grouped(of) for s, of in halves.items()})),
        "countdown": {
            "grove-large": {
                "asked": 10,
                "straight": 2,
                "searched": 9,
                "intervals": {"straight": [0.1, 0.4], "searched": [0.6, 1.0]},
            }
        },
    }
    model = {"parameters": 10**6, "steps": 10, "tokens_per_step": 100_000, "minutes": 7.0, "looks_at": [1, 4]}
    names = (*family_report.TARGETS, family_report.DRAFT, family_report.PLAIN)
    history = {
        "exits": [1, 4],
        "held_out_loss": {"sorted": [0.5, 0.25], "plain": [1.5, 0.24]},
        "outputs": {"answers": 24, "minutes": 2.0},
        "scoring_minutes": 1.0,
        "models": {name: model | {"curve": [[0, 7.0, 7.0], [10, 0.5, 0.25]]} for name in names},
    }
    trained = tmp_path / "trained"
    for name in (*family_report.TARGETS, family_report.DRAFT):
        (trained / name).mkdir(parents=True)
        card = json.loads((path(name) / "card.json").read_text())
        card["scores"] |= {f"agreement_{t}_exit_{e}": 0.9 for t in family_report.TARGETS for e in (1, 4)}
        (trained / name / "card.json").write_text(json.dumps(card))
    (trained / "training").mkdir()
    (trained / "training" / "report.json").write_text(json.dumps(history))
    (tmp_path / "scores.json").write_text(json.dumps(evaluated))

    page = family_report.write(trained, tmp_path / "scores.json", tmp_path / "docs")
    plots = {one.name: one.read_bytes() for one in (tmp_path / "docs" / "family").iterdir()}
    family_report.write(trained, tmp_path / "scores.json", tmp_path / "docs")

    text = page.read_text()
    assert "| 1 | 0.500 | 1.500 |" in text
    assert "| all |  |  |  | 31 |" in text
    assert "| sort | 75 % | 50 % | 3.50 | 75 % | 50 % | 3.50 |" in text
    assert "| **blocksworld** | 25 % | 25 % | 2.00 | 25 % | 25 % | 2.00 |" in text
    assert "| **all** | 42 % | 33 % | 2.50 | 42 % | 33 % | 2.50 |" in text
    assert "Fewest tokens per round: blocks3 on grove-large (2.00), blocks3 on grove-small (2.00)." in text
    assert "only 1 and 1 different held-out problems" in text
    assert "| grove-large | 10 | 20 % (10 to 40) | 90 % (60 to 100) |" in text
    assert set(plots) == {"loss.svg", "accuracy.svg", "agreement.svg"}
    assert plots == {one.name: one.read_bytes() for one in (tmp_path / "docs" / "family").iterdir()}
