"""`specgrove bench`: what its options mean."""

from __future__ import annotations

from typing import Any

import yaml

from specgrove.config import SpeculativeConfig
from specgrove.errors import ConfigError


def speculative_config(text: str) -> dict[str, Any]:
    """The mapping behind --speculative, checked. Raises ConfigError that names the key."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--speculative is not YAML: {' '.join(str(error).split())}", param="--speculative") from None
    if not isinstance(raw, dict):
        raise ConfigError("--speculative must hold a mapping, such as '{method: tree}'", param="--speculative")
    return SpeculativeConfig.from_mapping(raw).to_mapping()
