"""From raw runs to a JSON report and a short table: ratios first."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from specgrove import __version__
from specgrove.bench.measure import ASSISTED, PLAIN, REFERENCE, SPECULATIVE, Run
from specgrove.bench.plots import axes, save
from specgrove.errors import ConfigError


def speed(
    settings: Mapping[str, Any], runs: Sequence[Run], judged: Mapping[str, Any], same_text: Mapping[str, int]
) -> dict[str, Any]:
    """The whole report of `bench speed`, raw runs included."""
    kinds = ["all", *sorted({run.kind for run in runs})]
    return {
        "bench": "speed",
        "specgrove": __version__,
        "machine": {"cpu": platform.processor() or platform.machine(), "python": platform.python_version()},
        "settings": dict(settings),
        "throughput": {kind: _throughput([r for r in runs if kind in ("all", r.kind)]) for kind in kinds},
        "speculation": _speculation([run for run in runs if run.variant == SPECULATIVE]),
        "same_text_as_plain": dict(same_text),
        "judged": dict(judged),
        "runs": [asdict(run) for run in runs],
    }


def _throughput(runs: Sequence[Run]) -> dict[str, Any]:
    """Tokens per second of every variant, and what the release criteria divide."""
    rate = {}
    others = sorted({run.variant for run in runs} - {REFERENCE, *ASSISTED, PLAIN, SPECULATIVE})
    for name in (REFERENCE, *ASSISTED, PLAIN, SPECULATIVE, *others):
        mine = [run for run in runs if run.variant == name]
        rate[name] = sum(run.count for run in mine) / sum(run.seconds for run in mine)
    best_assisted = max(rate[name] for name in ASSISTED)
    return {
        "tokens_per_s": rate,
        "relative_to_transformers_plain": {name: value / rate[REFERENCE] for name, value in rate.items()},
        "speculative_over_plain": rate[SPECULATIVE] / rate[PLAIN],
        "speculative_over_best_assisted": rate[SPECULATIVE] / best_assisted,
        "speculative_over_plain_per_prompt": _per_prompt(runs),
    }


def _per_prompt(runs: Sequence[Run]) -> list[float]:
    """Ratio of median times, one per prompt."""
    out = []
    for prompt in sorted({run.prompt for run in runs}):
        times = {
            name: median(run.seconds for run in runs if run.prompt == prompt and run.variant == name)
            for name in (PLAIN, SPECULATIVE)
        }
        out.append(times[PLAIN] / times[SPECULATIVE])
    return out


def _speculation(runs: Sequence[Run]) -> dict[str, Any]:
    """Commits, acceptance by position, and the parts of a round (draft, verify, everything else)."""
    stats = [run.stats for run in runs if run.stats is not None]
    drafts = sum(s["num_drafts"] for s in stats)
    depth = max((len(s["accepted_per_pos"]) for s in stats), default=0)
    accepted = [sum(s["accepted_per_pos"][i] for s in stats if i < len(s["accepted_per_pos"])) for i in range(depth)]
    rounds = [r for run in runs for r in run.rounds]
    total = sum(r["round_s"] for r in rounds) or 1.0
    rest = [r["round_s"] - r["draft_s"] - r["verify_s"] for r in rounds]
    return {
        "rounds": len(rounds),
        "rounds_with_tree": drafts / max(1, sum(s["rounds"] for s in stats)),
        "committed_per_round": sum(r["emitted"] for r in rounds) / max(1, len(rounds)),
        "acceptance_by_position": [value / max(1, drafts) for value in accepted],
        "mean_nodes": sum(r["nodes"] for r in rounds) / max(1, len(rounds)),
        "share_of_round": {
            "draft": sum(r["draft_s"] for r in rounds) / total,
            "verify": sum(r["verify_s"] for r in rounds) / total,
            "rest": sum(rest) / total,
        },
        "median_ms": {
            "draft": 1e3 * median([r["draft_s"] for r in rounds] or [0.0]),
            "verify": 1e3 * median([r["verify_s"] for r in rounds] or [0.0]),
            "rest": 1e3 * median(rest or [0.0]),
        },
        "stale_trees": sum(s["stale_trees"] for s in stats),
    }


def wire(added_rtt_ms: float, runs: Sequence[Run], sent: float) -> dict[str, float]:
    """What a longer wire costs: rates of specgrove's two ways beside each other, and bytes per committed token.

    sent: bytes between target and draft in these runs, both ways; plain runs send none.
    """
    rate = {}
    for name in (PLAIN, SPECULATIVE):
        mine = [run for run in runs if run.variant == name]
        rate[name] = sum(run.count for run in mine) / sum(run.seconds for run in mine)
    return {
        "added_rtt_ms": added_rtt_ms,
        "plain_tokens_per_s": rate[PLAIN],
        "speculative_tokens_per_s": rate[SPECULATIVE],
        "speculative_over_plain": rate[SPECULATIVE] / rate[PLAIN],
        "bytes_per_token": sent / sum(run.count for run in runs if run.variant == SPECULATIVE),
    }


def writable(path: Path) -> None:
    """Refuse a place that cannot be written before hours of measuring, not after. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", param="json") from None


def write(path: Path, out: Mapping[str, Any]) -> None:
    """Write a report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


def speed_table(out: Mapping[str, Any]) -> str:
    """The report as a short Markdown page: what was run, ratios, acceptance, parts of a round, parity."""
    settings, speculation = out["settings"], out["speculation"]
    depth = settings.get("draft_exit")
    cut = "" if depth is None else f", draft exit {depth} (the assisted way uses the whole draft)"
    lines = [
        f"Target {settings['target']}, draft {settings['draft']}, {settings['dtype']}, {settings['threads']} threads, "
        f"T = {settings['temperature']}, {settings['tokens']} tokens, {len(settings['prompts'])} prompts, "
        f"{settings['repeats']} repeats, speculative_config {json.dumps(settings['speculative_config'])}"
        f"{cut}.",
        "",
        "Tokens per second relative to transformers plain, interleaved in one run:",
        "",
        "| prompts | " + " | ".join(out["throughput"]["all"]["tokens_per_s"]) + " |",
        "|---|" + "---|" * len(out["throughput"]["all"]["tokens_per_s"]),
    ]
    for kind, row in out["throughput"].items():
        cells = " | ".join(f"{value:.2f}" for value in row["relative_to_transformers_plain"].values())
        lines.append(f"| {kind} | {cells} |")
    lines += ["", "| prompts | speculative / plain | speculative / better assisted |", "|---|---|---|"]
    for kind, row in out["throughput"].items():
        lines.append(f"| {kind} | {row['speculative_over_plain']:.2f} | {row['speculative_over_best_assisted']:.2f} |")
    same, judged = out["same_text_as_plain"], out["judged"]
    share, ms = speculation["share_of_round"], speculation["median_ms"]
    positions = ", ".join(f"{value:.2f}" for value in speculation["acceptance_by_position"])
    lines += [
        "",
        f"Committed tokens per round {speculation['committed_per_round']:.2f}; acceptance by position {positions}; "
        f"{speculation['mean_nodes']:.1f} nodes per tree; {100 * speculation['rounds_with_tree']:.0f} % of rounds had "
        "a tree.",
        "",
        "| part of a round | share | median |",
        "|---|---|---|",
        *(f"| {part} | {100 * share[part]:.1f} % | {ms[part]:.2f} ms |" for part in ("draft", "verify", "rest")),
        "",
        f"Same tokens speculatively and plainly: {same['equal']} of {same['of']} runs. "
        "Judged token by token by a cacheless forward pass of transformers:",
        "",
        "| output | tokens | near ties | real differences | largest gap |",
        "|---|---|---|---|---|",
    ]
    for name, row in judged.items():
        lines.append(
            f"| {name} | {row['tokens']} | {row['near_ties']} (gap up to {row['epsilon']}) | {row['real_differences']} "
            f"| {row['largest_gap']} |"
        )
    lines += ["", *_wire_table(out["wire"])]
    if (limit := out.get("bound")) is not None:
        needed, read, share = (limit[k] for k in ("weight_bytes_per_token", "read_bytes_per_s", "plain_over_bound"))
        lines += [
            "",
            f"Every plain token reads {needed / 1e6:.0f} MB of weights, and this machine reads {read / 1e9:.1f} GB/s: "
            f"specgrove plain is at {100 * share:.0f} % of that bound.",
        ]
    return "\n".join(lines) + "\n"


def _wire_table(wires: Sequence[Mapping[str, float]]) -> list[str]:
    """Added round trips; the last column is held against the first row's ratio to its own plain."""
    first = wires[0]["speculative_over_plain"]
    return [
        "| round trip added | speculative / plain | of the first row's | bytes per committed token |",
        "|---|---|---|---|",
        *(
            f"| {row['added_rtt_ms']:g} ms | {row['speculative_over_plain']:.2f} "
            f"| {row['speculative_over_plain'] / first:.2f} | {row['bytes_per_token']:.0f} |"
            for row in wires
        ),
    ]


def draw(out: Mapping[str, Any], path: Path) -> None:
    """Bars of every way relative to transformers plain, by kind of prompt. Raises ConfigError without matplotlib."""
    figure, plot = axes("One user: tokens per second", "", "relative to transformers plain")
    kinds = list(out["throughput"])
    ways = list(out["throughput"]["all"]["tokens_per_s"])
    for column, name in enumerate(ways):
        heights = [out["throughput"][kind]["relative_to_transformers_plain"][name] for kind in kinds]
        places = [i + 0.8 * (column + 0.5) / len(ways) - 0.4 for i in range(len(kinds))]
        plot.bar(places, heights, 0.8 / len(ways), label=name)
    plot.set_xticks(range(len(kinds)), kinds, rotation=30, ha="right")
    plot.legend(fontsize=8)
    save(figure, path)
