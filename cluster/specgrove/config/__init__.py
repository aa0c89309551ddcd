"""The one configuration: models once, then pools of targets and drafts, listeners and keys.

`Config.from_mapping` is the one strict loader, used by `specgrove serve --config`, by the Serve builder
`specgrove.deploy:app` and by the tests. `serve deploy` passes the same mapping as `args`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from specgrove.config.environment import RECOMMENDED, Environment, secret
from specgrove.config.pools import (
    POOL_NAME,
    Count,
    DraftConfig,
    ModelConfig,
    PoolConfig,
    ResourceConfig,
    SpeculativeConfig,
    Strings,
    TargetConfig,
)
from specgrove.config.strict import Strict, refuse
from specgrove.errors import ConfigError

__all__ = [
    "RECOMMENDED", "Config", "DraftConfig", "Environment", "IngressConfig", "ListenerConfig", "LogConfig",
    "ModelConfig", "PoolConfig", "ResourceConfig", "SpeculativeConfig", "StateConfig", "TargetConfig", "secret",
]  # fmt: skip

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]


class ListenerConfig(Strict):
    """Where we listen. Under `serve run` and `serve deploy` the two public doors are set in http_options and
    grpc_options of the Serve file; host, http_port and grpc_port then only say what those are."""

    host: str = "127.0.0.1"
    """Address of the public doors; loopback unless told otherwise."""
    http_port: Port = 8000
    """OpenAI-compatible HTTP API."""
    grpc_port: Port = 9000
    """specgrove.v1 over gRPC."""
    replica_host: str = "127.0.0.1"
    """Address on which target replicas listen for ingress and drafts. `node`: the node's own address, needed as soon as
    replicas are on several machines."""
    generate_ports: Annotated[str, Field(pattern=r"^\d+-\d+$")] = "21000-21999"
    """Ports for Generate, one of them per target replica."""
    speculate_ports: Annotated[str, Field(pattern=r"^\d+-\d+$")] = "22000-22999"
    """Ports for Speculate, one of them per target replica."""

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        for key in ("generate_ports", "speculate_ports"):
            first, last = (int(port) for port in str(getattr(self, key)).split("-"))
            if not 1 <= first <= last <= 65535:
                raise refuse(key, f"{first}-{last} is not a range of ports")
        return self

    @property
    def generate_range(self) -> range:
        """Ports for Generate."""
        return _port_range(self.generate_ports)

    @property
    def speculate_range(self) -> range:
        """Ports for Speculate."""
        return _port_range(self.speculate_ports)


def _port_range(text: str) -> range:
    first, last = text.split("-")
    return range(int(first), int(last) + 1)


class IngressConfig(Strict):
    """The public doors: HTTP and gRPC, in front of all target pools."""

    replicas: Count = 1
    """Ingress replicas."""
    num_cpus: Annotated[float, Field(ge=0)] = 0.1
    """Logical CPUs of one ingress replica."""
    max_ongoing_requests: Count = 1000
    """Most requests in one ingress replica at a time; more are refused."""
    max_body_bytes: Count = 2 * 1024 * 1024
    """Largest request: the body of one over HTTP, the message of one over gRPC."""
    request_timeout_s: Annotated[float, Field(gt=0, le=86400)] = 600.0
    """Longest life of one request, a day at most."""
    wait_for_replica_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a request waits for a replica of its model, at the start and while a new configuration rolls out."""


class StateConfig(Strict):
    """Where the registry of replicas lives, and how fast it notices a lost one."""

    refused: ClassVar[Mapping[str, str]] = {"redis_url": "the redis backend is not supported yet; remove it"}

    backend: Literal["memory"] = "memory"
    """memory: a named Ray actor."""
    heartbeat_s: Seconds = 1.0
    """Between two reports of a replica."""
    lease_s: Seconds = 5.0
    """A replica that has not reported for so long is taken for lost."""

    @field_validator("backend", mode="before")
    @classmethod
    def _known_backend(cls, backend: Any) -> Any:
        if backend == "redis":
            raise refuse("", "redis is not supported yet; use memory")
        return backend

    @model_validator(mode="after")
    def _patient(self) -> Self:
        if self.lease_s < 2 * self.heartbeat_s:
            raise refuse("lease_s", f"must be at least two heartbeats, {2 * self.heartbeat_s:g}")
        return self


class LogConfig(Strict):
    """Log lines of all replicas."""

    format: Literal["plain", "json"] = "plain"
    """plain: one line for people; json: one object per line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""


class Config(Strict):
    """Everything that one deployment of specgrove needs to know."""

    refused: ClassVar[Mapping[str, str]] = {
        "model": "name it under models and make a pool of it under targets",
        "speculative_config": "set it in the target pool that it is for",
        "api_key": "set api_keys, a list",
        "host": "set it under listeners",
        "port": "set http_port under listeners",
    }

    models: dict[str, ModelConfig]
    """Models by name. A string stands for `{source: ...}`."""
    targets: dict[str, TargetConfig]
    """Target pools by name."""
    drafts: dict[str, DraftConfig] = Field(default_factory=dict)
    """Draft pools by name; without one everything is decoded plainly."""
    listeners: ListenerConfig = ListenerConfig()
    """Addresses and ports."""
    ingress: IngressConfig = IngressConfig()
    """The public doors."""
    api_keys: Strings = ()
    """Keys that clients must present: values, `env:NAME` or `file:PATH`. Empty: no key is asked for."""
    cluster_token: str | None = None
    """What a draft must present to a target: a value, `env:NAME` or `file:PATH`. None: made at each start."""
    state: StateConfig = StateConfig()
    """The registry."""
    log: LogConfig = LogConfig()
    """Log lines."""
    drain_timeout_s: Seconds = 120.0
    """How long a replica that is told to stop goes on with its live sessions."""

    @field_validator("models", mode="before")
    @classmethod
    def _short_form(cls, models: Any) -> Any:
        if not isinstance(models, Mapping):
            return models
        return {name: {"source": model} if isinstance(model, str) else model for name, model in models.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.targets:
            raise refuse("targets", "needs at least one pool")
        for kind, pools in (("targets", self.targets), ("drafts", self.drafts)):
            for name, pool in pools.items():
                if not POOL_NAME.match(name):
                    raise refuse(f"{kind}.{name}", "a pool name is made of small letters, digits, - and _")
                if pool.model not in self.models:
                    raise refuse(f"{kind}.{name}.model", f"{pool.model!r} is not under models{_known(self.models)}")
        self._check_pairs()
        self._check_names()
        return self

    def _check_pairs(self) -> None:
        for name, target in self.targets.items():
            path = f"targets.{name}.speculative_config"
            asked = target.speculative_config
            if asked is None:
                continue
            for pool in asked.draft_pool:
                if pool not in self.drafts:
                    raise refuse(f"{path}.draft_pool", f"{pool!r} is not under drafts{_known(self.drafts)}")
            if asked.model is not None and not self.draft_pools(name):
                raise refuse(f"{path}.model", f"no draft pool that may serve {name} has loaded {asked.model!r}")
        for name, draft in self.drafts.items():
            for pool in draft.targets:
                if pool not in self.targets:
                    raise refuse(f"drafts.{name}.targets", f"{pool!r} is not under targets{_known(self.targets)}")

    def _check_names(self) -> None:
        owner: dict[str, str] = {}
        for pool, target in self.targets.items():
            for name in target.served_names:
                other = self.targets[owner.setdefault(name, pool)]
                if (other.model, self.dtype(other)) != (target.model, self.dtype(target)):
                    why = f"{name!r} is already served by {owner[name]} with another model or dtype"
                    raise refuse(f"targets.{pool}.served_model_name", why)

    def draft_pools(self, target: str) -> tuple[str, ...]:
        """Draft pools that may serve the target pool `target`, as far as the configuration says."""
        asked = self.targets[target].speculative_config
        if asked is None or asked.kind == "ngram":
            return ()
        return tuple(
            name
            for name, draft in self.drafts.items()
            if (not asked.draft_pool or name in asked.draft_pool)
            and (not draft.targets or target in draft.targets)
            and (asked.model is None or asked.model == draft.model)
        )

    def named_pair(self, target: str, draft: str) -> bool:
        """Whether the configuration names this pair, so that unequal vocabularies are a mistake and not a choice."""
        asked = self.targets[target].speculative_config
        named = asked is not None and (draft in asked.draft_pool or asked.model == self.drafts[draft].model)
        return named or target in self.drafts[draft].targets

    def dtype(self, pool: PoolConfig) -> str:
        """Number format of a pool."""
        return pool.dtype or self.models[pool.model].dtype

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Read a file: a Config by itself, or a Serve file, whose one specgrove application holds it as `args`.

        Raises ConfigError for a file that is not there or is no mapping, for a key given twice, and as from_mapping.
        """
        raw = _read_yaml(path)
        return cls.from_mapping(_application_args(raw, path) if "applications" in raw else raw)

    @classmethod
    def bundled(cls, *, dtype: str = "float32") -> Self:
        """The family that comes with the package: two targets of different size and one draft for both.

        Exit and tree are the fastest that were measured on two cores (docs/benchmarks/family.md).
        """
        family = ("grove-large", "grove-small", "grove-draft")
        tree = {"method": "tree", "branching": [2, 1, 1, 1, 1, 1, 1, 1]}
        pool = {"dtype": dtype, "threads": 1, "max_surge_percent": 100, "resources": {"num_cpus": 0.1}}
        return cls.from_mapping(
            {
                "models": {name: {"source": name} for name in family},
                "targets": {name: {"model": name, "speculative_config": tree, **pool} for name in family[:2]},
                "drafts": {"grove-draft": {"model": "grove-draft", "exit": 2, **pool}},
            }
        )


def _known(names: Mapping[str, object]) -> str:
    return f"; known: {', '.join(sorted(names))}" if names else ", which is empty"


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets a later key win silently; we don't."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        merge = "tag:yaml.org,2002:merge"
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != merge]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(f"config: the key {key!r} is given twice", param=str(key))
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must hold a mapping, with models and targets in it")
    return raw


def _application_args(raw: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    ours = [app for app in raw["applications"] if str(app.get("import_path", "")).startswith("specgrove.")]
    if len(ours) != 1:
        raise ConfigError(f"{path} must hold exactly one application with import_path specgrove.deploy:app")
    args = dict(ours[0].get("args") or {})
    http, grpc = raw.get("http_options") or {}, raw.get("grpc_options") or {}
    doors = {"host": http.get("host"), "http_port": http.get("port"), "grpc_port": grpc.get("port")}
    listeners = {key: value for key, value in doors.items() if value is not None} | dict(args.get("listeners") or {})
    return args | ({"listeners": listeners} if listeners else {})
