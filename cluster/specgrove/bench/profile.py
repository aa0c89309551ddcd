"""A latency model of one model on this machine, and how well it predicts passes that it has not seen."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specgrove.bench.plots import axes, save
from specgrove.engine.loader import EngineOptions, load
from specgrove.engine.measure import passes
from specgrove.planning.latency import LatencyModel, Work

HELD_OUT_ONE_IN = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """All passes and the model fitted to most of them."""

    name: str
    settings: Mapping[str, Any]
    passes: list[tuple[Work, float]]
    model: LatencyModel
    fitted: int
    held_out: int
    held_out_error: float
    """Mean relative error, 0.1 is 10 %."""


def measured(model: str, *, dtype: str, device: str, threads: int, seconds: float, seed: int) -> Profile:
    """Load a model and measure it for so many seconds. Raises SpecgroveError."""
    engine = load(model, EngineOptions(dtype=dtype, device=device, threads=threads))
    found = passes(engine, budget_s=seconds)
    shuffled = random.Random(seed).sample(found, len(found))
    held = shuffled[: len(found) // HELD_OUT_ONE_IN]
    fitted = shuffled[len(held) :]
    curve = LatencyModel.fit(fitted)
    settings = {"dtype": engine.card.dtype, "device": device, "threads": threads, "seconds": seconds, "seed": seed}
    return Profile(engine.card.name, settings, found, curve, len(fitted), len(held), curve.error(held))


def draw(found: Profile, path: Path) -> None:
    """Measured passes as points, predictions as lines, by sessions and context. Raises ConfigError."""
    figure, plot = axes(f"Forward passes of {found.name}", "new tokens", "milliseconds")
    shapes = sorted({(work.sessions, work.context // work.sessions) for work, _ in found.passes})
    for index, (sessions, context) in enumerate(shapes):
        mine = [(w, s) for w, s in found.passes if (w.sessions, w.context // w.sessions) == (sessions, context)]
        works = sorted({work for work, _ in mine}, key=lambda work: work.tokens)
        label = f"{sessions} sessions of {context}"
        plot.plot([w.tokens for w, _ in mine], [1e3 * s for _, s in mine], "o", color=f"C{index}", markersize=3)
        predicted = [1e3 * found.model.seconds(work) for work in works]
        plot.plot([work.tokens for work in works], predicted, color=f"C{index}", label=label)
    plot.set_xscale("log", base=2)
    plot.legend()
    save(figure, path)
