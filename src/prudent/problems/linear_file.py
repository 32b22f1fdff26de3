"""Problem files of linear systems, `kind = "linear"`: columns of a log, costs, noise and belief, checked."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ..errors import InputError
from ..linear import CutOff, LinearFamily
from ..occupancies import Truncated
from ..records import tree_leaves
from ..tables import LONGEST_NAME, RowOrder
from ..vector_log import VectorLog, read_vector_log
from .counted import Counted, Ways, counted_more, digest_of_arrays
from .describing import risk_name, solver_name
from .facts import joined_logs
from .schema import parse
from .sections import RISKS, SOLVERS, Level, NotNegative, Risk, Section, Solver, wrong
from .tabular_case import AbstractCase

if TYPE_CHECKING:
    from ..solvers import Solution

Named = dict[str, float]
Matrix = list[list[float]]
Positive = Annotated[float, Field(gt=0.0)]


class LinearData(Section):
    """The log and its columns."""

    log: str | list[str] | None = Field(
        default=None,
        description="a CSV, TSV, Parquet or JSON-lines file, or a list of them; may be left out where nothing was seen",
    )
    states: Annotated[list[str], Field(min_length=1, max_length=64)] = Field(description="columns of the state")
    actions: Annotated[list[str], Field(min_length=1, max_length=64)] = Field(description="columns of the action")
    next_states: list[str] | None = Field(
        default=None, description="columns of what came after; when left out, the state of the row below"
    )
    episode: str | None = Field(default=None, description="column that tells episodes apart")

    @model_validator(mode="after")
    def _once(self) -> LinearData:
        named = [*self.states, *self.actions, *(self.next_states or ()), *([self.episode] if self.episode else ())]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise wrong("columns", "column {name} is named twice; it has one meaning", name=repr(twice[:40]))
        odd = next((name for name in named if not 0 < len(name) <= LONGEST_NAME or not name.isprintable()), None)
        if odd is not None:
            said = "column {name} is no name: up to {most} characters that can be printed"
            raise wrong("columns", said, name=repr(odd[:40]), most=LONGEST_NAME)
        return self


class LinearCost(Section):
    """`(s - s*)' Q (s - s*) + (a - a*)' R (a - a*)` at each step."""

    states: Named | Matrix = Field(description="Q: a table `column = weight`, 0 when left out of it, or a matrix")
    actions: Named | Matrix = Field(description="R: the same; every action has a weight")
    targets: Named = Field(default={}, description="s* and a*, 0 when left out")


class LinearStart(Section):
    """The first state, a Gaussian."""

    mean: Named = Field(default={}, description="0 when left out")
    deviation: dict[str, NotNegative] = Field(default={}, description="standard deviations, 0 when left out")


class LinearNoise(Section):
    """What chance adds to each next state."""

    deviation: dict[str, Positive] = Field(description="standard deviation of each state")
    known: bool = Field(default=False, description="whether that is known; else it is the prior's mean, and learned")


class LinearBeliefSection(Section):
    """What is believed of [A B] before the log, and where it is cut off after it."""

    around: Literal["persistence", "zero"] = Field(
        default="persistence", description="the prior's mean: a state stays as it is, or goes to 0; actions do nothing"
    )
    spread: Positive = Field(
        default=3.0, description="standard deviation of each entry of [A B], in those of the noise of its row"
    )
    credible: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        default=0.95, description="share of the posterior that is kept, an ellipsoid about its mean"
    )


class LinearFile(Section):
    """The keys outside any table."""

    kind: Literal["linear"]
    title: Annotated[str, Field(max_length=200)] = Field(default="", description="heads the report")
    discount: Level = Field(description="in [0, 1)")
    horizon: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        default=None, description="the last step that counts; all when left out"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="the same seed gives the same bits")
    units: dict[str, Annotated[str, Field(max_length=40)]] = Field(
        default={}, description="of columns, as they are shown"
    )
    data: LinearData = Field(description="the log")
    cost: LinearCost = Field(description="what a step costs")
    start: LinearStart = Field(default=LinearStart(), description="where it begins")
    noise: LinearNoise = Field(description="what chance adds")
    belief: LinearBeliefSection = Field(default=LinearBeliefSection(), description="what is believed before the log")
    risk: Risk = Field(default=RISKS["cvar"](kind="cvar"), description="what is minimised over the posterior")
    solver: Solver = Field(default=SOLVERS["sample-average"](kind="sample-average"), description="how it is solved")


@dataclass(frozen=True)
class LinearFacts:
    """A problem file of a linear system with its log read.

    Attributes:
        file: the file's content.
        source: the problem file, for messages.
        log: all that was observed, or None.
        counted: the logs that make it up.
    """

    file: LinearFile
    source: str
    log: VectorLog | None
    counted: tuple[Counted, ...] = ()

    def with_log(self, sources: Any, again: bool = False, only_new: bool = False) -> LinearFacts:
        """The same problem after more has been observed; see `counted_more` for what was counted before."""
        logs, counted = counted_more(self.counted, sources, self.read, again, only_new)
        return replace(self, log=joined_logs([self.log, *logs]), counted=counted)

    def read(self, source: Any, order: RowOrder) -> VectorLog:
        """A log with the columns that the file names."""
        data = self.file.data
        log = read_vector_log(source, data.states, data.actions, data.next_states, data.episode)
        rows = np.concatenate([log.inputs(), np.asarray(log.next_state)], axis=1)
        first = order.add({}, {str(number): column for number, column in enumerate(rows.T)})
        return VectorLog(*(part[first:] for part in tree_leaves(log)))


@dataclass(frozen=True)
class LinearCase(AbstractCase):
    """A problem file of a linear system with its log, checked; `arguments()` are those of `pr.solve`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_linear_example(folder)[0])
    >>> case.states, case.actions, len(case.log)
    (('position', 'speed'), ('force',), 40)

    Attributes:
        facts: what the files say.
    """

    facts: LinearFacts

    @property
    def states(self) -> tuple[str, ...]:
        """Names by number."""
        return tuple(self.file.data.states)

    @property
    def actions(self) -> tuple[str, ...]:
        """Names by number."""
        return tuple(self.file.data.actions)

    @property
    def names(self) -> tuple[str, ...]:
        """Of states, then of actions."""
        return (*self.states, *self.actions)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Coordinates of state, action and next state."""
        return len(self.states), len(self.actions), len(self.states)

    def unit(self, name: str) -> str:
        """Of a column; empty where none is said."""
        return self.file.units.get(name, "")

    def family(self) -> LinearFamily:
        """The systems."""
        file, states, actions = self.file, self.states, self.actions
        targets = self._vector("cost.targets", file.cost.targets, self.names)
        spread = self._vector("start.deviation", file.start.deviation, states)
        try:
            return LinearFamily(
                self._matrix("cost.states", file.cost.states, states),
                self._matrix("cost.actions", file.cost.actions, actions),
                discount=file.discount,
                noise=self._noise() if file.noise.known else None,
                state_target=targets[: len(states)],
                action_target=targets[len(states) :],
                start_mean=self._vector("start.mean", file.start.mean, states),
                start_covariance=np.diag(spread**2),
            )
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None

    def belief(self) -> CutOff:
        """The posterior with the whole log, cut off."""
        family, said = self.family(), self.file.belief
        n, m = family.states, family.actions
        stays = np.eye(n) if said.around == "persistence" else np.zeros((n, n))
        mean = np.concatenate([stays, np.zeros((n, m))], axis=1)
        prior = family.prior(spread=said.spread, mean=mean, noise=None if self.file.noise.known else self._noise())
        return CutOff(prior if self.log is None else prior.update(self.log), credible=said.credible)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `pr.solve`."""
        file = self.file
        return {
            "model": self.family(),
            "belief": self.belief(),
            "risk": file.risk.build(),
            "solver": self.solver(),
            "occupancy": None if file.horizon is None else Truncated(file.horizon),
            "seed": file.seed,
        }

    def digest(self) -> str:
        """A number for the question asked."""
        said = self.file.model_dump(mode="json", exclude={"solver", "title", "units", "seed"})
        said["data"] = {key: said["data"][key] for key in ("states", "actions")}
        log = self.log
        arrays = () if log is None else (log.state, log.action, log.next_state)
        return digest_of_arrays(arrays, json.dumps(said, sort_keys=True))

    def describe(self) -> list[tuple[str, str]]:
        """What was understood, as (label, text)."""
        file, log = self.file, self.log
        shown = lambda names: ", ".join(f"{name} ({self.unit(name)})" if self.unit(name) else name for name in names)  # noqa: E731
        deviation = ", ".join(f"{name} {value:g}" for name, value in file.noise.deviation.items())
        kept = f"around {file.belief.around}, spread {file.belief.spread:g}, {file.belief.credible:.0%} of it kept"
        rows = [
            ("states", shown(self.states)),
            ("actions", shown(self.actions)),
            ("discount", f"{file.discount:g}" + ("" if file.horizon is None else f", steps 0 to {file.horizon}")),
            ("risk", risk_name(file.risk)),
            ("noise", f"{deviation} ({'known' if file.noise.known else 'on average, before the log'})"),
            ("belief", kept),
            ("log", "none: the prior alone" if log is None else f"{len(log):,} transitions"),
        ]
        if log is not None:
            size = log.inputs().shape[1]
            rows.append(("excitation", f"the log moves in {log.rank()} of {size} directions of (state, action)"))
            learned = np.asarray(self.belief().posterior.learned())  # pyright: ignore[reportAttributeAccessIssue]
            rows.append(("learned", f"at least {learned.min():.1%} of the prior's variance in every direction"))
        return [*rows, ("solver", solver_name(file.solver))]

    def seen(self) -> dict[str, Any]:
        """How many transitions."""
        return {} if self.log is None else {"transitions": len(self.log)}

    def rivals(self, arguments: dict[str, Any], iterations: int) -> dict[str, tuple[Any, str]]:
        """Least squares, the posterior mean, and cautious in closed form."""
        from ..linear import linear_plan, robust_gain  # imports JAX

        family, belief, log = arguments["model"], arguments["belief"], self.log
        thetas = {"plan for the posterior mean": belief.posterior.mean}
        if log is not None:
            noise = () if self.file.noise.known else (log.residual_covariance,)
            fitted = lambda: np.concatenate([log.least_squares(), *(each() for each in noise)], axis=1)  # noqa: E731
            thetas = {"certainty equivalence": fitted} | thetas
        made = {}
        for name, theta in thetas.items():
            with contextlib.suppress(InputError):
                made[name] = linear_plan(family, np.asarray(theta())).policy
        made["cautious gain"] = robust_gain(family, belief, seed=self.file.seed)
        return {name: (policy, "PLANNED") for name, policy in made.items()}

    def unknowns(self, shape: tuple[int, ...]) -> dict[str, int]:
        """The entries of [A B]."""
        states, names = self.states, self.names
        entries = ((row, column) for row in range(len(states)) for column in range(len(names)))
        return {f"{names[j]} to {states[i]}": int(np.ravel_multi_index((i, j), shape)) for i, j in entries}

    def driver_name(self, *place: int) -> str:
        """An entry of [A B], or of the covariance of the noise."""
        (row, column), names = place, self.names
        if column < len(names):
            return f"{names[column]} → {self.states[row]}"
        return f"noise of {self.states[row]}, {self.states[column - len(names)]}"

    def why_infinite(self, solution: Solution) -> str:
        """At how many draws the closed loop is unstable."""
        return (
            f"the closed loop of the best gain found is unstable at {solution.evaluation.notes.unstable}, where its "
            "cost is infinite, and so is the risk: more data, a smaller belief.credible or a horizon may give a finite "
            "one"
        )

    def _after(self, facts: LinearFacts) -> LinearCase:
        return LinearCase(facts)

    def _noise(self) -> np.ndarray:
        """The covariance that the file's deviations say."""
        deviation = self.file.noise.deviation
        names = self._vector("noise.deviation", deviation, self.states)
        lost = [name for name in self.states if name not in deviation]
        if lost:
            every = ", ".join(self.states)
            raise InputError(f"{self.source}: noise.deviation has no {lost[0]}; give one for each of {every}")
        return np.diag(names**2)

    def _vector(self, key: str, said: Named, names: tuple[str, ...]) -> np.ndarray:
        """Numbers by name, in the order of the columns."""
        self.require_known(key, said, names)
        return np.array([float(said.get(name, 0.0)) for name in names])

    def _matrix(self, key: str, said: Named | Matrix, names: tuple[str, ...]) -> np.ndarray:
        if isinstance(said, dict):
            return np.diag(self._vector(key, said, names))
        if len(said) != len(names) or any(len(row) != len(names) for row in said):
            raise InputError(f"{self.source}: {key} must have {len(names)} rows and columns, one for each of {names}")
        return np.array(said, float)

    def require_known(self, key: str, said: dict[str, Any], names: tuple[str, ...]) -> None:
        """Refuse a name that is none of these."""
        stray = [name for name in said if name not in names]
        if stray:
            raise InputError(f"{self.source}: {key} names {stray[0][:40]!r}, which is none of {', '.join(names)}")


def linear_case(
    content: dict[str, Any], path: Path, text: str, frames: dict[str, Any], changes: tuple[str, ...] = ()
) -> LinearCase:
    """A problem file's content with the log that it names, checked."""
    facts = LinearFacts(parse(content, str(path), text, LinearFile, changes), str(path), None)
    given, folder = facts.file.data.log, path.resolve().parent
    several = [] if given is None else [given] if isinstance(given, str) else list(given)
    placed = [frames.get(each, folder / each) for each in several]
    logs, known = counted_more((), placed, facts.read, ways=Ways("", "leave one of them out"))
    case = LinearCase(replace(facts, log=joined_logs(logs), counted=known))
    case.require_known("units", case.file.units, case.names)
    case.belief()
    return case
