"""TokenTree: drafted tokens with their parents, in topological order, elder siblings first.

Only `tokens` and `parents` are stored. Depth, mask, positions, children and paths are derived here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specgrove.errors import TreeError

ROOT = -1
"""Parent of the first level: the session's last committed token."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """n drafted tokens; `parents[i] < i`, or -1 for a child of the last committed token."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    _depths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise TreeError(f"a tree needs one parent per token, got {len(self.tokens)} and {len(self.parents)}")
        depths: list[int] = []
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise TreeError(f"node {node} has parent {parent}; parents must come first (no cycles)")
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        object.__setattr__(self, "_depths", tuple(depths))

    @classmethod
    def chain(cls, tokens: Iterable[int]) -> TokenTree:
        """One path."""
        tokens = tuple(tokens)
        return cls(tokens, tuple(range(-1, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; 1 for children of the root."""
        return self._depths

    @property
    def depth(self) -> int:
        """Depth of the deepest node; 0 for an empty tree."""
        return max(self._depths, default=0)

    def children(self) -> list[list[int]]:
        """Children of each node in draft order: entry i + 1 for node i, entry 0 for the root."""
        out: list[list[int]] = [[] for _ in range(len(self) + 1)]
        for node, parent in enumerate(self.parents):
            out[parent + 1].append(node)
        return out

    def path(self, node: int) -> list[int]:
        """Nodes from the first level down to `node`; empty for the root (-1)."""
        out: list[int] = []
        while node != ROOT:
            out.append(node)
            node = self.parents[node]
        return out[::-1]

    def mask(self) -> NDArray[np.bool_]:
        """[n, n]: entry (i, j) is true when node j is an ancestor of node i or i itself."""
        out = np.zeros((len(self), len(self)), dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                out[node] = out[parent]
            out[node, node] = True
        return out

    def positions(self, base: int) -> list[int]:
        """Absolute position of each node when `base` tokens are committed: base - 1 + depth (papers A.7)."""
        return [base - 1 + depth for depth in self._depths]

    def check(self, *, vocab_size: int, max_nodes: int, max_depth: int) -> None:
        """Refuse what must not touch the model; raises TreeError that names the node.

        Order and cycles are refused at construction already.
        """
        if len(self) > max_nodes:
            raise TreeError(f"tree of {len(self)} nodes is over the plan's {max_nodes}")
        if self.depth > max_depth:
            raise TreeError(f"tree of depth {self.depth} is over the plan's {max_depth}")
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not 0 <= token < vocab_size:
                raise TreeError(f"node {node} carries token {token}, outside the vocabulary of {vocab_size}")
            if (parent, token) in seen:
                raise TreeError(f"node {node} repeats token {token} under parent {parent}")
            seen.add((parent, token))

    def select(self, keep: Sequence[bool]) -> TokenTree:
        """The kept nodes; a node whose parent is dropped goes too."""
        renamed: dict[int, int] = {ROOT: ROOT}
        tokens: list[int] = []
        parents: list[int] = []
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if keep[node] and parent in renamed:
                renamed[node] = len(tokens)
                tokens.append(token)
                parents.append(renamed[parent])
        return TokenTree(tuple(tokens), tuple(parents))

    def trim(self, *, max_nodes: int, max_depth: int) -> TokenTree:
        """The tree within a smaller plan: deeper nodes and then later nodes go."""
        if len(self) <= max_nodes and self.depth <= max_depth:
            return self
        shallow = self.select([depth <= max_depth for depth in self._depths])
        return shallow.select([node < max_nodes for node in range(len(shallow))])

    def union(self, other: TokenTree) -> TokenTree:
        """Both trees as one: this one's nodes first, then what `other` adds, in its order."""
        known = {
            (parent, token): node for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True))
        }
        tokens, parents = list(self.tokens), list(self.parents)
        renamed = {ROOT: ROOT}
        for node, (token, parent) in enumerate(zip(other.tokens, other.parents, strict=True)):
            place = (renamed[parent], token)
            if place not in known:
                known[place] = len(tokens)
                tokens.append(token)
                parents.append(renamed[parent])
            renamed[node] = known[place]
        return TokenTree(tuple(tokens), tuple(parents))

    def follow(self, tokens: Iterable[int]) -> list[int]:
        """Nodes that carry `tokens`, from the first level down, as far as they are in the tree."""
        places = {place: node for node, place in enumerate(zip(self.parents, self.tokens, strict=True))}
        nodes: list[int] = []
        for token in tokens:
            node = places.get((nodes[-1] if nodes else ROOT, token))
            if node is None:
                break
            nodes.append(node)
        return nodes

    def descend(self, token: int) -> TokenTree | None:
        """The tree below the first-level child that carries `token`; None when there is no such child."""
        for node, parent in enumerate(self.parents):
            if parent == ROOT and self.tokens[node] == token:
                return self._below(node)
        return None

    def _below(self, top: int) -> TokenTree:
        renamed = {top: ROOT}
        tokens: list[int] = []
        parents: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent in renamed:
                renamed[node] = len(tokens)
                tokens.append(self.tokens[node])
                parents.append(renamed[parent])
        return TokenTree(tuple(tokens), tuple(parents))

    def reroot(self, committed: Iterable[int]) -> TokenTree | None:
        """What is left after `committed` tokens were emitted; None when they left the tree (it is stale)."""
        tree: TokenTree | None = self
        for token in committed:
            tree = tree.descend(token) if tree is not None else None
        return tree


EMPTY = TokenTree()
