"""`specgrove profile` from the command line."""

import json

import pytest
from tests.pairs import write_pair

from specgrove.cli.commands import run
from specgrove.planning.latency import KNOTS, LatencyModel, Work


def test_a_profile(capsys, tmp_path):
    """A table, a report that `explain size` reads and the planner's model, and a plot."""
    model = write_pair(tmp_path, likeness=1.0)[0]
    report, plot = tmp_path / "profile.json", tmp_path / "profile.svg"
    options = ["--threads", "1", "--seconds", "2", "--json", str(report), "--plot", str(plot)]

    assert run(["profile", str(model), *options]) == 0

    assert "held out, mean error" in capsys.readouterr().out
    found = json.loads(report.read_text())
    assert {int(n) for n in found["latency"]} == set(KNOTS)
    held = {p["tokens"] // p["sessions"] for p in found["passes"] if p["held_out"]}
    assert held - set(KNOTS)
    assert len(found["passes"]) >= 2 * len(KNOTS)
    curve = LatencyModel.from_mapping(found["model"])
    assert found["fit_error"] == pytest.approx(_mean_error(curve, found["passes"], held_out=False))
    assert found["held_out_error"] == pytest.approx(_mean_error(curve, found["passes"], held_out=True))
    assert found["latency"]["8"] == pytest.approx(curve.seconds(Work(8, 1, 64)))
    assert plot.read_text().startswith("<?xml")

    sizes = tmp_path / "latency.json"
    sizes.write_text(json.dumps(found["latency"]))
    assert run(["explain", "size", "--latency", str(sizes), "--draft-cost", "0.001", "--acceptance", "0.8,0.1"]) == 0


def _mean_error(curve: LatencyModel, passes: list[dict], *, held_out: bool) -> float:
    """From the report's own passes; how small it is, is the machine's affair (tests/planning judges the fit)."""
    errors = [
        abs(curve.seconds(Work(p["tokens"], p["sessions"], p["context"])) / p["seconds"] - 1)
        for p in passes
        if p["held_out"] == held_out
    ]
    return sum(errors) / len(errors)


def test_what_is_no_model_is_refused(capsys, tmp_path):
    """With one sentence."""
    assert run(["profile", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
