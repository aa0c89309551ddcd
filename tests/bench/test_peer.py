"""Measuring another server: one that answers, and ones that do not."""

from __future__ import annotations

import pytest
from tests.live import Live

from specgrove.bench.peer import of_peer
from specgrove.errors import ConfigError, Unavailable


def test_an_openai_endpoint_is_asked(cluster: Live):
    """Ours is one."""
    way = of_peer(f"{cluster.http}/v1/", ["Hello!", "Count from 3 to 9."], temperature=0.0)
    tokens, stats, traces = way([1, 2, 3], 1, 5)

    assert len(tokens) == 5
    assert (stats, traces) == (None, [])


def test_what_is_no_endpoint(cluster: Live):
    """Nobody listens, or something else does."""
    with pytest.raises(Unavailable, match="does not answer"):
        of_peer("http://127.0.0.1:9", [], temperature=0.0)
    with pytest.raises(ConfigError, match="answered 404"):
        of_peer(f"{cluster.http}/nothing", [], temperature=0.0)
