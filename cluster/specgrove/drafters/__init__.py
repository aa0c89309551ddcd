"""Drafting methods: a registry with lazy import. Each method is one file and grows one TokenTree per plan."""

from __future__ import annotations

from importlib import import_module

from specgrove.core.speculate import DraftPlan
from specgrove.drafters.growth import Growth
from specgrove.errors import ConfigError

CONTRARY = "contrary"
"""Wrong on purpose, for measuring."""
METHODS: dict[str, tuple[str, str]] = {
    "chain": ("specgrove.drafters.chain", "ChainGrowth"),
    CONTRARY: ("specgrove.drafters.contrary", "ContraryGrowth"),
    "tree": ("specgrove.drafters.tree", "TreeGrowth"),
}


def start(plan: DraftPlan) -> Growth:
    """A new growth under `plan`. Raises ConfigError for an unknown method, naming the known ones."""
    try:
        module, name = METHODS[plan.method]
    except KeyError:
        known = ", ".join(sorted(METHODS))
        raise ConfigError(f"no drafting method {plan.method!r}; known: {known}", param="method") from None
    growth: Growth = getattr(import_module(module), name)(plan)
    return growth
