"""`specgrove explain` from the command line."""

import json

import pytest

from specgrove.cli.commands import run


def said(capsys, *arguments):
    """Standard output of a command that must succeed."""
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


def written(path, value):
    """A JSON file."""
    path.write_text(json.dumps(value))
    return str(path)


def test_a_tree(capsys):
    """As JSON and drawn."""
    asked = ["tree", "--acceptance", "0.6,0.2,0.1,0.05", "--nodes", "8"]
    found = json.loads(said(capsys, *asked, "--json"))

    assert found["expected_tokens"] == pytest.approx(2.7456)
    assert (found["nodes"], found["levels"], len(found["parents"])) == (8, 5, 7)
    assert "2.7456 expected tokens" in said(capsys, *asked)
    assert json.loads(said(capsys, *asked, "--depth", "3", "--json"))["expected_tokens"] == pytest.approx(2.56)


def test_a_tree_by_matrix(capsys, tmp_path):
    """Acceptances by level and rank from a file."""
    matrix = written(tmp_path / "matrix.json", [[0.7, 0.2], [0.5, 0.2], [0.3, 0.1], [0.1, 0.05]])
    found = json.loads(said(capsys, "tree", "--matrix", matrix, "--nodes", "8", "--json"))

    assert found["expected_tokens"] == pytest.approx(2.637)


def test_a_size(capsys, tmp_path):
    """The golden choice, and plain decoding where nothing pays."""
    latency = written(tmp_path / "latency.json", {"1": 1.0, "2": 1.0, "4": 1.05, "8": 1.2})
    asked = ["size", "--latency", latency, "--draft-cost", "0.1", "--acceptance"]
    found = json.loads(said(capsys, *asked, "0.6,0.2,0.1,0.05", "--json"))

    assert (found["nodes"], found["levels"]) == (8, 3)
    assert found["gain"] == pytest.approx(1.70666667)
    assert "1.707 times plain" in said(capsys, *asked, "0.6,0.2,0.1,0.05")
    assert "no tree pays" in said(capsys, *asked, "0.6", "--network", "9")


def test_a_goodput(capsys, tmp_path):
    """The published coefficients."""
    coefficients = written(
        tmp_path / "h100.json",
        {
            "c_kv": 4.859e-5,
            "c_c": 1.844e-2,
            "c_B": -4.331e-2,
            "c_0": 6.9387,
            "d_kv": 2.897e-6,
            "d_c": 4.387e-5,
            "d_k": 0.4522,
            "d_B": 5.528e-3,
            "d_0": 0.4471,
        },
    )
    asked = ["goodput", "--alpha", "0.7", "--batch", "16", "--context", "1024", "--coefficients", coefficients]
    found = json.loads(said(capsys, *asked, "--json"))

    assert found["k"] == 4
    assert found["gain"] == pytest.approx(1.79, abs=0.01)
    assert "best" in said(capsys, *asked)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tree", "--nodes", "4"], "either --acceptance or --matrix"),
        (["tree", "--nodes", "4", "--acceptance", "much"], "numbers with commas"),
        (["tree", "--nodes", "4", "--acceptance", "0.9,0.9"], "at most 1 together"),
        (["tree", "--nodes", "4", "--matrix", "nowhere.json"], "cannot read nowhere.json"),
        (["size", "--latency", "{list}", "--draft-cost", "0", "--acceptance", "0.5"], "JSON object"),
        (["size", "--latency", "{words}", "--draft-cost", "0", "--acceptance", "0.5"], "times by number of nodes"),
        (["size", "--latency", "{broken}", "--draft-cost", "0", "--acceptance", "0.5"], "is no JSON"),
        (["goodput", "--alpha", "0.5", "--batch", "1", "--context", "1", "--coefficients", "{words}"], "unknown key"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words, capsys, tmp_path):
    """On standard error, with the status of a wrong configuration."""
    files = {"{list}": "[1, 2]", "{words}": '{"one": "fast"}', "{broken}": "{"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    asked = [str(tmp_path / one) if one in files else one for one in arguments]

    assert run(["explain", *asked]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
