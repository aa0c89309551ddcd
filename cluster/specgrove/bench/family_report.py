"""docs/family.md: what the bundled family is, how it was trained and how well it answers, with plots.

Everything is read from `train family`'s report and cards and from `eval family`'s JSON; nothing is written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specgrove.bench.countdown import PROPOSALS, WIDTH
from specgrove.bench.family import ALL
from specgrove.bench.plots import axes, save
from specgrove.core.cards import ModelCard
from specgrove.errors import ConfigError
from specgrove.training import arithmetic, countdown
from specgrove.training.export import read_card
from specgrove.training.run import REPORT, WORK

TARGETS = ("grove-large", "grove-small")
DRAFT, PLAIN = "grove-draft", "grove-draft-plain"
FIGURES = "family"
"""Folder of the plots beside the page."""


def write(trained: Path, scores: Path, out: Path) -> Path:
    """Write OUT/family.md and the plots; returns the page's path.

    trained: what `train family` was given.  scores: what `eval family --json` wrote, of all kinds and both targets.
    Raises ConfigError when something of it is not there or matplotlib is not installed.
    """
    history, evaluated = _read(trained / WORK / REPORT), _read(scores)
    missing = [name for name in TARGETS if ALL not in evaluated.get("groups", {}).get(name, {}).get("trained", {})]
    if missing:
        raise ConfigError(f"{scores} has no scores of {missing[0]}; evaluate both targets")
    try:
        cards = {name: read_card(trained / name) for name in (*TARGETS, DRAFT)}
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from None
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
    except ValueError:
        raise ConfigError(f"{path} is not JSON") from None
    return found


def _plot_losses(history: Mapping[str, Any], path: Path) -> None:
    figure, plot = axes(
        "Held-out loss by exit: sorted draft against a plain one",
        "million tokens",
        "nats per token, questions at a tenth",
    )
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
    figure, plot = axes("Acceptance of the draft's first guess", "exit of the draft", "% of the target's greedy tokens")
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
        "Acceptance of one greedy guess by exit and target: the share of the target's tokens that are the draft's "
        "first guess, given the target's tokens before.",
        _agreements(cards[DRAFT], history["exits"]),
        f"![agreement by exit]({FIGURES}/agreement.svg)",
        "## Answers",
        f"Greedy, through the server, {count} held-out problems of each kind and half (seed {seed}), judged by exact "
        "checkers. Unseen wordings are sentences, and combinations of known pieces of sentences, that never occur in "
        "training. Tokens per round are those of the whole column pair, with the draft and tree that the server was "
        "configured with.",
        _answers(evaluated),
        _worst(evaluated),
        "Problems are held out by what is asked, whatever the words. Small worlds have few of them, and their answers "
        "pass through states of each other: up to its colors, Blocksworld with three or four blocks has only "
        f"{_distinct(evaluated, 'blocks3')} and {_distinct(evaluated, 'blocks4')} different held-out problems among "
        "those asked here, and a four-number Countdown answer may contain the lines of a three-number one.",
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
    outputs = history["outputs"]
    rows.append(
        ["the targets' answers for the drafts", f"{outputs['answers']} answers", "", "", f"{outputs['minutes']:.0f}"]
    )
    rows.append(["scores on the cards", "", "", "", f"{history['scoring_minutes']:.0f}"])
    total = outputs["minutes"] + history["scoring_minutes"] + sum(m["minutes"] for m in history["models"].values())
    rows.append(["all", "", "", "", f"{total:.0f}"])
    return _table(["model", "shape", "parameters", "training tokens", "minutes"], rows)


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
    models, groups = evaluated["models"], evaluated["groups"]
    rows = []
    together = groups[TARGETS[0]]["trained"]
    for kind in (*models[TARGETS[0]]["trained"], *together):
        row = [f"**{kind}**" if kind in together else kind]
        for name in TARGETS:
            sides = [{**models[name][side], **groups[name][side]}[kind] for side in ("trained", "unseen")]
            row += [f"{100 * side['accuracy']:.0f} %" for side in sides]
            row.append(f"{_per_round(sides):.2f}")
        rows.append(row)
    head = [f"{name}{column}" for name in TARGETS for column in ("", ", unseen wordings", ", tokens per round")]
    return _table(["kind", *head], rows)


def _per_round(sides: Sequence[Mapping[str, Any]]) -> float:
    """Committed tokens per target step of both halves."""
    return float(sum(side["tokens"] for side in sides) / max(1, sum(side["stats"]["rounds"] for side in sides)))


def _worst(evaluated: Mapping[str, Any]) -> str:
    said = []
    for name in TARGETS:
        sides = evaluated["models"][name]
        rounds = {kind: _per_round([sides["trained"][kind], sides["unseen"][kind]]) for kind in sides["trained"]}
        worst = min(rounds, key=lambda kind: rounds[kind])
        said.append(f"{worst} on {name} ({rounds[worst]:.2f})")
    return f"Fewest tokens per round: {', '.join(said)}."


def _distinct(evaluated: Mapping[str, Any], kind: str) -> int:
    return int(evaluated["models"][TARGETS[0]]["trained"][kind]["distinct"])


def _searches(found: Mapping[str, Any]) -> str:
    rows = []
    for name, one in found.items():
        cells = []
        for way in ("straight", "searched"):
            low, high = one["intervals"][way]
            cells.append(f"{100 * one[way] / one['asked']:.0f} % ({100 * low:.0f} to {100 * high:.0f})")
        rows.append([name, str(one["asked"]), *cells])
    note = (
        f"One straight greedy answer against a breadth-first search of width {WIDTH}: {PROPOSALS} thoughts are sampled "
        "per state, lines that break the rules are dropped, the model judges the states that are left, and a state "
        "that is the target ends the search. Held-out problems, 95 % intervals (Wilson)."
    )
    return note + "\n\n" + _table(["model", "problems", "straight", "searched"], rows)
