"""Mistakes that can be seen before anything starts: one sentence that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specgrove.config import Config, ModelConfig
from specgrove.deploy import preflight
from specgrove.deploy.preflight import Pair, check_all, check_visible
from specgrove.errors import ConfigError


class Seen:
    """What an inspection says of a vocabulary."""

    def __init__(self, size: int, tokens: str) -> None:
        self.vocab_size, self.vocab_hash = size, tokens


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabularies = {"big": Seen(10, "x"), "tiny": Seen(10, "x"), "alien": Seen(7, "y")}

    def look(name: str, model: ModelConfig) -> Seen:
        return vocabularies[model.source]

    monkeypatch.setattr(preflight, "_inspect", look)


def config(drafts: dict[str, Any], **target: Any) -> Config:
    """One target of model `big`, and these draft pools."""
    names = ("big", "tiny", "alien")
    return Config.from_mapping(
        {"models": {n: n for n in names}, "targets": {"main": {"model": "big", **target}}, "drafts": drafts}
    )


def test_equal_vocabularies_pair():
    """Negative control for the refusals below."""
    assert check_all(config({"fast": {"model": "tiny"}})) == [Pair(draft="fast", target="main", equal=True)]


@pytest.mark.parametrize(
    ("drafts", "target"),
    [
        ({"fast": {"model": "alien"}}, {}),
        (
            {"fast": {"model": "alien"}, "good": {"model": "tiny"}},
            {"speculative_config": {"draft_pool": ["fast", "good"]}},
        ),
        ({"fast": {"model": "alien", "targets": "main"}, "good": {"model": "tiny"}}, {}),
    ],
)
def test_unequal_vocabularies_stop_the_start(drafts: dict[str, Any], target: dict[str, Any]):
    """A draft pool that fits no target, or a pair that the configuration names."""
    with pytest.raises(ConfigError) as caught:
        check_all(config(drafts, **target))

    assert caught.value.param == "drafts.fast"
    assert "draft alien (7 tokens) and target big (10 tokens) use different vocabularies" in caught.value.message


def test_a_pool_may_fit_some_targets_only():
    """Unnamed pairs of unequal vocabularies are simply not made."""
    both = Config.from_mapping(
        {
            "models": {"big": "big", "alien": "alien", "tiny": "tiny"},
            "targets": {"main": {"model": "big"}, "other": {"model": "alien"}},
            "drafts": {"fast": {"model": "tiny"}},
        }
    )

    assert [(pair.target, pair.equal) for pair in check_all(both)] == [("main", True), ("other", False)]


def test_models_elsewhere_are_not_looked_at(tmp_path: Path):
    """The builder may run on a node that holds no weights; the replicas' nodes will tell."""
    assert check_visible(config({"fast": {"model": "alien"}})) == []


def test_a_missing_directory_is_named(monkeypatch: pytest.MonkeyPatch):
    """With its key and the path."""
    monkeypatch.undo()
    absent = Config.from_mapping({"models": {"m": "/nonexistent/model"}, "targets": {"t": {"model": "m"}}})

    with pytest.raises(ConfigError, match=r"config models\.m: .*/nonexistent/model") as caught:
        check_all(absent)

    assert caught.value.param == "models.m"
