"""The base of all request schemas, and the translation of pydantic's findings into one sentence with a `param`."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from specgrove.errors import RequestError
from specgrove.http.schemas import neutral

M = TypeVar("M", bound="Strict")


class Strict(BaseModel):
    """Unknown fields are refused; null in an optional field is the same as leaving it out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    neutral_fields: ClassVar[neutral.Neutral] = neutral.NOTHING

    @model_validator(mode="before")
    @classmethod
    def _drop_what_asks_for_nothing(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            raise ValueError("must be an object")
        return {name: value for name, value in raw.items() if not cls._asks_for_nothing(name, value)}

    @classmethod
    def _asks_for_nothing(cls, name: str, value: Any) -> bool:
        field = cls.model_fields.get(name)
        if field is not None:
            return value is None and not field.is_required()
        return name in cls.neutral_fields and neutral.asks_for_nothing(cls.neutral_fields, name, value)


def parse(schema: type[M], raw: dict[str, Any], tables: tuple[neutral.Neutral, ...]) -> M:
    """Validate a request. Raises RequestError whose `param` names the first field at fault, as `messages[0].role`.

    tables: the neutral fields of the schema and of the objects in it, to tell unsupported from unknown.
    """
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = _param(first["loc"])
        raise RequestError(f"`{param}` {_sentence(schema, first, tables)}", param=param) from None


def _param(loc: tuple[int | str, ...]) -> str:
    """OpenAI's way to name a place in the request."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in loc)
    return path.removeprefix(".")


def _sentence(schema: type[Strict], finding: Any, tables: tuple[neutral.Neutral, ...]) -> str:
    kind = finding["type"]
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        name = str(finding["loc"][-1])
        for table in tables if len(finding["loc"]) > 1 else tables[:1]:
            if name in table:
                return f"is not supported with this value; {neutral.hint(table, name)}"
        close = difflib.get_close_matches(name, schema.model_fields, n=1) if len(finding["loc"]) == 1 else []
        return "is not a field of this request" + (f"; did you mean `{close[0]}`?" if close else "")
    if kind == "value_error":
        return str(finding["ctx"]["error"])
    return f"is not valid: {finding['msg']}"
