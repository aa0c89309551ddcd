"""`specgrove explain`: what the planner would choose, from numbers that are given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.tree import Tree

from specgrove.cli.console import out
from specgrove.core.tree import ROOT
from specgrove.errors import ConfigError
from specgrove.planning.goodput import Coefficients, best_length
from specgrove.planning.size import best_size
from specgrove.planning.tree_shape import Acceptance, Shape, best_tree


def acceptance_of(ranks: str | None, matrix: Path | None) -> Acceptance:
    """From one option or the other. Raises ConfigError."""
    if (ranks is None) == (matrix is None):
        raise ConfigError("give either --acceptance or --matrix", param="acceptance")
    if matrix is not None:
        found: Acceptance = _read(matrix)
        return found
    assert ranks is not None
    try:
        return [float(part) for part in ranks.split(",")]
    except ValueError:
        raise ConfigError(f"--acceptance is numbers with commas between, got {ranks!r}", param="acceptance") from None


def show_tree(acceptance: Acceptance, *, nodes: int, levels: int | None, as_json: bool) -> None:
    """The best tree, drawn or as JSON."""
    shape = best_tree(acceptance, nodes, levels)
    if as_json:
        _print(_shape(shape))
        return
    out.print(f"{shape.nodes} nodes, {shape.levels} levels, {shape.expected_tokens:.4f} expected tokens a round")
    out.print(_drawn(shape))


def show_size(
    acceptance: Acceptance, latency: Path, *, draft_cost: float, network: float, levels: int | None, as_json: bool
) -> None:
    """The best size and depth, and what they gain."""
    chosen = best_size(acceptance, _by_size(_read(latency)), draft_cost=draft_cost, network=network, levels=levels)
    if as_json:
        figures = {"round_time": chosen.round_time, "time_per_token": chosen.time_per_token, "gain": chosen.gain}
        _print(_shape(chosen.shape) | figures)
        return
    if chosen.shape.nodes == 1:
        out.print("plain decoding: no tree pays")
        return
    out.print(
        f"{chosen.shape.nodes} nodes, {chosen.shape.levels} levels: {chosen.shape.expected_tokens:.4f} expected tokens "
        f"in {chosen.round_time:g}, {chosen.gain:.3f} times plain decoding"
    )
    out.print(_drawn(chosen.shape))


def show_goodput(coefficients: Path, *, alpha: float, batch: int, context: int, longest: int, as_json: bool) -> None:
    """The best draft length, and the goodput of every length."""
    model = Coefficients.from_mapping(_mapping(_read(coefficients)))
    chosen = best_length(model, alpha=alpha, batch=batch, context=context, longest=longest)
    if as_json:
        _print({"k": chosen.length, "gain": chosen.gain, "goodput": list(chosen.goodputs)})
        return
    table = Table("k", "goodput", "over plain", box=None)
    for length, goodput in enumerate(chosen.goodputs):
        mark = " ← best" if length == chosen.length else ""
        table.add_row(str(length), f"{goodput:.4g}", f"{goodput / chosen.goodputs[0]:.3f}{mark}")
    out.print(table)


def _shape(shape: Shape) -> dict[str, Any]:
    return {
        "expected_tokens": shape.expected_tokens,
        "parents": list(shape.parents),
        "nodes": shape.nodes,
        "levels": shape.levels,
    }


def _drawn(shape: Shape) -> Tree:
    root = Tree("last committed token")
    drawn = {ROOT: root}
    ranks: dict[int, int] = {}
    for node, parent in enumerate(shape.parents):
        ranks[parent] = ranks.get(parent, 0) + 1
        drawn[node] = drawn[parent].add(f"child {ranks[parent]}")
    return root


def _print(figures: Mapping[str, Any]) -> None:
    out.print(json.dumps(figures), soft_wrap=True, markup=False)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", param=str(path)) from None
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}", param=str(path)) from None


def _mapping(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ConfigError("the file must hold a JSON object")
    return found


def _by_size(found: Any) -> dict[int, float]:
    try:
        return {int(size): float(time) for size, time in _mapping(found).items()}
    except (TypeError, ValueError):
        raise ConfigError('latencies are times by number of nodes, such as {"1": 0.03, "8": 0.04}') from None
