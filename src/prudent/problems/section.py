"""What every table of a problem file is."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..tables.names import suggest

Level = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Name = str | int


class Section(BaseModel):
    """A table of the file: unknown keys are refused with the nearest known one.

    Where a table may be of several kinds, the kinds have a base of their own, and a key of another kind is told so.
    """

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for key in value:
            if key not in cls.model_fields:
                near = suggest(str(key), cls.model_fields) or f"; the keys are {', '.join(cls.model_fields)}"
                hint = _of_another_kind(cls, key) or near
                raise PydanticCustomError("unknown_key", "unknown key {key}{hint}", {"key": repr(key), "hint": hint})
        return value


def by_kind(base: type[Section]) -> dict[str, type[Section]]:
    """The sections that stand on a base, by their kind."""
    return {get_args(section.model_fields["kind"].annotation)[0]: section for section in base.__subclasses__()}


def _of_another_kind(section: type[Section], key: str) -> str:
    """Which kinds a key is for that is none of this one's."""
    base = section.__base__
    if "kind" not in section.model_fields or base is None or not issubclass(base, Section) or base is Section:
        return ""
    kinds = [kind for kind, other in by_kind(base).items() if key in other.model_fields]
    return f"; it is for kind = {' or '.join(map(repr, kinds))}".replace("'", '"') if kinds else ""
