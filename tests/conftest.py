"""Settings for all tests, and the one real server that they share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.live import Live, serving

from specgrove.config import Config

# The two cores are shared, so wall-clock limits of single examples would fail by chance.
settings.register_profile("shared-cores", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-cores")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--planned`: for the parity suite."""
    parser.addoption("--planned", action="store_true", help="let the planner choose the trees of the shared server")


@pytest.fixture(scope="session")
def planned(request: pytest.FixtureRequest) -> bool:
    """Whether the planner chooses the trees of the shared server."""
    return bool(request.config.getoption("--planned"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, planned: bool) -> Iterator[Live]:
    """The bundled family in float32, served by `specgrove serve`: two targets and one draft, on free ports.

    Sessions wait for their trees also when the machine is busy, so that what is tested is speculation.
    """
    folder: Path = tmp_path_factory.mktemp("cluster")
    config = Config.bundled(dtype="float32").to_mapping()
    for pool in config["targets"].values():
        pool["speculative_config"] = {"method": "planned" if planned else "tree", "max_tree_wait_ms": 1000.0}
    with serving(config, folder) as live:
        yield live
