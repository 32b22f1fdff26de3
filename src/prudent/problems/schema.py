"""What a problem file may say: every key with its type, its range, its default and a line on what it means.

Tables of a kind (`[risk]`, `[loss]`, `[solver]`) are made from the classes that they stand for. To make another class
usable from a problem file, give it a kind in `RISKS`, `LOSSES` or `SOLVERS`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

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
from ..solvers import BRPG, SampleAverage
from ..tables import MOST_NAMES
from .beside import CertificateSection, Layout, Rivals
from .limits import LimitKeys
from .memory import largest_sample
from .rules import RuleOrWord
from .sections import Checked, Level, Made, Name, Section, kinds_of, one_of


class RiskSection(Checked):
    """One kind of `[risk]`."""


class LossSection(Made):
    """One kind of `[loss]`."""

    def made(self, **more: Any) -> Any:
        """The loss; one with a target is given it."""
        name = getattr(self, "divergence", None)
        more |= {} if name is None else {"divergence": DIVERGENCES[name]()}
        return super().made(**more)


class SolverSection(Checked):
    """One kind of `[solver]`."""

    evaluation: int | None = None

    @property
    def grows(self) -> bool:
        """Whether its sample grows, up to `largest`."""
        return "largest" in type(self).model_fields

    def made(self, shape: tuple[int, int, int] = (1, 1, 1), **more: Any) -> Any:
        """The solver for a kernel of a shape."""
        return super().made(**({"largest": largest_sample(shape, self)} if self.grows else {}), **more)


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

    def made(self, **more: Any) -> Any:
        """The mixture."""
        del more
        return Mixture([part.risk.made() for part in self.parts], [part.share for part in self.parts])


RISKS["mixture"] = MixtureSection


def _with_kind(value: Any) -> Any:
    """A table without a kind is of the usual one."""
    return {"kind": "sample-average", **value} if isinstance(value, dict) else value


if not TYPE_CHECKING:
    Risk, Loss = one_of(RISKS), one_of(LOSSES)
    Solver = Annotated[one_of(SOLVERS), BeforeValidator(_with_kind)]

Costs = dict[str, dict[str, float]]
Successors = dict[str, dict[str, list[Name]]]


class LimitSection(LimitKeys):
    """One `[[limit]]`: what else a policy may lose."""

    risk: Risk | None = Field(default=None, description="of it over the posterior; `cvar` of level 0.9 when left out")


class Data(Section):
    """The files, relative to the problem file."""

    transitions: str | Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="the log: a file, `minari:name`, or a list of them; may be left out where nothing was seen",
    )
    columns: dict[
        Literal["state", "action", "next_state", "episode", "unit", "time", "count", "cost", "reward"], str
    ] = Field(
        default={},
        description='what columns of the log are called, where that is something else, such as `{ state = "s" }`; '
        "an empty text leaves a column alone",
    )
    trajectories: bool = Field(
        default=False,
        description="rows of the log are consecutive steps without `next_state`: it is the state of the row behind, in "
        "the same `episode`, or `unit`, if there is such a column",
    )
    again: bool = Field(
        default=False, description="count a log that is listed twice, or has the rows of another one, as often as it is"
    )
    costs: str | Costs | None = Field(
        default=None,
        description="a file with `state`, `action`, `cost`, and `next_state` if costs differ by it; or a table "
        "`state.action = cost`; where it has no cost of a pair, the log's column `cost`, or its `reward` as a negative "
        "cost",
    )
    default_cost: float | None = Field(
        default=None, description="the cost where none is given, but of terminal states; when left out, that is refused"
    )


class PosteriorSection(Section):
    """What is believed of the transition probabilities before the log."""

    kind: Literal["pooled", "dirichlet", "outcomes"] | None = Field(
        default=None,
        description="`pooled` (when left out, unless `observed` or a `prior` for a list or rule asks for the next), "
        "independent `dirichlet` rows, or `outcomes` with laws that rows share",
    )
    prior: Annotated[float, Field(gt=0.0, le=1e9)] | None = Field(
        default=None,
        description="for `dirichlet` and `outcomes`: pseudo-count of every successor or outcome; 1 (uniform) when left "
        "out",
    )
    outcomes: str | None = Field(
        default=None,
        description="for `outcomes`: a file with `state`, `action`, `outcome`, `next_state`, and `law` if there are "
        "several: where each outcome leads; with `cost`, what it costs, in the place of `data.costs`",
    )
    outcomes_seen: str | None = Field(
        default=None,
        description="for `outcomes`: a file with `outcome`, and `count` if rows count more than once: what was seen of "
        "outcomes beside the log; where there are several laws, with `law`, or `state` and `action`",
    )
    support: Literal["observed", "listed", "rule", "all"] = Field(
        default="all",
        description="which successors a pair may have: all states, those in `successors`, those that `rule` allows, or "
        "those in the log (any state for a pair never seen), which takes one observation for a certainty",
    )
    successors: str | Successors | None = Field(
        default=None,
        description="for `listed`: a file with `state`, `action`, `next_state`, or a table `state.action = [...]`; "
        "for `rule`: the same for pairs to which the rule does not apply",
    )
    rule: RuleOrWord | None = Field(
        default=None, description='for `rule`: `"adjacent"`, or a table of bounds on how far one step may lead'
    )
    never_entered: list[Name] = Field(default=[], description="states that no step leads to; one may begin there")

    @model_validator(mode="after")
    def _lists(self) -> PosteriorSection:
        by_outcome = self.kind == "outcomes"
        stray = [key for key in ("support", "successors", "rule", "never_entered") if key in self.model_fields_set]
        if by_outcome and stray:
            raise PydanticCustomError(
                "support", "the outcomes say where a pair may lead; remove {key}", {"key": stray[0]}
            )
        if by_outcome != (self.outcomes is not None) or (self.outcomes_seen is not None and not by_outcome):
            raise PydanticCustomError(
                "support", 'kind = "outcomes" and the file outcomes go together; give both, or neither', {}
            )
        wanted = {"listed": "successors", "rule": "rule"}
        for support, key in wanted.items():
            given = getattr(self, key) is not None
            if self.support == support and not given:
                raise PydanticCustomError(
                    "support", 'support = "{support}" needs {key}; give {key}', {"support": support, "key": key}
                )
            if given and self.support != support and (self.support, key) != ("rule", "successors"):
                raise PydanticCustomError(
                    "support",
                    'support and {key} do not go together; set support = "{support}"',
                    {"support": support, "key": key},
                )
        stray = "prior" if self.prior is not None else 'support = "observed"' if self.support == "observed" else None
        if self.pooled and stray:
            fix = '{stray} is for independent rows; remove it, or set kind = "dirichlet"'
            raise PydanticCustomError("pooled", fix, {"stray": stray})
        return self

    @property
    def pooled(self) -> bool:
        """Whether rows learn from one another; when nothing is said, unless a pseudo-count makes sense without it."""
        if self.kind is not None:
            return self.kind == "pooled"
        return self.support == "all" or (self.support != "observed" and self.prior is None)


class ProblemFile(Section):
    """The keys outside any table."""

    title: Annotated[str, Field(max_length=200)] = Field(default="", description="heads the report")
    states: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | dict[str, str] | None = Field(
        default=None,
        description="names in their order, or how many there are; when left out, those in the files. A table "
        '`{ 0 = "keep", 1 = "replace" }` names what the files have numbers, or other codes, for',
    )
    actions: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | dict[str, str] | None = Field(
        default=None, description="the same for actions"
    )
    discount: Level | None = Field(default=None, description="in [0, 1); required, unless a family brings its own")
    start: Name | list[float] | dict[str, float] | None = Field(
        default=None,
        description="a state, a list with a probability for each, or a table `state = probability`; required, "
        "unless a family brings its own",
    )
    terminal: list[Name] = Field(default=[], description="states that are never left; their costs are 0 unless given")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="the same seed gives the same bits")
    family: str | None = Field(
        default=None, description="`module:function` of a model of your own; imported only with `--trust`"
    )
    options: dict[str, Any] = Field(default={}, description="arguments by name for the family's function")
    data: Data = Field(default=Data(), description="the files")
    posterior: PosteriorSection = Field(default=PosteriorSection(), description="what is believed before the log")
    risk: Risk = Field(default=RISKS["cvar"](kind="cvar"), description="what is minimised over the posterior")
    loss: Loss = Field(
        default=LOSSES["expected-cost"](kind="expected-cost"), description="what a policy loses in a known model"
    )
    limit: Annotated[list[LimitSection], Field(max_length=20)] = Field(default=[], description="what else is limited")
    solver: Solver = Field(default=SOLVERS["sample-average"](kind="sample-average"), description="how it is solved")
    rivals: Rivals = Field(default=Rivals(), description="what it is compared with")
    certificate: CertificateSection = Field(default=CertificateSection(), description="what is proved of it")
    layout: Layout = Field(default=Layout(), description="how it is drawn")

    @field_validator("family")
    @classmethod
    def _two_parts(cls, value: str | None) -> str | None:
        parts = (value or "a:b").split(":")
        if len(parts) != 2 or not all(name.isidentifier() for part in parts for name in part.split(".")):
            raise PydanticCustomError("family", "family is written module:function", {})
        return value

    @model_validator(mode="after")
    def _one_model(self) -> ProblemFile:
        if self.family is None and self.options:
            raise PydanticCustomError("options", "options are for a family's function, and no family is named", {})
        own = {
            "discount": self.discount,
            "start": self.start,
            "data.costs": self.data.costs,
            "data.default_cost": self.data.default_cost,
            "posterior.successors": self.posterior.successors,
            "posterior.rule": self.posterior.rule,
            "posterior.outcomes": self.posterior.outcomes,
            "posterior.never_entered": self.posterior.never_entered or None,
            "terminal": self.terminal or None,
        }
        for name, given in own.items():
            if self.family is not None and given is not None:
                raise PydanticCustomError("family", "the family brings its own {name}; remove it", {"name": name})
            if self.family is None and given is None and name in ("discount", "start"):
                raise PydanticCustomError("required", "{name} is missing", {"name": name})
        return self

    @model_validator(mode="after")
    def _limits_alone(self) -> ProblemFile:
        if self.limit and self.solver.kind != "sample-average":
            raise PydanticCustomError("limit", "a limit needs the solver sample-average; leave solver.kind out", {})
        if self.limit and self.certificate.prove:
            raise PydanticCustomError(
                "limit",
                "certificate.prove knows no limits; leave it out, the run's own bound is about policies in them",
                {},
            )
        return self
