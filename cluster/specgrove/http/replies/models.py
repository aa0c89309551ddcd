"""`/v1/models`: OpenAI's model object, and who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specgrove.core.cards import Load, ReplicaCard
from specgrove.core.protocols import ModelStatus


def model_list(models: Sequence[ModelStatus]) -> dict[str, Any]:
    """The reply of /v1/models."""
    return {"object": "list", "data": [model_object(status) for status in models]}


def model_object(status: ModelStatus) -> dict[str, Any]:
    """One model: OpenAI's fields, vLLM's max_model_len, and ours: state, replicas and drafts."""
    card = status.replicas[0].model if status.replicas else None
    return {
        "id": status.name,
        "object": "model",
        "created": status.created,
        "owned_by": "specgrove",
        "max_model_len": card.max_model_len if card else None,
        "state": status.state,
        "replicas": [
            _replica(replica) | _load(load) for replica, load in zip(status.replicas, status.loads, strict=True)
        ],
        "drafts": [_replica(draft) for draft in status.drafts],
    }


def _replica(replica: ReplicaCard) -> dict[str, Any]:
    """Addresses and digests stay inside the cluster."""
    model = replica.model
    return {
        "replica": replica.replica,
        "pool": replica.pool,
        "model": model.name,
        "parameters": model.parameters,
        "dtype": model.dtype,
    }


def _load(load: Load) -> dict[str, Any]:
    return {"running": load.running, "waiting": load.waiting, "draining": load.draining, "drafts": list(load.drafts)}
