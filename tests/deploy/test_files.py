"""The Serve files in deployments/."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specgrove.config import Config
from specgrove.deploy import APP_NAME, GRPC_SERVICES
from specgrove.errors import ConfigError

FILES = sorted((Path(__file__).parents[2] / "deployments").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_holds_one_valid_application(path: Path):
    """Our configuration in it is valid, and the gRPC services are all there."""
    raw = yaml.safe_load(path.read_text())

    Config.from_yaml(path)

    assert [app["name"] for app in raw["applications"]] == [APP_NAME]
    assert tuple(raw["grpc_options"]["grpc_servicer_functions"]) == GRPC_SERVICES
    assert not raw["applications"][0].get("deployments"), "Serve ignores typos there; use our configuration"


def test_local_is_what_serve_starts_without_arguments():
    """One source of truth for the newcomer, two ways to start it."""
    local = Config.from_yaml(next(path for path in FILES if path.name == "local.yaml"))

    assert local.to_mapping() == Config.bundled().to_mapping() | {
        "listeners": {"host": "127.0.0.1", "http_port": 8000, "grpc_port": 9000}
    }


def test_the_doors_of_a_serve_file_are_read_from_it(tmp_path: Path):
    """So that `specgrove serve --config` and `serve run` listen on the same ports."""
    path = tmp_path / "serve.yaml"
    raw = yaml.safe_load(FILES[0].read_text())
    raw["http_options"]["port"] = 8123
    path.write_text(yaml.safe_dump(raw))

    assert Config.from_yaml(path).listeners.http_port == 8123


def test_a_serve_file_of_somebody_else_is_refused(tmp_path: Path):
    """With a sentence that says what must be in it."""
    path = tmp_path / "serve.yaml"
    path.write_text("applications: [{name: x, import_path: 'other:app'}]")

    with pytest.raises(ConfigError, match="exactly one application with import_path"):
        Config.from_yaml(path)
