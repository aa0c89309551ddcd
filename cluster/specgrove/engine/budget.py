"""How many KV slots a replica gets and how long a session may be."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from specgrove.engine.kv_store import LayerShape, bytes_per_slot
from specgrove.errors import ConfigError

SESSIONS = 8
"""Sessions of full length that the derived budget holds, memory permitting."""
SHARE = 0.25
"""Share of the memory free after loading that the derived budget may take. CPU pages are committed on first use."""
TREE_ROOM = 64
"""Slots kept for trees beside the longest session, when its length is derived from the budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What was asked for; None means derived."""

    kv_slots: int | None
    kv_bytes: int | None
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Decided:
    """What holds."""

    slots: int
    max_model_len: int
    context: int
    """Positions that the model can address; a tree may reach past max_model_len up to here."""


def decide(
    layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device, *, context: int | None, asked: Budget
) -> Decided:
    """Slots: as asked, else 8 sessions of full length within a quarter of the free memory. Raises ConfigError.

    A session that was not limited by max_model_len is as long as model and slots allow.
    """
    if asked.kv_slots is not None and asked.kv_bytes is not None:
        raise ConfigError("give kv_slots or kv_bytes, not both", param="kv_slots")
    limit = asked.max_model_len or context
    if limit is None:
        raise ConfigError("this model does not say how long its context is; set max_model_len", param="max_model_len")
    if context is not None and limit > context:
        raise ConfigError(f"max_model_len {limit} is over the model's {context}", param="max_model_len")
    per_slot = bytes_per_slot(layers, dtype)
    if asked.kv_slots is not None:
        slots = asked.kv_slots
    elif asked.kv_bytes is not None:
        slots = asked.kv_bytes // per_slot
    else:
        slots = min(SESSIONS * limit + SESSIONS * TREE_ROOM, int(free_bytes(device) * SHARE) // per_slot)
    if slots < 2:
        raise ConfigError(f"the KV budget holds {slots} tokens; one token takes {per_slot} bytes", param="kv_bytes")
    if asked.max_model_len is not None and slots < limit:
        raise ConfigError(
            f"the KV budget of {slots} tokens cannot hold a session of max_model_len {limit}", param="max_model_len"
        )
    longest = min(limit, max(1, slots - TREE_ROOM)) if asked.max_model_len is None else limit
    return Decided(slots=slots, max_model_len=longest, context=context or limit + TREE_ROOM)


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken on the device now; on a CPU also within the limit of the control group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = _read(Path("/proc/meminfo"))
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    group = Path("/sys/fs/cgroup")
    limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, int(limit) - int(used))
    return max(free, 0)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
