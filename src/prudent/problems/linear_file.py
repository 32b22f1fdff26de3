"""Problem files of linear systems, `kind = "linear"`: columns of a log, costs, noise and belief, checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InputError
from ..linear import CutOff, LinearFamily
from ..occupancies import Truncated
from ..tables import LONGEST_NAME
from ..vector_log import VectorLog, read_vector_log
from .describing import risk_name, solver_name
from .facts import Counted, refuse_repeats
from .schema import RISKS, SOLVERS, Risk, Solver
from .sections import Level, NotNegative, Section
from .toml_file import validation_message

Named = dict[str, float]
Matrix = list[list[float]]
Positive = Annotated[float, Field(gt=0.0)]


class LinearData(Section):
    """The log and its columns."""

    log: str | list[str] | None = Field(
        default=None,
        description="a CSV, TSV, Parquet or JSON-lines file, `minari:name`, or a list of them; may be left out where "
        "nothing was seen",
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
            shown = {"name": repr(twice[:40])}
            raise PydanticCustomError("columns", "column {name} is named twice; it has one meaning", shown)
        odd = next((name for name in named if not 0 < len(name) <= LONGEST_NAME or not name.isprintable()), None)
        if odd is not None:
            said = "column {name} is no name: up to {most} characters that can be printed"
            raise PydanticCustomError("columns", said, {"name": repr(odd[:40]), "most": LONGEST_NAME})
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


def parse_linear(content: dict[str, Any], source: str, text: str = "") -> LinearFile:
    """Checked content from plain values; the first thing wrong is refused."""
    try:
        return LinearFile.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{source}{validation_message(error, text)}") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply") from None


@dataclass(frozen=True)
class LinearCase:
    """A problem file of a linear system with its log, checked; `arguments()` are those of `pr.solve`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_linear_example(folder)[0])
    >>> case.states, case.actions, len(case.log)
    (('position', 'speed'), ('force',), 40)

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

    @property
    def states(self) -> tuple[str, ...]:
        """Names by number."""
        return tuple(self.file.data.states)

    @property
    def actions(self) -> tuple[str, ...]:
        """Names by number."""
        return tuple(self.file.data.actions)

    def unit(self, name: str) -> str:
        """Of a column; empty where none is said."""
        return self.file.units.get(name, "")

    def family(self) -> LinearFamily:
        """The systems."""
        file, states, actions = self.file, self.states, self.actions
        deviation = self._vector("noise.deviation", file.noise.deviation, states, whole=True)
        targets = self._vector("cost.targets", file.cost.targets, (*states, *actions))
        spread = self._vector("start.deviation", file.start.deviation, states)
        try:
            return LinearFamily(
                self._matrix("cost.states", file.cost.states, states),
                self._matrix("cost.actions", file.cost.actions, actions),
                discount=file.discount,
                noise=np.diag(deviation**2) if file.noise.known else None,
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
        mean = np.concatenate(
            [np.eye(n) if said.around == "persistence" else np.zeros((n, n)), np.zeros((n, m))], axis=1
        )
        deviation = self._vector("noise.deviation", self.file.noise.deviation, self.states, whole=True)
        noise = None if self.file.noise.known else np.diag(deviation**2)
        prior = family.prior(spread=said.spread, mean=mean, noise=noise)
        return CutOff(prior if self.log is None else prior.update(self.log), credible=said.credible)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `pr.solve`."""
        file = self.file
        return {
            "model": self.family(),
            "belief": self.belief(),
            "risk": file.risk.made(),
            "solver": self.solver(),
            "occupancy": None if file.horizon is None else Truncated(file.horizon),
            "seed": file.seed,
        }

    def solver(self) -> Any:
        """The solver that the file asks for."""
        return self.file.solver.made((len(self.states), len(self.actions), len(self.states)))

    def with_log(self, sources: Any, again: bool = False) -> LinearCase:
        """The same problem after more has been observed; a log that was counted before is refused, or counts again."""
        several = sources if isinstance(sources, list | tuple) else [sources]
        logs = [_read(self.file, each) for each in several]
        more = tuple(_counted(each, log) for each, log in zip(several, logs, strict=True))
        if not again:
            refuse_repeats(more, self.counted, "count it all the same with --again (again=True)")
        return dataclasses.replace(self, log=_joined(self.log, logs), counted=self.counted + more)

    def digest(self) -> str:
        """A number for the question asked: log, model, risk; not how it is solved."""
        said = self.file.model_dump(mode="json", exclude={"solver", "title", "units", "seed"})
        said["data"] = {key: said["data"][key] for key in ("states", "actions")}
        digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
        log = self.log
        for array in () if log is None else (log.state, log.action, log.next_state):
            digest.update(np.ascontiguousarray(array).tobytes() + b"|")
        return digest.hexdigest()

    def describe(self) -> list[tuple[str, str]]:
        """What was understood, as (label, text)."""
        file, log = self.file, self.log
        shown = lambda names: ", ".join(f"{name} ({self.unit(name)})" if self.unit(name) else name for name in names)  # noqa: E731
        deviation = ", ".join(f"{name} {value:g}" for name, value in file.noise.deviation.items())
        belief = self.belief()
        rows = [
            ("states", shown(self.states)),
            ("actions", shown(self.actions)),
            ("discount", f"{file.discount:g}" + ("" if file.horizon is None else f", steps 0 to {file.horizon}")),
            ("risk", risk_name(file.risk)),
            ("noise", f"{deviation} ({'known' if file.noise.known else 'on average, before the log'})"),
            (
                "belief",
                f"around {file.belief.around}, spread {file.belief.spread:g}, {file.belief.credible:.0%} of it kept",
            ),
            ("log", "none: the prior alone" if log is None else f"{len(log):,} transitions"),
        ]
        if log is not None:
            size = log.inputs().shape[1]
            rows.append(("excitation", f"the log moves in {log.rank()} of {size} directions of (state, action)"))
            learned = np.asarray(belief.posterior.learned())  # pyright: ignore[reportAttributeAccessIssue]
            rows.append(("learned", f"at least {learned.min():.1%} of the prior's variance in every direction"))
        return [*rows, ("solver", solver_name(file.solver))]

    def _vector(self, key: str, said: Named, names: tuple[str, ...], whole: bool = False) -> np.ndarray:
        """Numbers by name, in the order of the columns."""
        self._known(key, said, names)
        lost = [name for name in names if name not in said]
        if whole and lost:
            raise InputError(f"{self.source}: {key} has no {lost[0]}; give one for each of {', '.join(names)}")
        return np.array([float(said.get(name, 0.0)) for name in names])

    def _matrix(self, key: str, said: Named | Matrix, names: tuple[str, ...]) -> np.ndarray:
        if isinstance(said, dict):
            return np.diag(self._vector(key, said, names))
        if len(said) != len(names) or any(len(row) != len(names) for row in said):
            raise InputError(f"{self.source}: {key} must have {len(names)} rows and columns, one for each of {names}")
        return np.array(said, float)

    def _known(self, key: str, said: dict[str, Any], names: tuple[str, ...]) -> None:
        stray = [name for name in said if name not in names]
        if stray:
            raise InputError(f"{self.source}: {key} names {stray[0][:40]!r}, which is none of {', '.join(names)}")


def linear_case(
    content: dict[str, Any], source: str, folder: Path, text: str = "", frames: dict[str, Any] | None = None
) -> LinearCase:
    """A problem file's content with the log that it names, checked."""
    file = parse_linear(content, source, text)
    given = file.data.log
    several = [] if given is None else [given] if isinstance(given, str) else list(given)
    known = frames or {}
    placed = [known.get(each, each if each.startswith("minari:") else folder / each) for each in several]
    logs = [_read(file, each) for each in placed]
    counted = tuple(_counted(each, log) for each, log in zip(placed, logs, strict=True))
    for k, one in enumerate(counted):
        refuse_repeats((one,), counted[:k], "name it once")
    case = LinearCase(file, source, _joined(None, logs), counted)
    case._known("units", file.units, (*case.states, *case.actions))
    case.belief()
    return case


def _read(file: LinearFile, source: Any) -> VectorLog:
    data = file.data
    return read_vector_log(source, data.states, data.actions, data.next_states, data.episode)


def _joined(before: VectorLog | None, logs: list[VectorLog]) -> VectorLog | None:
    for log in logs:
        before = log if before is None else before.joined(log)
    return before


def _counted(source: Any, log: VectorLog) -> Counted:
    digest = hashlib.sha256()
    for part in (log.state, log.action, log.next_state):
        digest.update(np.ascontiguousarray(part).tobytes() + b"|")
    named = str(source) if isinstance(source, str | Path) else "the frame"
    path = named if named.startswith("minari:") else str(Path(named).resolve())
    return Counted(named, path if isinstance(source, str | Path) else None, digest.hexdigest())
