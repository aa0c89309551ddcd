"""The command line without a server: help, errors as one sentence, pictures of rounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specgrove.cli.commands import run
from specgrove.cli.greeting import figures
from specgrove.cli.rounds import RoundPrinter
from specgrove.core.request import RoundTrace, SpeculationStats
from specgrove.core.tree import TokenTree

GROUPS = ("train", "bench", "eval", "explain")


@pytest.mark.parametrize(
    "command",
    [[], ["serve"], ["generate"], ["models"], ["doctor"], ["train", "family"], ["profile"], *([g] for g in GROUPS)],
)
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]):
    """Every command explains itself."""
    assert run([*command, "--help"]) == 0
    assert "Usage: specgrove" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    """It answers at once."""
    code = (
        "import sys; sys.argv = ['specgrove', 'serve', '--print-config']\n"
        "from specgrove.cli.commands import run; run(sys.argv[1:])\n"
        "print([name for name in ('torch', 'ray', 'transformers', 'grpc', 'fastapi') if name in sys.modules])"
    )
    path = {"PYTHONPATH": str(Path(__file__).parents[2] / "cluster")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=path,
    )

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["serve", "--port", "x"], 2, "Invalid value"),
        (["serve", "--nope"], 2, "No such option"),
        (["serve", "--config", "/nonexistent.yaml"], 2, "error: cannot read the configuration /nonexistent.yaml"),
        (["serve", "--draft", "d"], 2, "error: --draft needs a MODEL"),
        (["models", "--server", "127.0.0.1:1"], 1, "error: "),
        (["bench", "speed", "--target", "t", "--draft", "d", "--speculative", "{nope: 1}"], 2, "nope: unknown key"),
        (["bench", "speed", "--target", "t", "--draft", "d", "--speculative", "["], 2, "is not YAML"),
    ],
)
def test_an_error_is_one_sentence(command: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]):
    """On stderr, with an exit status and without a traceback."""
    assert run(command) == status

    shown = capsys.readouterr()
    assert words in " ".join(shown.err.split())
    assert "Traceback" not in shown.err


def test_figures():
    """Tokens per round and what became of the trees."""
    stats = SpeculationStats(rounds=4, num_drafts=3, num_draft_tokens=12, num_accepted_tokens=6)

    head, _, trees = figures(stats, 10, 0.5).partition("; ")

    assert head == "10 tokens in 4 rounds, 0.50 s: 2.50 tokens a round"
    assert trees == "3 rounds had a tree, 4.0 nodes each, of which 2.00 were accepted"
    assert figures(SpeculationStats(rounds=3), 3, 1.0) == "3 tokens in 3 rounds, 1.00 s; decoded plainly"


class Words:
    """A client that knows the text of every token."""

    def detokenize(self, model: str, tokens: list[int]) -> str:
        return {1: " a", 2: "b\n", 3: "[c]", 4: "d"}[tokens[0]]


def test_a_round_as_a_picture(capsys: pytest.CaptureFixture[str]):
    """The tree with visible spaces, then what was emitted; markup in token texts is only text."""
    trace = RoundTrace(
        tree=TokenTree((1, 2, 3), (-1, 0, -1)), accepted=(0, 1), emitted=(1, 2, 4), draft="draft#x", round_s=0.005
    )

    RoundPrinter(Words(), "m").show(trace)  # type: ignore[arg-type]

    shown = capsys.readouterr().out
    assert "round 1 3 nodes by draft#x, 2 accepted; round 5.0 ms" in shown
    assert "├── ·a" in shown
    assert "│   └── b\\n" in shown
    assert "└── [c]" in shown
    assert "→ ·ab\\nd" in shown
