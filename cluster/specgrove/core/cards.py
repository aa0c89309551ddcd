"""ModelCard and ReplicaCard: what a model is, and what a replica says of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

PROTOCOL_VERSION = 1
"""Version of the Speculate messages. Peers of another version decode plainly instead of pairing."""


def vocabulary_hash(pairs: Iterable[tuple[int, bytes]]) -> str:
    """sha256 over (id, token bytes) of the real ids, special ids included, in id order; padding rows don't count.

    `pairs` may come in any order; each id once.
    """
    digest = hashlib.sha256()
    for token, raw in sorted(pairs):
        digest.update(token.to_bytes(4, "little") + len(raw).to_bytes(4, "little") + raw)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a model is. Sizes are counts; `vocab_size` counts real ids, never padding rows."""

    name: str
    architecture: str
    parameters: int
    layers: int
    hidden_size: int
    vocab_size: int
    vocab_hash: str
    weights_digest: str
    """sha256 of the weight files; equal digests mean equal weights."""
    dtype: str
    max_model_len: int
    """Longest session in tokens, prompt and output together."""
    exits: tuple[int, ...] = ()
    """Depths (in layers) at which a nested draft can stop; the last one is the full depth."""
    trained_on: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        return out | {"exits": list(self.exits), "scores": dict(self.scores)}

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Self:
        """Inverse of to_mapping; TypeError names an unknown or missing key."""
        return cls(**{**raw, "exits": tuple(raw.get("exits", ()))})

    def cannot_draft_for(self, target: ModelCard) -> str | None:
        """Why this model cannot draft for `target`, or None when it can."""
        if self.vocab_hash != target.vocab_hash:
            return (
                f"draft {self.name} ({self.vocab_size} tokens) and target {target.name} ({target.vocab_size} tokens) "
                "use different vocabularies; pick a draft with the target's tokenizer"
            )
        return None


Role = Literal["target", "draft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCard:
    """What a replica says of itself in the registry and in hello."""

    replica: str
    role: Role
    pool: str
    model: ModelCard
    served_names: tuple[str, ...] = ()
    """Names under which clients may ask for this target; empty for drafts."""
    draft_pools: tuple[str, ...] = ()
    """For a target: pools whose drafts it takes. For a draft: its own pool."""
    generate_address: str = ""
    speculate_address: str = ""
    node: str = ""
    protocol_version: int = PROTOCOL_VERSION
    noise_version: int = 1
    pass_s: Mapping[int, float] = field(default_factory=dict)
    """Seconds of one forward pass by number of new tokens, as measured; empty where nothing was."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON and for the state store."""
        passes = {str(tokens): seconds for tokens, seconds in self.pass_s.items()}
        return asdict(self) | {"model": self.model.to_mapping(), "pass_s": passes}

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Self:
        """Inverse of to_mapping."""
        fixed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        passes = {int(tokens): float(seconds) for tokens, seconds in raw.get("pass_s", {}).items()}
        return cls(**{**fixed, "model": ModelCard.from_mapping(raw["model"]), "pass_s": passes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a replica reports with each heartbeat."""

    running: int = 0
    waiting: int = 0
    queued_tokens: int = 0
    """Prompt tokens not yet computed plus, for each running request, one."""
    kv_slots_used: int = 0
    kv_slots_total: int = 0
    draining: bool = False
    drafts: tuple[str, ...] = ()
    """Replica names of the live drafts (targets only)."""
