"""The base of all configuration values: frozen, strict, and every refusal names the key and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from specgrove.errors import ConfigError


class Strict(BaseModel):
    """A frozen value that refuses unknown keys and loose types; `"1"` is not a number here."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    refused: ClassVar[Mapping[str, str]] = {}
    """Keys that people may expect here and that we do not honour: what to do instead."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping):
            for key in raw:
                if key not in cls.model_fields:
                    raise PydanticCustomError("unknown_key", "{key}: {why}", {"key": key, "why": cls._why_not(key)})
        return raw

    @classmethod
    def _why_not(cls, key: object) -> str:
        if key in cls.refused:
            return cls.refused[str(key)]
        close = difflib.get_close_matches(str(key), [*cls.model_fields, *cls.refused], n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(sorted(cls.model_fields))}"
        return f"unknown key; {hint}"

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Self:
        """Validate plain values. Raises ConfigError, whose `param` is the dotted path of the first offending key."""
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise _config_error(error.errors()[0]) from None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for YAML and JSON; from_mapping gives an equal value back. Values left unset are left out."""
        out: dict[str, Any] = self.model_dump(mode="json", exclude_unset=True)
        return out


def refuse(key: str, why: str) -> PydanticCustomError:
    """The error that a validator raises for its own key `key`."""
    return PydanticCustomError("refused", "{key}: {why}", {"key": key, "why": why})


def _config_error(first: ErrorDetails) -> ConfigError:
    path = [str(part) for part in first["loc"] if not _is_tag(part)]
    facts = first.get("ctx", {})
    if first["type"] in ("unknown_key", "refused"):
        path += [str(facts["key"])] if facts["key"] else []
        why = str(facts["why"])
    elif first["type"] == "missing":
        why = "must be set"
    else:
        why = f"{first['msg'][:1].lower()}{first['msg'][1:]}, got {first['input']!r}"
    dotted = ".".join(path)
    return ConfigError(f"config {dotted}: {why}" if dotted else f"config: {why}", param=dotted or None)


def _is_tag(part: object) -> bool:
    """Pydantic adds the name of the union member or wrapper to the path; people did not write it."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float"))
