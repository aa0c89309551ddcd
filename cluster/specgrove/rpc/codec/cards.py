"""common.proto: trees, cards, load."""

from __future__ import annotations

from math import inf

from specgrove.core.cards import Load, ModelCard, ReplicaCard, Role
from specgrove.core.tree import TokenTree
from specgrove.errors import ProtocolError
from specgrove.v1 import common_pb2 as pb

_MODEL_SCALARS = (
    "name", "architecture", "parameters", "layers", "hidden_size", "vocab_size", "vocab_hash", "weights_digest",
    "dtype", "max_model_len", "trained_on",
)  # fmt: skip
_CARD_SCALARS = (
    "replica", "pool", "generate_address", "speculate_address", "node", "protocol_version", "noise_version",
)  # fmt: skip
_LOAD_SCALARS = ("running", "waiting", "queued_tokens", "kv_slots_used", "kv_slots_total", "draining")

_ROLE_OUT: dict[Role, pb.ReplicaRole] = {"target": pb.REPLICA_ROLE_TARGET, "draft": pb.REPLICA_ROLE_DRAFT}
_ROLE_IN: dict[int, Role] = {number: role for role, number in _ROLE_OUT.items()}


def encode_tree(tree: TokenTree) -> pb.TokenTree:
    """Packed token ids and parents."""
    return pb.TokenTree(tokens=tree.tokens, parents=tree.parents)


def decode_tree(message: pb.TokenTree) -> TokenTree:
    """Raises TreeError when it is no tree (unequal lengths, a parent that does not come first)."""
    return TokenTree(tuple(message.tokens), tuple(message.parents))


def encode_model_card(card: ModelCard) -> pb.ModelCard:
    """All fields."""
    scalars = {name: getattr(card, name) for name in _MODEL_SCALARS}
    return pb.ModelCard(**scalars, exits=card.exits, scores=dict(card.scores))


def decode_model_card(message: pb.ModelCard) -> ModelCard:
    """All fields; what the peer left out is empty or 0."""
    scalars = {name: getattr(message, name) for name in _MODEL_SCALARS}
    return ModelCard(**scalars, exits=tuple(message.exits), scores=dict(message.scores))


def encode_card(card: ReplicaCard) -> pb.ReplicaCard:
    """All fields."""
    return pb.ReplicaCard(
        **{name: getattr(card, name) for name in _CARD_SCALARS},
        role=_ROLE_OUT[card.role],
        model=encode_model_card(card.model),
        served_names=card.served_names,
        draft_pools=card.draft_pools,
        pass_s=dict(card.pass_s),
    )


def decode_card(message: pb.ReplicaCard) -> ReplicaCard:
    """Raises ProtocolError for a role that this version does not know, or a card without a name."""
    role = _ROLE_IN.get(message.role)
    if role is None:
        raise ProtocolError(f"replica card has the unknown role {message.role}")
    if not message.replica:
        raise ProtocolError("replica card has no replica name")
    return ReplicaCard(
        **{name: getattr(message, name) for name in _CARD_SCALARS},
        role=role,
        model=decode_model_card(message.model),
        served_names=tuple(message.served_names),
        draft_pools=tuple(message.draft_pools),
        pass_s={tokens: seconds for tokens, seconds in message.pass_s.items() if tokens >= 1 and 0 < seconds < inf},
    )


def encode_load(load: Load) -> pb.Load:
    """All fields."""
    return pb.Load(**{name: getattr(load, name) for name in _LOAD_SCALARS}, drafts=load.drafts)


def decode_load(message: pb.Load) -> Load:
    """All fields."""
    return Load(**{name: getattr(message, name) for name in _LOAD_SCALARS}, drafts=tuple(message.drafts))
