"""What target and draft say to each other on a Speculate stream, as plain values (design.md section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specgrove.core.tree import TokenTree

Rule = Literal["match"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPlan:
    """What the target asks of a draft for one session. A tree names the version it was grown under."""

    version: int = 0
    rule: Rule = "match"
    method: str = "tree"
    """Drafting method, a name in the registry of `drafters/`."""
    branching: tuple[int, ...] = (1, 1, 1, 1)
    """Children per node at each depth; its length is the depth of the tree."""
    max_nodes: int = 16
    ahead: int = 0
    """Levels that the draft grows on below its best leaves while the tree is verified; 0: it waits."""
    temperature: float = 0.0
    seed: int = 0
    choice: int = 0
    noise_version: int = 1

    @property
    def max_depth(self) -> int:
        """Depth of the deepest node."""
        return len(self.branching)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The target opens a session, or opens it again; `tokens` are all committed tokens.

    Without `wants_tree` (the target is still computing the prompt) the draft only prepares its cache; the first
    Committed then asks for a tree.
    """

    session: bytes
    epoch: int
    seq: int
    tokens: tuple[int, ...]
    plan: DraftPlan
    wants_tree: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Tokens one round added. `length` and `prefix_hash` are after the commit; every commit asks for the next tree."""

    session: bytes
    epoch: int
    seq: int
    tokens: tuple[int, ...]
    length: int
    prefix_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A new plan for a session."""

    session: bytes
    epoch: int
    seq: int
    plan: DraftPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The session is over for this draft."""

    session: bytes
    epoch: int
    seq: int


Update = Opened | Committed | Planned | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """A tree that extends the first `base_length` tokens of a session, whose hash is `prefix_hash`.

    `tree` is None when what came over the wire is not a tree at all (cycle, unequal lengths): `fault` says why; the
    target drops and counts it.
    """

    session: bytes
    epoch: int
    base_length: int
    prefix_hash: int
    plan_version: int
    tree: TokenTree | None
    fault: str = ""
    draft_s: float = 0.0
    """Seconds spent in the draft's forward passes for this tree."""
    queued_s: float = 0.0
    """Seconds between the arrival of the commit and the first forward pass for it."""
    levels: int = 0
    """Forward passes of draft_s, one a level; 0 when a prompt was computed in them too, or the draft does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """The draft lost track of a session (a gap in the sequence, an evicted cache) and asks for Opened."""

    session: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """The draft cannot serve a session (text past its context, no memory); the target decodes it plainly."""

    session: bytes
    reason: str


DraftMessage = DraftTree | Reopen | Declined
