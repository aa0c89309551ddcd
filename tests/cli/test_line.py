"""What a `specgrove serve` line stands for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specgrove.cli.line import ServeLine
from specgrove.config import Config
from specgrove.errors import ConfigError


def test_nothing_is_the_bundled_family():
    """On loopback, drafts included."""
    assert ServeLine().to_config() == Config.bundled()


def test_one_model_decodes_plainly():
    """Without --draft there is none."""
    config = ServeLine(model="org/big").to_config()

    assert config.targets["main"].served_names == ("org/big",)
    assert config.targets["main"].speculative_config is None
    assert config.drafts == {}


def test_a_pair():
    """Every option lands in its place."""
    config = ServeLine(
        model="org/big", draft="org/tiny", host="0.0.0.0", port=81, grpc_port=91, dtype="bfloat16", device="cpu",
        max_model_len=512, served_model_name=("a", "b"), revision="v1", api_key=("k",), draft_quantization="int8",
    ).to_config()  # fmt: skip

    target, draft = config.targets["main"], config.drafts["draft"]
    assert (config.models["org/big"].source, config.models["org/big"].revision) == ("org/big", "v1")
    assert (target.served_names, target.dtype, target.device, target.max_model_len) == (
        ("a", "b"),
        "bfloat16",
        "cpu",
        512,
    )
    assert (draft.model, draft.dtype, draft.max_model_len) == ("org/tiny", "bfloat16", 512)
    assert (target.quantization, draft.quantization) == (None, "int8")
    assert config.draft_pools("main") == ("draft",)
    assert (config.listeners.host, config.listeners.http_port, config.listeners.grpc_port) == ("0.0.0.0", 81, 91)
    assert config.api_keys == ("k",)


def test_a_directory_is_served_under_its_last_part(tmp_path: Path):
    """As people call it."""
    (tmp_path / "mine").mkdir()

    config = ServeLine(model=str(tmp_path / "mine")).to_config()

    assert config.targets["main"].served_names == ("mine",)
    assert config.models["mine"].source == str(tmp_path / "mine")


def test_the_printed_config_is_the_config(tmp_path: Path):
    """--print-config can be saved and given to --config; doors may still be changed on the line."""
    line = ServeLine(model="org/big", draft="org/tiny", port=81)
    path = tmp_path / "c.yaml"
    path.write_text(line.yaml())

    assert ServeLine(config=path).to_config() == line.to_config()
    assert ServeLine(config=path, port=82).to_config().listeners.http_port == 82
    assert yaml.safe_load(line.yaml())["listeners"] == {"http_port": 81}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ServeLine(draft="x"), "--draft needs a MODEL"),
        (ServeLine(revision="x"), "--revision needs a MODEL"),
        (ServeLine(served_model_name=("x",)), "--served-model-name needs a MODEL"),
        (ServeLine(model="m", config=Path("c.yaml")), "MODEL and --config do not go together"),
        (ServeLine(dtype="float32", config=Path("c.yaml")), "--dtype and --config do not go together"),
        (ServeLine(config=Path("/nonexistent.yaml")), "cannot read the configuration"),
        (ServeLine(model="m", draft="m"), "a model cannot draft for itself"),
        (ServeLine(model="m", dtype="int4"), "config targets.main.dtype"),
        (ServeLine(port=0), "config listeners.http_port"),
    ],
)
def test_what_does_not_go_together_is_refused(line: ServeLine, words: str):
    """Never ignored."""
    with pytest.raises(ConfigError, match=words):
        line.to_config()
