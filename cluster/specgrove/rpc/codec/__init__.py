"""The only place that knows the wire form. Both directions for every message of protos/specgrove/v1.

`encode_x` turns a core value into a message and `decode_x` the reverse; decode_x(encode_x(v)) == v.
"""

from specgrove.rpc.codec.cards import decode_card, decode_load, decode_tree, encode_card, encode_load, encode_tree
from specgrove.rpc.codec.generation import (
    decode_event,
    decode_request,
    encode_detokenize,
    encode_event,
    encode_request,
    encode_tokenize,
)
from specgrove.rpc.codec.models import decode_models, encode_models
from specgrove.rpc.codec.speculation import (
    MAX_TREE_NODES,
    batch_of_messages,
    batch_of_updates,
    decode_hello,
    decode_messages,
    decode_updates,
    decode_welcome,
    encode_hello,
    encode_welcome,
    weigh_message,
    weigh_update,
)

__all__ = [
    "MAX_TREE_NODES",
    "batch_of_messages",
    "batch_of_updates",
    "decode_card",
    "decode_event",
    "decode_hello",
    "decode_load",
    "decode_messages",
    "decode_models",
    "decode_request",
    "decode_tree",
    "decode_updates",
    "decode_welcome",
    "encode_card",
    "encode_detokenize",
    "encode_event",
    "encode_hello",
    "encode_load",
    "encode_models",
    "encode_request",
    "encode_tokenize",
    "encode_tree",
    "encode_welcome",
    "weigh_message",
    "weigh_update",
]
