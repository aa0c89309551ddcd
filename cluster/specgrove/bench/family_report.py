"""docs/family.md: what the bundled family is, how it was trained and how well it answers, with plots.

Everything is read from `train family`'s report and cards and from `eval family`'s JSON; nothing is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specgrove.bench.plots import axes, save
from specgrove.core.cards import ModelCard
from specgrove.errors import ConfigError
from specgrove.training import arithmetic, countdown
from specgrove.training.export import read_card

TARGETS = ("grove-large", "grove-small")
DRAFT, PLAIN = "grove-draft", "grove-draft-plain"
FIGURES = "family"
"""Folder of the plots beside the page."""


def write(trained: Path, scores: Path, out: Path) -> Path:
    """Write OUT/family.md and the plots; returns the page's path.

    trained: what `train family` was given.  scores: what `eval family --json` wrote.  Raises ConfigError when either
    is not there or matplotlib is not installed.
    """
    history, evaluated = _read(trained / "training" / "report.json"), _read(scores)
    cards = {name: read_card(trained / name) for name in (*TARGETS, DRAFT)}
    folder = out / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    _plot_losses(history, folder / "loss.svg")
    _plot_accuracy(evaluated, folder / "accuracy.svg")
    _plot_agreement(cards[DRAFT], history["exits"], folder / "agreement.svg")
    page = out / "family.md"
    page.write_text(_page(history, evaluated, cards), encoding="utf-8")
    return page


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return found


def _plot_losses(history: Mapping[str, Any], path: Path) -> None:
    figure, plot = axes("Held-out loss by exit: sorted draft against a plain one", "million tokens", "nats per token")
    for name, style in ((DRAFT, "-"), (PLAIN, "--")):
        model = history["models"][name]
        tokens = [point[0] * model["tokens_per_step"] / 1e6 for point in model["curve"]]
        for index, depth in enumerate(model["looks_at"]):
            losses = [point[1 + index] for point in model["curve"]]
            kind = "sorted" if name == DRAFT else "plain"
            plot.plot(tokens, losses, style, color=f"C{index}", label=f"exit {depth}, {kind}")
    plot.set_yscale("log")
    plot.legend(ncols=2)
    save(figure, path)


def _plot_accuracy(evaluated: Mapping[str, Any], path: Path) -> None:
    kinds = list(evaluated["models"][TARGETS[0]]["trained"])
    figure, plot = axes("Greedy accuracy on held-out problems", "", "right answers, %")
    for column, (model, side) in enumerate((m, s) for m in TARGETS for s in ("trained", "unseen")):
        heights = [100 * evaluated["models"][model][side][kind]["accuracy"] for kind in kinds]
        places = [i + 0.2 * column - 0.3 for i in range(len(kinds))]
        shade = 1.0 if side == "trained" else 0.45
        plot.bar(places, heights, 0.2, color=f"C{TARGETS.index(model)}", alpha=shade, label=f"{model}, {side} wordings")
    plot.set_xticks(range(len(kinds)), kinds, rotation=60, ha="right", fontsize=8)
    plot.legend(fontsize=8, loc="lower left")
    save(figure, path)


def _plot_agreement(card: ModelCard, exits: Sequence[int], path: Path) -> None:
    figure, plot = axes("Target tokens that are the draft's first guess", "exit of the draft", "%")
    for column, target in enumerate(TARGETS):
        shares = [100 * card.scores[f"agreement_{target}_exit_{depth}"] for depth in exits]
        plot.bar([i + 0.4 * column - 0.2 for i in range(len(exits))], shares, 0.4, label=target)
    plot.set_xticks(range(len(exits)), [str(depth) for depth in exits])
    plot.legend(loc="lower right")
    save(figure, path)


def _page(history: Mapping[str, Any], evaluated: Mapping[str, Any], cards: Mapping[str, ModelCard]) -> str:
    count, seed = evaluated["count"], evaluated["seed"]
    parts = [
        "# The bundled family",
        "Written by `specgrove eval report` from what `specgrove train family` and `specgrove eval family` measured.",
        "## Models",
        _models(history, cards),
        f"Numbers in word problems go up to {arithmetic.MOST}; Countdown gives numbers up to {countdown.LARGEST_GIVEN} "
        f"and never goes over {countdown.MOST}; Blocksworld has three or four blocks of six colors.",
        "## Sorted against plain",
        "Same shape, same samples, same steps; held-out loss on the answers, in nats per token.",
        _exits(history),
        f"![loss by exit]({FIGURES}/loss.svg)",
        "Share of a target's greedy tokens that are the draft's first guess, given the target's tokens before:",
        _agreements(cards[DRAFT], history["exits"]),
        f"![agreement by exit]({FIGURES}/agreement.svg)",
        "## Answers",
        f"Greedy, through the server, {count} held-out problems of each kind and half (seed {seed}), judged by exact "
        "checkers; unseen wordings never occur in training.",
        _answers(evaluated),
        f"![accuracy by kind]({FIGURES}/accuracy.svg)",
    ]
    if evaluated["countdown"]:
        parts += ["## Countdown by search", _searches(evaluated["countdown"])]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def _models(history: Mapping[str, Any], cards: Mapping[str, ModelCard]) -> str:
    rows = []
    for name, model in history["models"].items():
        card = cards.get(name)
        shape = f"{card.layers} layers of {card.hidden_size}" if card else "as the draft, not shipped"
        tokens = model["steps"] * model["tokens_per_step"] / 1e6
        rows.append([name, shape, f"{model['parameters'] / 1e6:.2f} M", f"{tokens:.1f} M", f"{model['minutes']:.0f}"])
    return _table(["model", "shape", "parameters", "training tokens", "minutes on 2 cores"], rows)


def _exits(history: Mapping[str, Any]) -> str:
    losses = history["held_out_loss"]
    rows = [
        [str(depth), f"{ours:.3f}", f"{plain:.3f}"]
        for depth, ours, plain in zip(history["exits"], losses["sorted"], losses["plain"], strict=True)
    ]
    return _table(["exit", "sorted", "plain"], rows)


def _agreements(card: ModelCard, exits: Sequence[int]) -> str:
    rows = [
        [str(depth), *(f"{100 * card.scores[f'agreement_{target}_exit_{depth}']:.1f} %" for target in TARGETS)]
        for depth in exits
    ]
    return _table(["exit", *TARGETS], rows)


def _answers(evaluated: Mapping[str, Any]) -> str:
    models = evaluated["models"]
    rows = []
    for kind in models[TARGETS[0]]["trained"]:
        row = [kind]
        for name in TARGETS:
            sides = models[name]
            row += [f"{100 * sides[side][kind]['accuracy']:.0f} %" for side in ("trained", "unseen")]
            row.append(f"{sides['trained'][kind]['tokens_per_round']:.2f}")
        rows.append(row)
    head = [f"{name}{column}" for name in TARGETS for column in ("", ", unseen wordings", ", tokens per round")]
    return _table(["kind", *head], rows)


def _searches(found: Mapping[str, Any]) -> str:
    rows = []
    for name, one in found.items():
        cells = []
        for way in ("straight", "searched"):
            low, high = one["intervals"][way]
            cells.append(f"{100 * one[way] / one['asked']:.0f} % ({100 * low:.0f} to {100 * high:.0f})")
        rows.append([name, str(one["asked"]), *cells])
    note = (
        "Straight greedy answers against a breadth-first search of width 5 judged by the model itself; 95 % intervals."
    )
    return note + "\n\n" + _table(["model", "problems", "straight", "searched"], rows)
