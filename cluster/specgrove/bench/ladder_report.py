"""What `bench ladder` found: planned against the best fixed policy of every rung, paired by repeat."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

from specgrove import __version__
from specgrove.bench.ladder import BAD, OFF, PLANNED, Recovery, Window
from specgrove.bench.plots import axes, save

T90 = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356, 1.350, 1.345, 1.341)
"""90 % quantiles of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of two policies at one rung: geometric mean over repeats, and the lower end of its one-sided 90 % interval."""

    mean: float
    low: float


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio:
    """Ratio of rates with the same repeat number."""
    logs = [math.log(ours[repeat] / theirs[repeat]) for repeat in sorted(ours.keys() & theirs.keys())]
    mean = fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0)
    quantile = T90[len(logs) - 2] if len(logs) - 2 < len(T90) else NormalDist().inv_cdf(0.9)
    return Ratio(math.exp(mean), math.exp(mean - quantile * stdev(logs) / math.sqrt(len(logs))))


def report(settings: Mapping[str, Any], windows: Sequence[Window], recovery: Recovery | None) -> dict[str, Any]:
    """The whole report, raw windows included."""
    return {
        "bench": "ladder",
        "specgrove": __version__,
        "machine": {"cpu": platform.processor() or platform.machine(), "python": platform.python_version()},
        "settings": dict(settings),
        "rungs": [_rung(windows, rung) for rung in sorted({window.concurrency for window in windows})],
        "recovery": None
        if recovery is None
        else {"seconds": recovery.seconds, "good_rate": recovery.good_rate, "rates": list(recovery.rates)},
        "windows": [window.to_mapping() for window in windows],
    }


def _rung(windows: Sequence[Window], concurrency: int) -> dict[str, Any]:
    rates: dict[str, dict[int, float]] = {}
    for window in windows:
        if window.concurrency == concurrency:
            rates.setdefault(window.policy, {})[window.repeat] = window.tokens / window.seconds
    found: dict[str, Any] = {
        "concurrency": concurrency,
        "tokens_per_s": {name: fmean(by_repeat.values()) for name, by_repeat in rates.items()},
    }
    for bad in ("", BAD):
        fixed = [name for name in rates if name.endswith(BAD) == bool(bad) and not name.startswith(PLANNED)]
        if PLANNED + bad not in rates:
            continue
        best = max([*fixed, OFF] if OFF in rates else fixed, key=lambda name: fmean(rates[name].values()))
        against = {"best": best, "over_best": paired(rates[PLANNED + bad], rates[best])}
        if OFF in rates:
            against["over_off"] = paired(rates[PLANNED + bad], rates[OFF])
        against["budget"] = _budget([w for w in windows if (w.policy, w.concurrency) == (PLANNED + bad, concurrency)])
        found["planned" + bad] = {
            key: {"mean": value.mean, "low": value.low} if isinstance(value, Ratio) else value
            for key, value in against.items()
        }
    return found


def _budget(windows: Sequence[Window]) -> dict[str, float]:
    """What the planner had chosen at the ends of its windows, on average."""
    known = [window.planned for window in windows if window.planned]
    return {key: fmean(one[key] for one in known) for key in known[0]} if known else {}


def table(out: Mapping[str, Any]) -> str:
    """The report as Markdown: tokens per second relative to off, and planned against the best fixed policy."""
    names = list(out["rungs"][0]["tokens_per_s"])
    lines = ["| clients | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for rung in out["rungs"]:
        rates = rung["tokens_per_s"]
        base = rates.get(OFF) or max(rates.values())
        lines.append(f"| {rung['concurrency']} | " + " | ".join(f"{rates[name] / base:.2f}" for name in names) + " |")
    lines += [
        "",
        "| clients | draft | best fixed policy | planned / best (lower 90 %) | planned / off (lower 90 %) "
        "| planned nodes and depth |",
        "|---|---|---|---|---|---|",
    ]
    for rung in out["rungs"]:
        for key, draft in (("planned", "good"), ("planned" + BAD, "bad")):
            if (one := rung.get(key)) is not None:
                off = one.get("over_off")
                over_off = f"{off['mean']:.2f} ({off['low']:.2f})" if off else ""
                best = one["over_best"]
                lines.append(
                    f"| {rung['concurrency']} | {draft} | {one['best']} | {best['mean']:.2f} ({best['low']:.2f}) "
                    f"| {over_off} | {_nodes_and_depth(one['budget'])} |"
                )
    if out["recovery"] is not None:
        seconds = out["recovery"]["seconds"]
        when = "never within the run" if seconds is None else f"after {seconds:g} s"
        lines += ["", f"After a bad draft turned good again, planned was back at 0.9 of its rate {when}."]
    return "\n".join(lines)


def _nodes_and_depth(budget: Mapping[str, float]) -> str:
    return f"{budget['nodes']:.1f}, {budget['depth']:.1f}" if budget else ""


def draw(out: Mapping[str, Any], path: Path) -> None:
    """Tokens per second over the number of clients, one line a policy. Raises ConfigError without matplotlib."""
    figure, plot = axes("Closed loop: tokens per second", "clients", "tokens per second")
    clients = [rung["concurrency"] for rung in out["rungs"]]
    for name in out["rungs"][0]["tokens_per_s"]:
        style = {PLANNED: "k-o", OFF: "k--"}.get(name, ":" if name.endswith(BAD) else "-")
        plot.plot(clients, [rung["tokens_per_s"][name] for rung in out["rungs"]], style, label=name, markersize=3)
    plot.set_xscale("log", base=2)
    plot.legend(fontsize=7, ncols=2)
    save(figure, path)
