"""Interfaces between the parts. Implementations live above; nobody imports across rooms to reach them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specgrove.core.cards import Load, ReplicaCard
from specgrove.core.request import GenerateEvent, GenerateRequest
from specgrove.core.speculate import DraftMessage, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One served model, as `/v1/models` and ListModels show it."""

    name: str
    replicas: tuple[ReplicaCard, ...]
    loads: tuple[Load, ...]
    """One per replica, in the same order."""
    drafts: tuple[ReplicaCard, ...]
    """Draft replicas that at least one of the target replicas is connected to."""
    state: str
    """`ready`, or `unavailable` when no target replica is alive."""
    created: int = 0
    """Unix seconds at which the first replica registered."""


class Backend(Protocol):
    """What the doors (HTTP and gRPC) stand on: one target replica, or the ingress in front of many."""

    def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """Events of one request, ending with Finished. Raises SpecgroveError; closing the iterator cancels."""

    async def models(self) -> Sequence[ModelStatus]:
        """All served models."""

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of a text. Raises ModelNotFound."""

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """Text of token ids. Raises ModelNotFound, RequestError for ids outside the vocabulary."""


class DraftLink(Protocol):
    """One connected draft, seen from the Speculate server. Methods may be called from any thread and never block."""

    def received(self, messages: Sequence[DraftMessage]) -> None:
        """What the draft sent, in order."""

    def lost(self) -> None:
        """The stream ended; sessions of this draft go on plainly or with another draft. Idempotent."""


class DraftHub(Protocol):
    """The target's door for drafts."""

    def attach(self, card: ReplicaCard, token: str, send: Callable[[Sequence[Update]], None]) -> DraftLink:
        """Accept a draft. `send` queues updates to it, may be called from any thread and never blocks.

        Raises Unauthenticated for a wrong cluster token and ProtocolError when the two cannot pair.
        """


class ProposeSink(Protocol):
    """The draft's side of its streams. Methods may be called from any thread and never block."""

    def connected(self, target: ReplicaCard, send: Callable[[Sequence[DraftMessage]], None]) -> None:
        """A target accepted our hello; `send` queues messages to it."""

    def received(self, target: str, updates: Sequence[Update]) -> None:
        """Updates of that target's sessions, in order."""

    def lost(self, target: str) -> None:
        """The stream ended; its sessions are closed. Idempotent."""


class DraftObserver(Protocol):
    """What a draft replica counts. Called from its device thread; must be cheap."""

    def drafted(self, *, rows: int, seconds: float) -> None:
        """One forward pass over so many rows."""

    def proposed(self, target: str, *, nodes: int, seconds: float) -> None:
        """One tree sent; `seconds` of forward passes went into it."""


class TargetObserver(Protocol):
    """What a target replica counts. Called from its device thread; must be cheap."""

    def stepped(self, *, rows: int, sessions: int, forward_s: float, total_s: float) -> None:
        """One step of the loop."""

    def committed(
        self, *, drafted: int, accepted: int, emitted: int, waited_s: float, other_s: float | None, gap_s: float
    ) -> None:
        """One round of one session.

        `drafted` nodes (0: plain), `accepted` depth, `emitted` tokens, `waited_s` for the tree, `other_s` the part of
        the round that was neither draft nor target forward (None when plain), `gap_s` since the last tokens.
        """

    def planned(self, *, nodes: float, depth: int, gain: float) -> None:
        """What drafts are asked for from now on: nodes of the mean session's tree, depth, predicted gain over plain."""

    def refused_tree(self, reason: str) -> None:
        """A tree was dropped: stale, foreign, bad_tree, unknown_plan, closed; lost: owed by a draft that went away."""

    def prefilled(self, *, tokens: int, cached: int, ttft_s: float) -> None:
        """A request got its first token."""

    def finished(self, reason: str, *, prompt_tokens: int, completion_tokens: int, e2e_s: float) -> None:
        """A choice ended: stop, length, cancelled, error."""
