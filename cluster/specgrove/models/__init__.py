"""The bundled family: three small models of this project's own making, ready to serve.

`grove-large` and `grove-small` are targets, `grove-draft` drafts for both. Made by `specgrove train family`; each
directory is an ordinary Hugging Face model with a `card.json`.
"""

from __future__ import annotations

from pathlib import Path

from specgrove.errors import ConfigError


def bundled() -> dict[str, Path]:
    """Directory of each bundled model, by name."""
    here = Path(__file__).parent
    return {card.parent.name: card.parent for card in sorted(here.glob("*/card.json"))}


def path(name: str) -> Path:
    """Directory of one bundled model. Raises ConfigError that lists the known names."""
    known = bundled()
    if name not in known:
        raise ConfigError(f"no bundled model {name!r}; known: {', '.join(known)}")
    return known[name]
