"""What every table of a problem file is, and tables of a kind, whose keys are the settings of a class of the library.

To make another class usable from a problem file, give it a kind in `RISKS`, `LOSSES` or `SOLVERS`.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, LiteralString, TypeVar, Union, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InputError
from ..losses import (
    ChiSquare,
    ExpectedCost,
    Hellinger,
    Imitation,
    JensenShannon,
    KullbackLeibler,
    NegativeEntropy,
    QuadraticDistance,
    ReverseKullbackLeibler,
    TotalVariation,
)
from ..risks import (
    ChiSquareBall,
    CVaR,
    EntropicVaR,
    Expectation,
    KullbackLeiblerBall,
    MeanSemideviation,
    Mixture,
    QuantileDeviation,
    TotalVariationBall,
    WorstCase,
)
from ..settings import Setting, settings_of
from ..solvers import BRPG, SampleAverage
from ..tables import suggest
from .memory import largest_sample

Level = Annotated[float, Field(ge=0.0, lt=1.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Name = str | int


def wrong(kind: LiteralString, words: LiteralString, **shown: Any) -> PydanticCustomError:
    """What to raise where a table says what it may not."""
    return PydanticCustomError(kind, words, shown)


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
                raise wrong("unknown_key", "unknown key {key}{hint}", key=repr(key), hint=hint)
        return value


class PartSection(Section):
    """A table of a kind that stands for a part of the library: `build()` gives the part."""

    makes: ClassVar[Any] = None
    kind: str

    def build(self, **more: Any) -> Any:
        """The part, with what the file leaves out as its class has it."""
        return self.makes(**(self.model_dump(exclude={"kind"}, exclude_none=True) | more))

    @classmethod
    def alone(cls) -> str | None:
        """The key that a number after the kind stands for, as in `cvar:0.9`."""
        settings = {} if cls.makes is None else settings_of(cls.makes)
        return next((name for name, setting in settings.items() if setting.alone), next(iter(settings), None))


class Checked(PartSection):
    """A table whose part can be made of it alone, and is: what its class refuses is refused here."""

    @model_validator(mode="after")
    def _sound(self) -> Checked:
        try:
            self.build()
        except InputError as error:
            raise wrong("settings", "{said}", said=str(error)) from None
        return self


Kind = TypeVar("Kind", bound=PartSection)


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
    if base is None or not issubclass(base, PartSection):
        return ""
    kinds = [kind for kind, other in by_kind(base).items() if key in other.model_fields]
    return f"; it is for kind = {' or '.join(map(repr, kinds))}".replace("'", '"') if kinds else ""


class RiskSection(Checked):
    """One kind of `[risk]`."""


class LossSection(PartSection):
    """One kind of `[loss]`."""

    def build(self, **more: Any) -> Any:
        """The loss; one with a target is given it."""
        name = getattr(self, "divergence", None)
        more |= {} if name is None else {"divergence": DIVERGENCES[name]()}
        return super().build(**more)


class SolverSection(Checked):
    """One kind of `[solver]`."""

    evaluation: int | None = None

    @property
    def grows(self) -> bool:
        """Whether its sample grows, up to `largest`."""
        return "largest" in type(self).model_fields

    def build(self, shape: tuple[int, int, int] = (1, 1, 1), **more: Any) -> Any:
        """The solver for a kernel of a shape."""
        return super().build(**({"largest": largest_sample(shape, self)} if self.grows else {}), **more)


RISKS = kinds_of(
    RiskSection,
    {
        "expectation": Expectation,
        "cvar": CVaR,
        "worst-case": WorstCase,
        "mean-semideviation": MeanSemideviation,
        "quantile-deviation": QuantileDeviation,
        "entropic-var": EntropicVaR,
        "kl-ball": KullbackLeiblerBall,
        "chi-square-ball": ChiSquareBall,
        "tv-ball": TotalVariationBall,
    },
    {},
)

DIVERGENCES = {
    "kullback-leibler": KullbackLeibler,
    "reverse-kullback-leibler": ReverseKullbackLeibler,
    "chi-square": ChiSquare,
    "total-variation": TotalVariation,
    "jensen-shannon": JensenShannon,
    "hellinger": Hellinger,
}

TARGET = {"target": (str, Field(description="file with `state`, `probability`, and `action` if it is over pairs"))}


def _usual(makes: type, key: str) -> Any:
    """The default of an argument of a class that makes its fields itself."""
    return inspect.signature(makes).parameters[key].default


LOSSES = kinds_of(
    LossSection,
    {
        "expected-cost": ExpectedCost,
        "negative-entropy": NegativeEntropy,
        "imitation": Imitation,
        "quadratic-distance": QuadraticDistance,
    },
    {
        "negative-entropy": {
            "over_states": (
                bool,
                Field(_usual(NegativeEntropy, "over_states"), description="of the states, not of the pairs"),
            )
        },
        "imitation": TARGET
        | {
            "divergence": (
                Literal[tuple(DIVERGENCES)],
                Field("kullback-leibler", description="how the difference is measured"),
            ),
            "floor": (float, Field(_usual(Imitation, "floor"), description="least probability of the target")),
        },
        "quadratic-distance": TARGET
        | {"weight": (float, Field(_usual(QuadraticDistance, "weight"), description="of the distance; above 0"))},
    },
)

SOLVERS = kinds_of(
    SolverSection,
    {"sample-average": SampleAverage, "brpg": BRPG},
    {
        "sample-average": {
            "largest": (
                int | None,
                Field(None, ge=1, description="most draws of a sample; when left out, so many as take up to 1 GiB"),
            )
        }
    },
)

if TYPE_CHECKING:
    Risk = RiskSection
    SimpleRisk = RiskSection
    Loss = LossSection
    Solver = SolverSection
else:
    # A mixture is one of its own parts' kinds, which have to be there first.
    SimpleRisk = one_of(RISKS)


class MixturePart(Section):
    """One risk of a mixture."""

    share: float = Field(description="the shares sum to 1")
    risk: SimpleRisk = Field(description="any risk but a mixture")


class MixtureSection(RiskSection):
    """A weighted sum of risks."""

    kind: Literal["mixture"]  # pyright: ignore[reportIncompatibleVariableOverride]
    parts: Annotated[list[MixturePart], Field(min_length=1, max_length=20)] = Field(description="its parts")

    def build(self, **more: Any) -> Any:
        """The mixture."""
        del more
        return Mixture([part.risk.build() for part in self.parts], [part.share for part in self.parts])


RISKS["mixture"] = MixtureSection


def _with_kind(value: Any) -> Any:
    """A table without a kind is of the usual one."""
    return {"kind": "sample-average", **value} if isinstance(value, dict) else value


if not TYPE_CHECKING:
    Risk, Loss = one_of(RISKS), one_of(LOSSES)
    Solver = Annotated[one_of(SOLVERS), BeforeValidator(_with_kind)]
