"""A latency model of one model on this machine, and how well it predicts passes that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specgrove.bench.plots import axes, save
from specgrove.engine.loader import EngineOptions, load
from specgrove.engine.measure import passes
from specgrove.planning.latency import LatencyModel, Work

HELD_OUT_SIZES = (1, 3, 6, 12, 24, 48, 96)
HELD_OUT_SHAPES = ((1, 64), (2, 128), (1, 256), (4, 256), (1, 1024))
"""Sizes between the knots and other sessions and contexts than those that the model is fitted to."""
HELD_OUT_SHARE = 0.3
"""Of the time."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Passes, the model fitted to them, and passes of other sizes that it has to predict."""

    name: str
    settings: Mapping[str, Any]
    fitted: list[tuple[Work, float]]
    held_out: list[tuple[Work, float]]
    model: LatencyModel

    @property
    def fit_error(self) -> float:
        """Mean relative error on what the model was fitted to; 0.1 is 10 %."""
        return self.model.error(self.fitted)

    @property
    def held_out_error(self) -> float:
        """Mean relative error on sizes, sessions and contexts that it has not seen; 0.1 is 10 %."""
        return self.model.error(self.held_out)


def measured(model: str, options: EngineOptions, *, seconds: float) -> Profile:
    """Load a model and measure it for about so many seconds. Raises SpecgroveError."""
    engine = load(model, options)
    fitted = passes(engine, budget_s=(1 - HELD_OUT_SHARE) * seconds)
    held = passes(engine, budget_s=HELD_OUT_SHARE * seconds, sizes=HELD_OUT_SIZES, shapes=HELD_OUT_SHAPES)
    curve = LatencyModel.fit(fitted)
    settings = {name: value for name, value in asdict(options).items() if value is not None} | {"seconds": seconds}
    return Profile(engine.card.name, settings, fitted, held, curve)


def draw(found: Profile, path: Path) -> None:
    """Measured passes as points (hollow: held out), predictions as lines. Raises ConfigError."""
    figure, plot = axes(f"Forward passes of {found.name}", "new tokens", "milliseconds")
    everything = [(w, s, "full") for w, s in found.fitted] + [(w, s, "none") for w, s in found.held_out]
    shapes = sorted({(work.sessions, work.context // work.sessions) for work, _, _ in everything})
    for index, (sessions, context) in enumerate(shapes):
        mine = [one for one in everything if (one[0].sessions, one[0].context // sessions) == (sessions, context)]
        color = f"C{index % 10}"
        for fill in ("full", "none"):
            points = [(w.tokens, 1e3 * s) for w, s, of in mine if of == fill]
            plot.plot(
                *zip(*points, strict=True) if points else ((), ()), "o", color=color, fillstyle=fill, markersize=3
            )
        works = sorted({work for work, _, _ in mine}, key=lambda work: work.tokens)
        predicted = [1e3 * found.model.seconds(work) for work in works]
        plot.plot([work.tokens for work in works], predicted, color=color, label=f"{sessions} sessions of {context}")
    plot.set_xscale("log", base=2)
    plot.legend()
    save(figure, path)
