"""generation.proto: the list of models."""

from __future__ import annotations

from collections.abc import Sequence

from specgrove.core.protocols import ModelStatus
from specgrove.rpc.codec.cards import decode_card, decode_load, encode_card, encode_load
from specgrove.v1 import generation_pb2 as pb

_STATE_OUT = {"ready": pb.MODEL_STATE_READY, "unavailable": pb.MODEL_STATE_UNAVAILABLE}
_STATE_IN: dict[int, str] = {number: state for state, number in _STATE_OUT.items()}


def encode_models(models: Sequence[ModelStatus]) -> pb.ListModelsResponse:
    """One entry per served model."""
    return pb.ListModelsResponse(models=[_encode_status(one) for one in models])


def decode_models(message: pb.ListModelsResponse) -> tuple[ModelStatus, ...]:
    """A state that this version does not know reads as `unavailable`."""
    return tuple(_decode_status(one) for one in message.models)


def _encode_status(status: ModelStatus) -> pb.ModelStatus:
    return pb.ModelStatus(
        name=status.name,
        replicas=[
            pb.ReplicaStatus(card=encode_card(card), load=encode_load(load))
            for card, load in zip(status.replicas, status.loads, strict=True)
        ],
        drafts=[encode_card(card) for card in status.drafts],
        state=_STATE_OUT[status.state],
        created=status.created,
    )


def _decode_status(message: pb.ModelStatus) -> ModelStatus:
    return ModelStatus(
        name=message.name,
        replicas=tuple(decode_card(one.card) for one in message.replicas),
        loads=tuple(decode_load(one.load) for one in message.replicas),
        drafts=tuple(decode_card(card) for card in message.drafts),
        state=_STATE_IN.get(message.state, "unavailable"),
        created=message.created,
    )
