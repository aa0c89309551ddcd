"""Which target replica takes a request, and which targets a draft serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from specgrove.core.cards import Load, ReplicaCard


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live replica with the load it last reported."""

    card: ReplicaCard
    load: Load


def serving(model: str, replicas: Iterable[Candidate]) -> list[Candidate]:
    """Target replicas that serve a model under this name, draining ones included, ordered by replica name."""
    found = [one for one in replicas if one.card.role == "target" and model in one.card.served_names]
    return sorted(found, key=lambda one: one.card.replica)


REQUEST_TOKENS = 32
"""A running request delays the next one's first token as much as so many prompt tokens in front of it."""


def shortest_wait(
    model: str,
    replicas: Iterable[Candidate],
    *,
    in_flight: Mapping[str, int],
    prompt_tokens: int = 0,
    held: Mapping[str, float] | None = None,
    exclude: Collection[str] = (),
) -> Candidate | None:
    """The target replica of `model` that is predicted to give the first token soonest; None when there is none.

    The wait is counted in tokens that must be computed first: the replica's queue, its running requests, and what it
    has to compute of this prompt.  in_flight: requests that the asking ingress has running on each replica; they count
    until the replica's own report includes them, so that a burst between two reports spreads.  held: share of the
    prompt that each replica has in memory.  exclude: replicas that have just refused or failed.  Draining ones are
    never chosen. Equal waits go to the replica with less KV in use, then by name.
    """
    usable = [one for one in serving(model, replicas) if not one.load.draining and one.card.replica not in exclude]

    def cost(one: Candidate) -> tuple[float, float, str]:
        load = one.load
        requests = max(load.running + load.waiting, in_flight.get(one.card.replica, 0))
        own = prompt_tokens * (1 - (held or {}).get(one.card.replica, 0.0))
        used = load.kv_slots_used / load.kv_slots_total if load.kv_slots_total else 0.0
        return requests * REQUEST_TOKENS + load.queued_tokens + own, used, one.card.replica

    return min(usable, key=cost, default=None)


def unreachable(address: str, *, node: str, here: str) -> str | None:
    """Why a listener at `address` on `node` cannot be dialled from the node `here`, or None when it may be there."""
    host = address.rpartition(":")[0]
    if node != here and (host.startswith("127.") or host in ("localhost", "[::1]")):
        return f"it listens on loopback of node {node}; set listeners.replica_host: node"
    return None


def cannot_draft_for(draft: ReplicaCard, target: ReplicaCard, *, allowed: Collection[str] = ()) -> str | None:
    """Why `draft` must not dial `target`, or None when it may. allowed: target pools it may serve; empty: all."""
    if allowed and target.pool not in allowed:
        return f"draft pool {draft.pool} serves only {', '.join(sorted(allowed))}"
    if draft.pool not in target.draft_pools:
        return f"target pool {target.pool} takes no drafts of pool {draft.pool}"
    if draft.protocol_version != target.protocol_version:
        return f"protocol versions differ: draft {draft.protocol_version}, target {target.protocol_version}"
    if draft.noise_version != target.noise_version:
        return f"noise versions differ: draft {draft.noise_version}, target {target.noise_version}"
    if why := draft.model.cannot_draft_for(target.model):
        return why
    return unreachable(target.speculate_address, node=target.node, here=draft.node)


def to_dial(
    draft: ReplicaCard, replicas: Iterable[Candidate], *, allowed: Collection[str] = ()
) -> dict[str, ReplicaCard]:
    """Target replicas that a draft should be connected to, by replica name.

    Draining targets stay: their live sessions still gain from drafts.
    """
    return {
        one.card.replica: one.card
        for one in replicas
        if one.card.role == "target" and cannot_draft_for(draft, one.card, allowed=allowed) is None
    }
