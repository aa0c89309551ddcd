"""What goes through the codec comes back the same."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc import values
from tests.rpc.fakes import SESSION, card

from specgrove.core.request import GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.core.tree import TokenTree
from specgrove.errors import ProtocolError, RequestError
from specgrove.rpc import codec
from specgrove.v1 import common_pb2, generation_pb2, speculation_pb2


def over_the_wire(message):
    """The message after it was bytes."""
    return type(message).FromString(message.SerializeToString())


@given(values.requests())
def test_requests_come_back_the_same(request_):
    """Unset, empty and set fields of a request stay apart."""
    assert request_ == codec.decode_request(over_the_wire(codec.encode_request(request_)))


@given(values.events)
def test_events_come_back_the_same(event):
    """Each kind of event."""
    assert event == codec.decode_event(over_the_wire(codec.encode_event(event)))


@given(st.lists(values.statuses(), max_size=2))
def test_models_come_back_the_same(models):
    """Replicas keep their loads."""
    assert tuple(models) == codec.decode_models(over_the_wire(codec.encode_models(models)))


@given(values.cards, values.text)
def test_greetings_come_back_the_same(one, token):
    """Hello carries card and token, Welcome the card."""
    assert (one, token) == codec.decode_hello(over_the_wire(codec.encode_hello(one, token)))
    assert one == codec.decode_welcome(over_the_wire(codec.encode_welcome(one)))


@given(st.lists(values.updates, max_size=4))
def test_updates_come_back_the_same(updates):
    """In order, each kind."""
    assert updates == codec.decode_updates(over_the_wire(codec.batch_of_updates(updates)))


@given(st.lists(values.messages, max_size=4))
def test_draft_messages_come_back_the_same(messages):
    """In order, each kind."""
    assert messages == codec.decode_messages(over_the_wire(codec.batch_of_messages(messages)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (GenerateRequest, generation_pb2.GenerateRequest),
        (SamplingFields, generation_pb2.SamplingFields),
        (Speculation, generation_pb2.Speculation),
    ],
)
def test_every_field_is_on_the_wire(value, message):
    """A field added to core and forgotten in the protos would be lost without a word."""
    assert {f.name for f in fields(value)} - {"messages"} <= {f.name for f in message.DESCRIPTOR.fields}


def test_trees_are_small_on_the_wire():
    """Sixteen nodes with large token ids stay under a hundred bytes: nothing but ids and parents travels."""
    tree = TokenTree(tuple(150_000 + i for i in range(16)), tuple(range(-1, 15)))

    assert len(codec.encode_tree(tree).SerializeToString()) < 100


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"text": "\ud800"}, "text"),
        ({"text": "x", "max_tokens": 2**40}, "max_tokens"),
        ({"text": "x", "sampling": SamplingFields(seed=-1)}, "seed"),
        ({"text": "x", "sampling": SamplingFields(seed=2**64)}, "seed"),
        ({"text": "x", "sampling": SamplingFields(top_k="many")}, "top_k"),
        ({"text": "x", "sampling": SamplingFields(logit_bias={2**40: 1.0})}, "logit_bias"),
        ({"text": "x", "metadata": {"k": "\udfff"}}, "metadata"),
        ({"tokens": (2**31,)}, "tokens"),
        ({"text": "x", "speculation": Speculation(max_nodes=2**40)}, "speculation.max_nodes"),
    ],
)
def test_a_value_that_cannot_be_sent_is_named(changes, param):
    """The caller learns which field it was, instead of an error of protobuf."""
    with pytest.raises(RequestError) as caught:
        codec.encode_request(GenerateRequest(request_id="r", model="m", **changes))

    assert param == caught.value.param


def test_a_request_without_a_prompt_is_refused():
    """A client of another language may forget it."""
    with pytest.raises(RequestError, match="prompt"):
        codec.decode_request(generation_pb2.GenerateRequest(model="m"))


def test_an_unknown_mode_is_refused():
    """Enums are open: any number can come."""
    message = generation_pb2.GenerateRequest(text="x", speculation=generation_pb2.Speculation(mode=9))

    with pytest.raises(RequestError, match="9"):
        codec.decode_request(message)


def test_what_only_a_newer_peer_says_ends_the_stream():
    """An empty oneof is how a message of a later version looks; skipping it would lose a session silently."""
    with pytest.raises(ProtocolError, match="batch"):
        codec.decode_messages(speculation_pb2.SpeculateRequest())
    newer = speculation_pb2.SpeculateRequest()
    newer.batch.messages.add()
    with pytest.raises(ProtocolError, match="does not know"):
        codec.decode_messages(newer)
    with pytest.raises(ProtocolError, match="Hello"):
        codec.decode_hello(speculation_pb2.SpeculateRequest())
    with pytest.raises(ProtocolError, match="role"):
        codec.decode_card(common_pb2.ReplicaCard(replica="x"))


def hostile(**tree):
    """A batch of one tree, and a good one behind it."""
    out = speculation_pb2.SpeculateRequest()
    out.batch.messages.add().tree.CopyFrom(
        speculation_pb2.DraftTree(session=SESSION, tree=common_pb2.TokenTree(**tree), draft_s=float("nan"), queued_s=-1)
    )
    out.batch.messages.add().tree.CopyFrom(
        speculation_pb2.DraftTree(session=SESSION, tree=common_pb2.TokenTree(tokens=[7], parents=[-1]))
    )
    return out


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ({"tokens": [1, 2], "parents": [1, 0]}, "cycle"),
        ({"tokens": [1], "parents": [0]}, "cycle"),
        ({"tokens": [1, 2], "parents": [-1]}, "one parent per token"),
        ({"tokens": [1], "parents": [-2]}, "parent -2"),
        ({"tokens": [1] * 5000, "parents": [-1] * 5000}, "5000 nodes"),
        ({"tokens": [], "parents": [-1] * 100_000}, "100000 nodes"),
    ],
)
def test_a_hostile_tree_is_a_fault_and_not_an_error(tree, fault):
    """The target can drop and count it, and what comes in the same message is not disturbed."""
    bad, good = codec.decode_messages(over_the_wire(hostile(**tree)))

    assert bad.tree is None
    assert fault in bad.fault
    assert (bad.draft_s, bad.queued_s) == (0.0, 0.0)
    assert good.tree == TokenTree((7,), (-1,))


def test_a_tree_with_tokens_out_of_range_is_left_to_the_target():
    """Only the target knows the vocabulary; the codec passes what is a tree."""
    (bad, _) = codec.decode_messages(over_the_wire(hostile(tokens=[-5, 2**31 - 1], parents=[-1, -1])))

    assert bad.tree == TokenTree((-5, 2**31 - 1), (-1, -1))


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_our_errors(raw):
    """No bytes make the codec fail in a way that the server does not expect."""
    from google.protobuf.message import DecodeError

    try:
        message = speculation_pb2.SpeculateRequest.FromString(raw)
    except DecodeError:
        return
    for decode in (codec.decode_messages, codec.decode_hello):
        try:
            decode(message)
        except ProtocolError:
            continue


def test_cards_name_no_unknown_role():
    """A card of ours passes."""
    assert codec.decode_card(codec.encode_card(card("t0", "target"))).role == "target"


def test_times_that_are_none_are_left_out():
    """A draft cannot make the target's planner divide by zero, or believe in negative or endless passes."""
    message = codec.encode_card(card("d0", "draft"))
    message.pass_s.update({0: 1.0, 1: 0.0, 2: -1.0, 3: float("nan"), 4: float("inf"), 8: 0.25})

    assert codec.decode_card(message).pass_s == {8: 0.25}
