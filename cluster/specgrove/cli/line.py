"""From the options of `specgrove serve` to a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specgrove.config import Config
from specgrove.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeLine:
    """What was written after `specgrove serve`; None and () mean not given."""

    model: str | None = None
    config: Path | None = None
    draft: str | None = None
    host: str | None = None
    port: int | None = None
    grpc_port: int | None = None
    dtype: str | None = None
    device: str | None = None
    quantization: str | None = None
    draft_quantization: str | None = None
    max_model_len: int | None = None
    served_model_name: tuple[str, ...] = ()
    revision: str | None = None
    api_key: tuple[str, ...] = ()

    def to_config(self) -> Config:
        """The configuration. Raises ConfigError for options that do not go together, and as Config.from_mapping."""
        if self.config is not None:
            self._refuse_model_options("--config", "set it in the file")
            return Config.from_mapping(self._with_doors(Config.from_yaml(self.config).to_mapping()))
        if self.model is None:
            for given, option in ((self.draft, "--draft"), (self.revision, "--revision")):
                if given:
                    raise ConfigError(f"{option} needs a MODEL before it", param=option)
            if self.served_model_name:
                raise ConfigError("--served-model-name needs a MODEL before it", param="--served-model-name")
            return Config.from_mapping(self._with_doors(self._bundled()))
        return Config.from_mapping(self._with_doors(self._one_target(self.model)))

    def yaml(self) -> str:
        """The configuration as a file for --config."""
        return yaml.safe_dump(self.to_config().to_mapping(), sort_keys=False)

    def _refuse_model_options(self, other: str, fix: str) -> None:
        options = {
            "MODEL": self.model, "--draft": self.draft, "--dtype": self.dtype, "--device": self.device,
            "--max-model-len": self.max_model_len, "--served-model-name": self.served_model_name,
            "--revision": self.revision, "--quantization": self.quantization,
            "--draft-quantization": self.draft_quantization,
        }  # fmt: skip
        for option, value in options.items():
            if value:
                raise ConfigError(f"{option} and {other} do not go together; {fix}", param=option)

    def _with_doors(self, mapping: dict[str, Any]) -> dict[str, Any]:
        doors = {"host": self.host, "http_port": self.port, "grpc_port": self.grpc_port}
        given = {key: value for key, value in doors.items() if value is not None}
        if given:
            mapping = mapping | {"listeners": {**mapping.get("listeners", {}), **given}}
        return mapping | {"api_keys": list(self.api_key)} if self.api_key else mapping

    def _bundled(self) -> dict[str, Any]:
        mapping = Config.bundled().to_mapping()
        for kind, quantization in (("targets", self.quantization), ("drafts", self.draft_quantization)):
            changes = self._pool_options(quantization)
            mapping[kind] = {name: pool | changes for name, pool in mapping[kind].items()}
        return mapping

    def _one_target(self, model: str) -> dict[str, Any]:
        name = _name(model)
        target: dict[str, Any] = {"model": name, **self._pool_options(self.quantization)}
        models: dict[str, Any] = {name: {"source": model} | ({"revision": self.revision} if self.revision else {})}
        mapping: dict[str, Any] = {"models": models, "targets": {"main": target}}
        if self.served_model_name:
            target["served_model_name"] = list(self.served_model_name)
        if self.draft is None:
            if self.draft_quantization:
                raise ConfigError("--draft-quantization needs a --draft", param="--draft-quantization")
            target["speculative_config"] = None
            return mapping
        draft = _name(self.draft)
        if draft in models:
            raise ConfigError(
                f"draft and target are both called {draft}; a model cannot draft for itself", param="--draft"
            )
        models[draft] = {"source": self.draft}
        return mapping | {"drafts": {"draft": {"model": draft, **self._pool_options(self.draft_quantization)}}}

    def _pool_options(self, quantization: str | None) -> dict[str, Any]:
        options = {
            "dtype": self.dtype,
            "device": self.device,
            "quantization": quantization,
            "max_model_len": self.max_model_len,
        }
        return {key: value for key, value in options.items() if value is not None}


def _name(model: str) -> str:
    """A hub id or bundled name is a name already; of a directory it is the last part."""
    path = Path(model).expanduser()
    return path.resolve().name if path.is_dir() or model.startswith((".", "/", "~")) else model
