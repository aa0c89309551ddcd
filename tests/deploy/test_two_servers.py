"""Two servers on one machine keep their callers apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live import Live, serving

from specgrove.client import Client


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_answers_its_own_callers(cluster: Live, tmp_path: Path):
    """New channels all reach the server whose port was dialled: Serve's own ports could be shared unseen."""
    other = {
        "models": {"small": {"source": "grove-small"}},
        "targets": {"other": {"model": "small", "served_model_name": "other"}},
    }
    with serving(other, tmp_path) as second:
        for _ in range(12):
            with Client(second.grpc) as client:
                assert [model.name for model in client.models()] == ["other"]
            with Client(cluster.grpc) as client:
                assert "other" not in [model.name for model in client.models()]
