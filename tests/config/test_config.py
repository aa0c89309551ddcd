"""The one strict configuration: refusals name the key, values survive a round trip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specgrove.config import Config
from specgrove.config.environment import RECOMMENDED, Environment, secret
from specgrove.errors import ConfigError


def mapping(**changes: Any) -> dict[str, Any]:
    """A small valid configuration, with top-level changes."""
    return {
        "models": {"big": "org/big", "tiny": {"source": "/models/tiny", "dtype": "bfloat16"}},
        "targets": {"main": {"model": "big"}},
        "drafts": {"fast": {"model": "tiny"}},
    } | changes


def target(**fields: Any) -> dict[str, Any]:
    """The small configuration with these fields in its target pool."""
    return mapping(targets={"main": {"model": "big", **fields}})


def test_the_small_configuration_is_valid():
    """Negative control for all refusals below."""
    config = Config.from_mapping(mapping())

    assert config.models["big"].source == "org/big"
    assert config.targets["main"].served_names == ("big",)
    assert config.draft_pools("main") == ("fast",)


@pytest.mark.parametrize(
    ("raw", "param", "words"),
    [
        (mapping(modles={}), "modles", "did you mean 'models'"),
        (mapping(zzz=1), "zzz", "unknown key"),
        ({"targets": {}}, "models", "must be set"),
        (mapping(targets={}), "targets", "at least one pool"),
        (mapping(targets={"Main/": {"model": "big"}}), "targets.Main/", "small letters"),
        (mapping(targets={"main": {"model": "bog"}}), "targets.main.model", "'bog' is not under models; known: big"),
        (target(replica=2), "targets.main.replica", "did you mean 'replicas'"),
        (target(replicas="2"), "targets.main.replicas", "got '2'"),
        (target(replicas=0), "targets.main.replicas", "got 0"),
        (target(replicas=True), "targets.main.replicas", "got True"),
        (target(tensor_parallel_size=2), "targets.main.tensor_parallel_size", "only 1 is supported"),
        (target(num_replicas=2), "targets.main.num_replicas", "set replicas instead"),
        (target(device="tpu"), "targets.main.device", "got 'tpu'"),
        (target(kv_slots=10, kv_bytes=10), "targets.main.kv_bytes", "not both"),
        (target(resources={"num_cpu": 1}), "targets.main.resources.num_cpu", "did you mean 'num_cpus'"),
        (mapping(models={"big": {"source": "x", "dtype": "int8"}}), "models.big.dtype", "got 'int8'"),
        (mapping(state={"backend": "redis"}), "state.backend", "redis is not supported yet"),
        (mapping(state={"heartbeat_s": 3.0, "lease_s": 4.0}), "state.lease_s", "at least two heartbeats"),
        (mapping(listeners={"port": 80}), "listeners.port", "unknown key"),
        (mapping(listeners={"http_port": 99999}), "listeners.http_port", "got 99999"),
        (mapping(listeners={"generate_ports": "9-3"}), "listeners.generate_ports", "9-3 is not a range"),
        (mapping(drafts={"fast": {"model": "tiny", "targets": "nope"}}), "drafts.fast.targets", "'nope'"),
    ],
)
def test_a_mistake_is_refused_by_name(raw: dict[str, Any], param: str, words: str):
    """The sentence names the dotted key and says what to do."""
    with pytest.raises(ConfigError) as caught:
        Config.from_mapping(raw)

    assert caught.value.param == param
    assert words in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("speculative", "key", "words"),
    [
        ({"method": "eagle"}, "method", "use planned, tree, chain or ngram"),
        ({"method": "ngram", "draft_pool": "fast"}, "method", "from the text alone"),
        ({"prompt_lookup_min": 5}, "prompt_lookup_min", "over prompt_lookup_max, 4"),
        ({"method": "tree", "prompt_lookup_max": 3}, "prompt_lookup_max", "tree looks nothing up"),
        ({"method": "ngram", "draft_ahead": 2}, "method", "the text alone"),
        ({"method": "planned", "num_speculative_tokens": 3}, "num_speculative_tokens", "set max_depth and max_nodes"),
        ({"method": "planned", "branching": [2]}, "branching", "planned has no branching"),
        ({"branching": [2], "max_depth": 3}, "max_depth", "limits planned trees"),
        ({"disable_by_batch_size": 8}, "disable_by_batch_size", "method planned finds"),
        ({"num_speculative_token": 3}, "num_speculative_token", "did you mean 'num_speculative_tokens'"),
        ({"method": "tree", "num_speculative_tokens": 3}, "num_speculative_tokens", "set branching"),
        ({"method": "chain", "branching": [2, 1]}, "branching", "chain has no branching"),
        ({"branching": []}, "branching", "1 to 64"),
        ({"branching": [2, 0]}, "branching.1", "got 0"),
        ({"draft_pool": "slow"}, "draft_pool", "'slow' is not under drafts; known: fast"),
        ({"model": "big"}, "model", "no draft pool that may serve main has loaded 'big'"),
    ],
)
def test_a_speculative_mistake_is_refused_by_name(speculative: dict[str, Any], key: str, words: str):
    """vLLM's keys that are not honoured yet are refused, never ignored."""
    with pytest.raises(ConfigError) as caught:
        Config.from_mapping(target(speculative_config=speculative))

    assert caught.value.param == f"targets.main.speculative_config.{key}"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("speculative", "shape", "nodes"),
    [
        ({"method": "tree"}, (3, 1, 1, 1), 12),
        ({}, (4,) * 12, 64),
        ({"max_depth": 2, "max_nodes": 9}, (4, 4), 9),
        ({"method": "ngram", "num_speculative_tokens": 8}, (), 0),
        ({"num_speculative_tokens": 5}, (1,) * 5, 5),
        ({"method": "draft_model", "model": "tiny", "num_speculative_tokens": 2}, (1, 1), 2),
        ({"method": "tree", "branching": [2, 2]}, (2, 2), 6),
        ({"branching": [2, 2], "max_nodes": 4}, (2, 2), 4),
    ],
)
def test_the_shape_of_a_tree(speculative: dict[str, Any], shape: tuple[int, ...], nodes: int):
    """Chain length and branching become children per depth; nodes are their running products."""
    asked = Config.from_mapping(target(speculative_config=speculative)).targets["main"].speculative_config

    assert asked is not None
    assert (asked.shape, asked.nodes) == (shape, nodes)


def test_null_speculation_is_plain_decoding():
    """A target that asks for no speculation has no draft pool."""
    config = Config.from_mapping(target(speculative_config=None))

    assert config.draft_pools("main") == ()


def test_a_name_belongs_to_one_model():
    """Two pools may share a name only when they hold the same weights in the same format."""
    same = {"a": {"model": "big"}, "b": {"model": "big"}}
    Config.from_mapping(mapping(targets=same))

    with pytest.raises(ConfigError, match="'big' is already served by a"):
        Config.from_mapping(mapping(targets={"a": {"model": "big"}, "b": {"model": "big", "dtype": "float16"}}))
    with pytest.raises(ConfigError, match="'big' is already served by a"):
        Config.from_mapping(
            mapping(targets={"a": {"model": "big"}, "b": {"model": "tiny", "served_model_name": "big"}})
        )


def test_round_trip():
    """to_mapping keeps what was set and nothing else, and survives YAML."""
    raw = mapping(targets={"main": {"model": "big", "speculative_config": None, "served_model_name": ["a", "b"]}})
    config = Config.from_mapping(raw)

    again = Config.from_mapping(yaml.safe_load(yaml.safe_dump(config.to_mapping())))

    assert again == config
    assert set(config.to_mapping()) == {"models", "targets", "drafts"}


def test_a_configuration_cannot_be_changed():
    """Frozen, also inside."""
    config = Config.bundled()

    with pytest.raises(Exception, match="frozen"):
        config.targets["grove-large"].replicas = 2  # type: ignore[misc]


def test_yaml_refuses_a_key_given_twice(tmp_path: Path):
    """YAML itself would keep the second one silently."""
    path = tmp_path / "twice.yaml"
    path.write_text("models: {a: x}\ntargets: {t: {model: a}}\ntargets: {u: {model: a}}\n")

    with pytest.raises(ConfigError, match="'targets' is given twice"):
        Config.from_yaml(path)


def test_yaml_may_share_parts(tmp_path: Path):
    """Anchors and merge keys are not keys given twice."""
    path = tmp_path / "shared.yaml"
    path.write_text("models: {a: x}\ntargets:\n  t: &p {model: a, threads: 2}\n  u: {<<: *p, threads: 3}\n")

    assert {name: pool.threads for name, pool in Config.from_yaml(path).targets.items()} == {"t": 2, "u": 3}


@pytest.mark.parametrize(("text", "words"), [("a: [", "is not YAML"), ("- 1", "must hold a mapping")])
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, words: str):
    """One sentence, no traceback of a parser."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=words):
        Config.from_yaml(path)
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        Config.from_yaml(tmp_path / "absent.yaml")


def test_devices():
    """auto follows the GPUs that Ray sets aside; cuda asks for one."""
    config = Config.from_mapping(
        mapping(
            targets={
                "cpu": {"model": "big"},
                "gpu": {"model": "big", "device": "cuda"},
                "auto": {"model": "big", "resources": {"num_gpus": 0.5}},
            }
        )
    )

    found = {name: (pool.torch_device, pool.gpus) for name, pool in config.targets.items()}

    assert found == {"cpu": ("cpu", 0.0), "gpu": ("cuda", 1.0), "auto": ("cuda", 0.5)}


def test_secrets(tmp_path: Path):
    """Values come from the variable or the file; a missing one is named, its value is not."""
    (tmp_path / "key").write_text("from-file\n")

    assert secret("plain", key="api_keys") == "plain"
    assert secret("env:KEY", key="api_keys", environ={"KEY": "from-env"}) == "from-env"
    assert secret(f"file:{tmp_path}/key", key="api_keys") == "from-file"
    with pytest.raises(ConfigError, match="environment variable KEY is empty or not set"):
        secret("env:KEY", key="api_keys", environ={})
    with pytest.raises(ConfigError, match="cannot read the file"):
        secret("file:/nonexistent/key", key="api_keys")


def test_environment_names_what_is_missing():
    """doctor and the log name the recommended variables that a process lacks."""
    assert Environment.read({}).missing == tuple(RECOMMENDED)
    assert Environment.read(dict(RECOMMENDED)).missing == ()
    assert Environment.read({"RAY_ADDRESS": ""}).ray_address is None
