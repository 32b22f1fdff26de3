"""What a problem file may say: every key with its type, its range, its default and a line on what it means."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ..tables.names import MOST_NAMES
from .rules import RuleOrWord
from .section import Level, Name, NotNegative, Positive, Section, by_kind


class RiskSection(Section):
    """One kind of `[risk]`."""


class LossSection(Section):
    """One kind of `[loss]`."""


class SolverSection(Section):
    """One kind of `[solver]`."""


class Expectation(RiskSection):
    """The posterior mean of the loss."""

    kind: Literal["expectation"]
    number: ClassVar[str | None] = None


class CVaR(RiskSection):
    """The mean of the worst `1 - level` share of the posterior."""

    kind: Literal["cvar"]
    level: Level = Field(default=0.9, description="in [0, 1); 0 is the mean, 0.9 the mean of the worst tenth")
    number: ClassVar[str | None] = "level"


class WorstCase(RiskSection):
    """The largest loss of the sample."""

    kind: Literal["worst-case"]
    number: ClassVar[str | None] = None


class MeanSemideviation(RiskSection):
    """The mean plus `weight` times the semideviation of `order`."""

    kind: Literal["mean-semideviation"]
    weight: Annotated[float, Field(ge=0.0, le=1.0)] = Field(default=1.0, description="in [0, 1]")
    order: Annotated[float, Field(ge=1.0, le=1e6)] = Field(default=1.0, description="at least 1")
    number: ClassVar[str | None] = "weight"


class QuantileDeviation(RiskSection):
    """The mean plus `weight` times the deviation from the quantile of `level`."""

    kind: Literal["quantile-deviation"]
    level: Level = Field(default=0.9, description="in [0, 1)")
    weight: NotNegative = Field(default=1.0, description="in [0, 1 / (1 - level)]")
    number: ClassVar[str | None] = "level"

    @model_validator(mode="after")
    def _coherent(self) -> QuantileDeviation:
        if self.weight * (1.0 - self.level) > 1.0 + 1e-12:
            raise PydanticCustomError(
                "weight", "weight must be at most 1 / (1 - level) = {most}", {"most": f"{1 / (1 - self.level):g}"}
            )
        return self


class EntropicVaR(RiskSection):
    """The entropic value at risk, an upper bound of CVaR at the same level."""

    kind: Literal["entropic-var"]
    level: Level = Field(default=0.9, description="in [0, 1)")
    number: ClassVar[str | None] = "level"


class KullbackLeiblerBall(RiskSection):
    """The worst mean over reweightings within `radius` nats of the posterior."""

    kind: Literal["kl-ball"]
    radius: NotNegative = Field(description="at least 0")
    number: ClassVar[str | None] = "radius"


class ChiSquareBall(RiskSection):
    """The worst mean over reweightings within a chi-square distance of `radius`."""

    kind: Literal["chi-square-ball"]
    radius: NotNegative = Field(description="at least 0")
    number: ClassVar[str | None] = "radius"


class TotalVariationBall(RiskSection):
    """The worst mean over reweightings that move at most `radius` of the posterior's mass."""

    kind: Literal["tv-ball"]
    radius: Annotated[float, Field(ge=0.0, le=1.0)] = Field(description="in [0, 1]")
    number: ClassVar[str | None] = "radius"


Simple = (
    Expectation
    | CVaR
    | WorstCase
    | MeanSemideviation
    | QuantileDeviation
    | EntropicVaR
    | KullbackLeiblerBall
    | ChiSquareBall
    | TotalVariationBall
)


class Part(Section):
    """One risk of a mixture."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = Field(description="the shares sum to 1")
    risk: Annotated[Simple, Field(discriminator="kind")] = Field(description="any risk but a mixture")


class Mixture(RiskSection):
    """A weighted sum of risks."""

    kind: Literal["mixture"]
    parts: Annotated[list[Part], Field(min_length=1, max_length=20)] = Field(description="its parts")
    number: ClassVar[str | None] = None

    @model_validator(mode="after")
    def _whole(self) -> Mixture:
        total = sum(part.share for part in self.parts)
        if abs(total - 1.0) > 1e-9:
            raise PydanticCustomError("shares", "the shares sum to {total}, not to 1", {"total": f"{total:.9g}"})
        return self


Risk = Annotated[Simple | Mixture, Field(discriminator="kind")]


class ExpectedCost(LossSection):
    """The expected discounted cost."""

    kind: Literal["expected-cost"]


class NegativeEntropy(LossSection):
    """Minus the entropy of the visited states: low where everything is explored evenly."""

    kind: Literal["negative-entropy"]


class Imitation(LossSection):
    """The divergence from an expert's visits."""

    kind: Literal["imitation"]
    target: str = Field(description="file with the columns `state`, `probability`, and `action` if it is over pairs")
    divergence: Literal[
        "kullback-leibler", "reverse-kullback-leibler", "chi-square", "total-variation", "jensen-shannon", "hellinger"
    ] = Field(default="kullback-leibler", description="how the difference is measured")
    floor: Annotated[float, Field(ge=0.0, lt=1.0)] = Field(default=1e-6, description="least probability of the target")


class QuadraticDistance(LossSection):
    """`weight` times the squared distance from a target of visits."""

    kind: Literal["quadratic-distance"]
    target: str = Field(description="file with the columns `state`, `probability`, and `action` if it is over pairs")
    weight: Positive = Field(default=1.0, description="greater than 0")


Loss = Annotated[ExpectedCost | NegativeEntropy | Imitation | QuadraticDistance, Field(discriminator="kind")]

Costs = dict[str, dict[str, float]]
Successors = dict[str, dict[str, list[Name]]]


class Data(Section):
    """The files, relative to the problem file."""

    transitions: str | Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        default=None,
        description="the log: a file, `minari:name`, or a list of them; may be left out where nothing was seen",
    )
    again: bool = Field(
        default=False, description="count a log that is listed twice, or has the rows of another one, as often as it is"
    )
    costs: str | Costs | None = Field(
        default=None,
        description="a file with `state`, `action`, `cost`, and `next_state` if costs differ by it; or a table "
        "`state.action = cost`; when left out, the log's column `cost`",
    )
    default_cost: float | None = Field(
        default=None, description="the cost where none is given, but of terminal states; when left out, that is refused"
    )


class Posterior(Section):
    """What is believed of the transition probabilities before the log."""

    kind: Literal["pooled", "dirichlet"] | None = Field(
        default=None, description="`pooled` (when left out, where `support` is `all`) or independent `dirichlet` rows"
    )
    prior: Annotated[float, Field(gt=0.0, le=1e9)] | None = Field(
        default=None, description="for `dirichlet`: pseudo-count of every successor; 1 (uniform) when left out"
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
    def _lists(self) -> Posterior:
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
        """Whether rows learn from one another."""
        return self.support == "all" if self.kind is None else self.kind == "pooled"


# What pr.solve draws when the file does not say.
USUAL_FIRST, USUAL_LARGEST, USUAL_SAMPLES, USUAL_EVALUATION = 128, 8192, 30, 1000

Iterations = Annotated[int, Field(ge=0, le=10_000_000)]
Draws = Annotated[int, Field(ge=1, le=10_000_000)]
Evaluation = Annotated[int, Field(ge=2, le=10_000_000)]


class SampleAverage(SolverSection):
    """Descent on a fixed posterior sample, from many starts, on growing samples: nothing to tune."""

    kind: Literal["sample-average"]
    iterations: Iterations | None = Field(default=None, description="iterations at most, over all samples")
    samples: Draws | None = Field(default=None, description="posterior draws of the first sample")
    largest: Draws | None = Field(
        default=None, description="most draws of a sample; when left out, fewer for large models, to take up to 1 GiB"
    )
    starts: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="policies the search begins from"
    )
    tolerance: NotNegative | None = Field(
        default=None, description="converged when the gain that is left, to first order, is this share of the loss"
    )
    evaluation: Evaluation | None = Field(default=None, description="fresh draws on which the risk is reported")

    @model_validator(mode="after")
    def _grows(self) -> SampleAverage:
        first = USUAL_FIRST if self.samples is None else self.samples
        if self.largest is not None and self.largest < first:
            raise PydanticCustomError(
                "largest", "largest is below samples, which is {first}; lower samples, too", {"first": first}
            )
        return self


class BRPG(SolverSection):
    """The paper's algorithm: a gradient step an iteration, each on fresh draws."""

    kind: Literal["brpg"]
    iterations: Iterations | None = Field(default=None, description="iterations at most")
    samples: Draws | None = Field(default=None, description="posterior draws an iteration")
    step: Positive | None = Field(default=None, description="length of a gradient step")
    tolerance: NotNegative | None = Field(
        default=None, description="converged when the gradient's norm is at most this; 0 never stops early"
    )
    evaluation: Evaluation | None = Field(default=None, description="fresh draws on which the risk is reported")


def _with_kind(value: Any) -> Any:
    """A table without a kind is of the usual one."""
    return {"kind": "sample-average", **value} if isinstance(value, dict) else value


Solver = Annotated[
    Annotated[SampleAverage | BRPG, Field(discriminator="kind")],
    BeforeValidator(_with_kind),
]


class Rivals(Section):
    """The plans the policy is compared with in the report."""

    robust_radius: NotNegative | None = Field(
        default=None,
        description="radius of the robust plan's Kullback-Leibler balls, in nats; when left out, one that "
        "holds each row with a probability of 0.9",
    )


class Layout(Section):
    """How the report draws the policy."""

    grid: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="`[rows, columns]` where the states form a grid, row by row"
    )
    directions: list[Literal["left", "down", "right", "up"]] | None = Field(
        default=None, description="which way each action points on the grid"
    )


class ProblemFile(Section):
    """The keys outside any table."""

    title: Annotated[str, Field(max_length=200)] = Field(default="", description="heads the report")
    states: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | None = Field(
        default=None, description="names in their order, or how many there are; when left out, those in the files"
    )
    actions: Annotated[int, Field(ge=1, le=MOST_NAMES)] | list[Name] | None = Field(
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
    posterior: Posterior = Field(default=Posterior(), description="what is believed before the log")
    risk: Risk = Field(default=CVaR(kind="cvar"), description="what is minimised over the posterior")
    loss: Loss = Field(default=ExpectedCost(kind="expected-cost"), description="what a policy loses in a known model")
    solver: Solver = Field(default=SampleAverage(kind="sample-average"), description="how it is solved")
    rivals: Rivals = Field(default=Rivals(), description="what it is compared with")
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
            "posterior.never_entered": self.posterior.never_entered or None,
            "terminal": self.terminal or None,
        }
        for name, given in own.items():
            if self.family is not None and given is not None:
                raise PydanticCustomError("family", "the family brings its own {name}; remove it", {"name": name})
            if self.family is None and given is None and name in ("discount", "start"):
                raise PydanticCustomError("required", "{name} is missing", {"name": name})
        return self


RISKS, LOSSES, SOLVERS = by_kind(RiskSection), by_kind(LossSection), by_kind(SolverSection)
