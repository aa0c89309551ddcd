"""What this machine can do with a model: measured once, and kept for replicas that are equal."""

from __future__ import annotations

import asyncio
import logging
import platform
from pathlib import Path

import torch

from specgrove.actors.registry import Registry
from specgrove.engine.measure import passes
from specgrove.engine.runner import Engine
from specgrove.planning.latency import LatencyModel

log = logging.getLogger("specgrove.profile")

BUDGET_S = 8.0
"""Time that measuring may take, after the first round of sizes."""


async def latency_model(registry: Registry, engine: Engine, *, threads: int, compiled: bool) -> LatencyModel:
    """The kept model of an equal replica, else one measured now, which is then kept."""
    key = latency_key(engine, threads=threads, compiled=compiled)
    kept = (await registry.kept(key)).get(key)
    if kept is not None:
        return LatencyModel.from_mapping(kept)
    measured = await asyncio.to_thread(passes, engine, budget_s=BUDGET_S)
    model = LatencyModel.fit(measured)
    log.info("measured %d passes, mean error of the model %.0f %%", len(measured), 100 * model.error(measured))
    await registry.keep(key, model.to_mapping())
    return model


def latency_key(engine: Engine, *, threads: int, compiled: bool) -> str:
    """Equal for replicas whose passes take equally long: weights, number format, compiled or not, device, threads."""
    card = engine.card
    model = f"{card.weights_digest[:16]}/{card.layers}/{card.dtype}/{'compiled' if compiled else 'eager'}"
    return f"latency/{model}/{device_name(engine.device)}/{threads}"


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
