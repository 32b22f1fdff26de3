"""What every table of a problem file is, and the tables whose keys are the settings of a class of the library."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InputError
from ..settings import Setting, settings_of
from ..tables import suggest

Level = Annotated[float, Field(ge=0.0, lt=1.0)]
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


class Made(Section):
    """A table of a kind that stands for a part of the library: `made()` is the part."""

    makes: ClassVar[Any] = None
    kind: str

    def made(self, **more: Any) -> Any:
        """The part, with what the file leaves out as its class has it."""
        return self.makes(**(self.model_dump(exclude={"kind"}, exclude_none=True) | more))

    @classmethod
    def alone(cls) -> str | None:
        """The key that a number after the kind stands for, as in `cvar:0.9`."""
        settings = {} if cls.makes is None else settings_of(cls.makes)
        return next((name for name, setting in settings.items() if setting.alone), next(iter(settings), None))


class Checked(Made):
    """A table whose part can be made of it alone, and is: what its class refuses is refused here."""

    @model_validator(mode="after")
    def _sound(self) -> Checked:
        try:
            self.made()
        except InputError as error:
            raise PydanticCustomError("settings", "{said}", {"said": str(error)}) from None
        return self


Kind = TypeVar("Kind", bound=Made)


def kinds_of(base: type[Kind], classes: dict[str, type], more: dict[str, dict[str, Any]]) -> dict[str, type[Kind]]:
    """A section for each kind, with a key for each number that its class declares.

    Args:
        base: what the sections are.
        classes: by kind, the class that it makes.
        more: by kind, keys that are no setting of the class, or not as it has them.
    """
    return {kind: _section(base, kind, makes, more.get(kind, {})) for kind, makes in classes.items()}


def _section(base: type[Kind], kind: str, makes: type, more: dict[str, Any]) -> type[Kind]:
    defaults = {field.name: field.default for field in dataclasses.fields(makes)}  # pyright: ignore[reportArgumentType]
    keys = {name: _key(setting, defaults[name]) for name, setting in settings_of(makes).items()}
    fields: dict[str, Any] = {"kind": (Literal[kind], ...)} | keys | more
    section = create_model(makes.__name__, __base__=base, **fields)
    section.makes = makes
    return section


def _key(setting: Setting, default: Any) -> tuple[Any, Any]:
    """A key's type and what is allowed for it."""
    low, high = (float(end) for end in setting.allowed[1:-1].split(","))
    bounds: dict[str, Any] = {"ge" if setting.allowed[0] == "[" else "gt": int(low) if setting.whole else low}
    if high < float("inf"):
        bounds["le" if setting.allowed[-1] == "]" else "lt"] = high
        words = f"in {setting.allowed}"
    else:
        words = f"{'at least' if setting.allowed[0] == '[' else 'above'} {low:g}"
    kind: Any = int if setting.whole else float
    default = ... if default is dataclasses.MISSING else default
    return kind | None if default is None else kind, Field(default, description=f"{setting.means}; {words}", **bounds)


def one_of(kinds: dict[str, type[Kind]]) -> Any:
    """The type of a table of any of these kinds."""
    return Annotated[Union[tuple(kinds.values())], Field(discriminator="kind")]  # noqa: UP007


def by_kind(base: type[Section]) -> dict[str, type[Section]]:
    """The sections that stand on a base, by their kind."""
    return {get_args(section.model_fields["kind"].annotation)[0]: section for section in base.__subclasses__()}


def _of_another_kind(section: type[Section], key: str) -> str:
    """Which kinds a key is for that is none of this one's."""
    base = section.__base__
    if base is None or not issubclass(base, Made):
        return ""
    kinds = [kind for kind, other in by_kind(base).items() if key in other.model_fields]
    return f"; it is for kind = {' or '.join(map(repr, kinds))}".replace("'", '"') if kinds else ""
