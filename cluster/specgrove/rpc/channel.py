"""Options that all our channels and servers share."""

from __future__ import annotations

import json

MAX_MESSAGE_BYTES = 16 * 2**20
"""Largest message in either direction."""

MAX_DRAFT_BYTES = 2**20
"""Largest message that a target reads from a draft: trees are small, and a hostile one must not keep the loop busy."""

KEEPALIVE_MS = 2_000
"""A silent peer is pinged this often ..."""
KEEPALIVE_TIMEOUT_MS = 4_000
"""... and given up when it does not answer for so long."""

Option = tuple[str, int | str]

_KEEPALIVE: list[Option] = [
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # the one that current versions of gRPC wait for
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


def server_options(*, max_receive_bytes: int = MAX_MESSAGE_BYTES) -> list[Option]:
    """Size caps, keepalive that tolerates the peer's pings, and no silent sharing of a port with another process."""
    return [
        *_KEEPALIVE,
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", max_receive_bytes),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.so_reuseport", 0),
    ]


def peer_options() -> list[Option]:
    """For channels between replicas: a dead peer is noticed in seconds; retries are ours to decide."""
    return [
        *_KEEPALIVE,
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


def user_options(*, max_attempts: int) -> list[Option]:
    """For clients of the service: calls that the server never took (UNAVAILABLE) are sent again."""
    policy = {
        "maxAttempts": max_attempts,
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = {"methodConfig": [{"name": [{"service": "specgrove.v1.GenerationService"}], "retryPolicy": policy}]}
    # gRPC refuses a policy of fewer than two attempts.
    retries: list[Option] = (
        [("grpc.enable_retries", 1), ("grpc.service_config", json.dumps(config))]
        if max_attempts > 1
        else [("grpc.enable_retries", 0)]
    )
    return [
        *retries,
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]


_DEADLINE_MARGIN_S = 2.0
_LONGEST_DEADLINE_S = 10 * 86_400.0


def call_deadline(timeout_s: float | None) -> float | None:
    """Seconds after which the caller gives up by itself; None: never.

    The server keeps the request's limit; this one, a little later, is for a server that hangs. gRPC turns what it
    cannot count (infinite, not a number, centuries) into a deadline that is over already, so those become none and the
    server says what is wrong with them.
    """
    if timeout_s is None or not timeout_s < _LONGEST_DEADLINE_S:
        return None
    return max(timeout_s, 0.0) + _DEADLINE_MARGIN_S
