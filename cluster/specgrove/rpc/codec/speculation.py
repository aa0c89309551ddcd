"""speculation.proto: greeting, batches of updates, batches of trees."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specgrove.core.cards import ReplicaCard
from specgrove.core.speculate import (
    Closed,
    Committed,
    Declined,
    DraftMessage,
    DraftPlan,
    DraftTree,
    Opened,
    Planned,
    Reopen,
    Rule,
    Update,
)
from specgrove.core.tree import TokenTree
from specgrove.errors import ProtocolError, TreeError
from specgrove.rpc.codec.cards import decode_card, decode_tree, encode_card, encode_tree
from specgrove.v1 import speculation_pb2 as pb

MAX_TREE_NODES = 4096
"""A longer tree is refused before it is built; no plan is near it."""

_RULE_OUT: dict[Rule, pb.Rule] = {"match": pb.RULE_MATCH}
_RULE_IN: dict[int, Rule] = {number: rule for rule, number in _RULE_OUT.items()}
_PLAN_SCALARS = ("version", "method", "max_nodes", "ahead", "temperature", "seed", "choice", "noise_version")
_FIXED_WEIGHT = 16


def weigh_update(update: Update) -> int:
    """About the number of token ids that it is as large as; what queues and batches are limited by."""
    return _FIXED_WEIGHT + (len(update.tokens) if isinstance(update, Opened | Committed) else 0)


def weigh_message(message: DraftMessage) -> int:
    """As weigh_update, for the other direction."""
    return _FIXED_WEIGHT + (2 * len(message.tree or ()) if isinstance(message, DraftTree) else 0)


def encode_hello(card: ReplicaCard, token: str) -> pb.SpeculateRequest:
    """The draft's first message."""
    return pb.SpeculateRequest(hello=pb.Hello(card=encode_card(card), cluster_token=token))


def decode_hello(message: pb.SpeculateRequest) -> tuple[ReplicaCard, str]:
    """The card and the cluster token. Raises ProtocolError when it is not a greeting."""
    if message.WhichOneof("content") != "hello":
        raise ProtocolError("a Speculate stream has to begin with Hello")
    return decode_card(message.hello.card), message.hello.cluster_token


def encode_welcome(card: ReplicaCard) -> pb.SpeculateResponse:
    """The target's first message."""
    return pb.SpeculateResponse(welcome=pb.Welcome(card=encode_card(card)))


def decode_welcome(message: pb.SpeculateResponse) -> ReplicaCard:
    """Raises ProtocolError when it is not a welcome."""
    if message.WhichOneof("content") != "welcome":
        raise ProtocolError("a target has to answer Hello with Welcome")
    return decode_card(message.welcome.card)


def batch_of_updates(updates: Sequence[Update]) -> pb.SpeculateResponse:
    """One message from the target."""
    message = pb.SpeculateResponse()
    message.batch.SetInParent()
    add = message.batch.updates.add
    for update in updates:
        _encode_update(update, add())
    return message


def _encode_update(update: Update, out: pb.Update) -> None:
    part: pb.Opened | pb.Committed | pb.Planned | pb.Closed
    match update:
        case Committed():
            part = out.committed
            part.tokens.extend(update.tokens)
            part.length, part.prefix_hash = update.length, update.prefix_hash
        case Opened():
            part = out.opened
            part.tokens.extend(update.tokens)
            part.plan.CopyFrom(_encode_plan(update.plan))
            part.wants_tree = update.wants_tree
        case Planned():
            part = out.planned
            part.plan.CopyFrom(_encode_plan(update.plan))
        case Closed():
            part = out.closed
    part.session, part.epoch, part.seq = update.session, update.epoch, update.seq


def decode_updates(message: pb.SpeculateResponse) -> list[Update]:
    """Raises ProtocolError for what this version does not know: the draft can't follow such a session."""
    if message.WhichOneof("content") != "batch":
        raise ProtocolError("the target sent something that is not a batch of updates")
    return [_decode_update(one) for one in message.batch.updates]


def _decode_update(message: pb.Update) -> Update:
    match message.WhichOneof("update"):
        case "committed":
            c = message.committed
            return Committed(
                session=c.session,
                epoch=c.epoch,
                seq=c.seq,
                tokens=tuple(c.tokens),
                length=c.length,
                prefix_hash=c.prefix_hash,
            )
        case "opened":
            o = message.opened
            return Opened(
                session=o.session,
                epoch=o.epoch,
                seq=o.seq,
                tokens=tuple(o.tokens),
                plan=_decode_plan(o.plan),
                wants_tree=o.wants_tree,
            )
        case "planned":
            p = message.planned
            return Planned(session=p.session, epoch=p.epoch, seq=p.seq, plan=_decode_plan(p.plan))
        case "closed":
            return Closed(session=message.closed.session, epoch=message.closed.epoch, seq=message.closed.seq)
    raise ProtocolError("the target sent an update that this version does not know")


def _encode_plan(plan: DraftPlan) -> pb.DraftPlan:
    scalars = {name: getattr(plan, name) for name in _PLAN_SCALARS}
    return pb.DraftPlan(**scalars, rule=_RULE_OUT[plan.rule], branching=plan.branching)


def _decode_plan(message: pb.DraftPlan) -> DraftPlan:
    rule = _RULE_IN.get(message.rule)
    if rule is None:
        raise ProtocolError(f"the target's plan names the unknown rule {message.rule}")
    scalars = {name: getattr(message, name) for name in _PLAN_SCALARS}
    return DraftPlan(**scalars, rule=rule, branching=tuple(message.branching))


def batch_of_messages(messages: Sequence[DraftMessage]) -> pb.SpeculateRequest:
    """One message from the draft."""
    out = pb.SpeculateRequest()
    out.batch.SetInParent()
    add = out.batch.messages.add
    for message in messages:
        _encode_message(message, add())
    return out


def _encode_message(message: DraftMessage, out: pb.DraftMessage) -> None:
    match message:
        case DraftTree():
            to = out.tree
            to.session, to.epoch = message.session, message.epoch
            to.base_length, to.prefix_hash = message.base_length, message.prefix_hash
            to.plan_version = message.plan_version
            to.draft_s, to.queued_s, to.levels = message.draft_s, message.queued_s, message.levels
            if message.tree is not None:
                to.tree.CopyFrom(encode_tree(message.tree))
        case Reopen():
            out.reopen.session = message.session
        case Declined():
            out.declined.session, out.declined.reason = message.session, message.reason


def decode_messages(message: pb.SpeculateRequest) -> list[DraftMessage]:
    """What a draft sent. A tree that is none comes back as DraftTree(tree=None, fault=why).

    Raises ProtocolError for what this version does not know.
    """
    if message.WhichOneof("content") != "batch":
        raise ProtocolError("the draft sent something that is not a batch of messages")
    return [_decode_message(one) for one in message.batch.messages]


def _decode_message(message: pb.DraftMessage) -> DraftMessage:
    match message.WhichOneof("message"):
        case "tree":
            return _decode_draft_tree(message.tree)
        case "reopen":
            return Reopen(session=message.reopen.session)
        case "declined":
            return Declined(session=message.declined.session, reason=message.declined.reason)
    raise ProtocolError("the draft sent a message that this version does not know")


def _decode_draft_tree(message: pb.DraftTree) -> DraftTree:
    tree, fault = _tree_or_fault(message)
    return DraftTree(
        session=message.session,
        epoch=message.epoch,
        base_length=message.base_length,
        prefix_hash=message.prefix_hash,
        plan_version=message.plan_version,
        tree=tree,
        fault=fault,
        draft_s=_seconds(message.draft_s),
        levels=max(0, message.levels),
        queued_s=_seconds(message.queued_s),
    )


def _tree_or_fault(message: pb.DraftTree) -> tuple[TokenTree | None, str]:
    if not message.HasField("tree"):
        return None, "the message carries no tree"
    if (size := max(len(message.tree.tokens), len(message.tree.parents))) > MAX_TREE_NODES:
        return None, f"tree of {size} nodes is over {MAX_TREE_NODES}, the most that is read"
    try:
        return decode_tree(message.tree), ""
    except TreeError as error:
        return None, error.message


def _seconds(value: float) -> float:
    """A duration that a peer reported: never negative, never infinite or not a number."""
    return value if math.isfinite(value) and value >= 0 else 0.0
