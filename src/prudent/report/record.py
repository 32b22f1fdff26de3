"""The record of a run: what `solution.json` holds, and what command line, comparison and page read.

The numbers of a record are its JSON; its arrays are kept beside it and are not in the JSON. A number that is not known,
NaN and infinities included, is None. A new number is a field here, filled in below, and a place in `report.html`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from ..errors import InputError
from ..evaluation import Evaluation
from ..problems import THIN, AbstractCase, Case, loss_name, risk_name
from ..risks import CVaR
from ..solvers import Solution
from .decision import DecisionRecord
from .fitting import FitRecord
from .limits import FrontierRecord, LimitRecord, WorthRecord
from .linear import LinearRecord
from .parts import (
    Array,
    CertificateRecord,
    Count,
    CoverageRecord,
    Difference,
    DriverRecord,
    EvidenceRecord,
    History,
    Number,
    Part,
    ProblemRecord,
    ProofRecord,
    Several,
    Table,
    Two,
    coverage_record,
    require_pairs,
)

PACKAGES = ("prudent", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "pyarrow", "pydantic", "safetensors")

# An argument of a function as the command line and the problem file know it; any other is a key of [solver].
ARGUMENTS = {"resume": "prudent continue"}

# What a record repeats of a certificate.
CERTIFIED = ("lower_bound", "lower_bound_standard_error", "gap", "gap_limit")

MOST_DRIVERS = 20

# Weights that differ by less are all alike.
ALIKE = 1e-9


class PolicyRecord(Part):
    """A policy judged on draws of the posterior, the same for all policies of a record.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     judged = pr.evaluate_problem([[1, 0, 0]] * 4, pr.write_example(folder)[0], samples=200)
    >>> judged.value_at_risk <= judged.tail_mean
    True

    Attributes:
        name: what the reader calls it, such as "this policy" or "robust plan".
        kind: `policy` for the answer, `deterministic` for the best deterministic policy found, or `rival`.
        status: how its solver or planner ended, such as `PLANNED`.
        draws: how many.
        exact: whether the draws are the whole posterior, so that nothing is sampled and standard errors are 0.
        risk, risk_standard_error: the risk that was asked for, and its Monte-Carlo error.
        interval: its 95 % confidence interval.
        confidence: what the interval holds: "95 %", "95 % nominally: ..." where few draws are in the tail, or "exact".
        mean, mean_standard_error: of the loss, over the draws.
        tail_level: where the tail begins.
        value_at_risk, tail_mean: quantile of the losses at the tail level, and the mean of the worst beyond it.
        difference: its risk less that of the policy it is set beside; None without one.
        evidence: what its risk stands on; None where it was not asked for.
        losses: `[M]` at each draw.
        weights: `[M]` the density xi* that attains the risk.
        probabilities: `[S, A]` chance of each action in each state; None for a policy that is no table.
        occupancy: `[S, A]` discounted visits, the mean over draws, not normalised; None where they are not known.
    """

    name: str
    kind: Literal["policy", "deterministic", "rival"] = "policy"
    status: str = ""
    draws: Annotated[int, Field(ge=1)]
    exact: bool = False
    risk: Number
    risk_standard_error: Number
    interval: Two[Number] = (None, None)
    confidence: str = "95 %"
    mean: Number
    mean_standard_error: Number
    tail_level: Annotated[float, Field(ge=0.0, lt=1.0)]
    value_at_risk: Number
    tail_mean: Number
    difference: Difference | None = None
    evidence: EvidenceRecord | None = None
    losses: Array
    weights: Array
    probabilities: Table = None
    occupancy: Table = None

    @property
    def carried(self) -> bool:
        """Whether the log carries the policy: what its risk stands on is neither thin nor unsupported.

        True where the word is not known, as of a belief that is given without a log.
        """
        return self.evidence is None or self.evidence.word in (None, "sound")


class SolutionRecord(PolicyRecord):
    """All that is said of a run: its policy as it was judged, and what is beside, below and behind that.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    >>> run.record.lower_bound <= run.record.risk
    True

    Attributes:
        title: heading of the page.
        asked: label and text of each line of what was asked.
        message, solved, usable: the status in a sentence; whether it converged; whether the policy can be used.
        risk_name, loss_name: such as "CVaR 0.9" and "expected discounted cost".
        lower_bound, lower_bound_standard_error: no policy has a smaller risk on the certificate's draws.
        gap: what the risk is above the bound there, draw by draw.
        gap_limit: what the gap is at most, with 95 % confidence.
        known_theta_risk, known_theta_risk_standard_error: the risk if theta were told before planning.
        certificate: more of it; None where none was asked for.
        proof: what is known of all stationary policies; None where no search was asked for.
        drivers: the unknowns that move by more than chance, the farthest first.
        limits: what the policy had to keep, and whether it does.
        frontier, worth: what a limit or caution costs, and what to measure next; None where it was not asked.
        deterministic: the best policy found with one action in each state, or None.
        rivals: other ways to plan.
        decision: what to do, and how much it matters; None of a policy that is no table.
        coverage: how much of what the answer does the log has seen; None without a log of pairs.
        fit: whether the model fits the log; None without its rows.
        linear: gain, stability and responses of a linear system; None of a table.
        log: rows and pairs seen, as plain numbers.
        states, actions: names by number; how many, where they have none; 0 of what is no table.
        grid: rows and columns where the states form a grid (row-major), else None.
        directions: for each action "left", "down", "right" or "up", else None: no arrows.
        solver: `sample-average` or `brpg`; empty for another.
        iterations, seconds, seed, episode: of the run.
        problem: the file, and the digest of the question; both empty without a file.
        settings: the problem file with the numbers that were in force.
        versions: of what computed it.
        draw_probabilities: `[M]` of the draws.
        objective, gradient_norm: `[T]` one entry an iteration.
        counts: `[S, A]` how often each pair was seen, or None.
    """

    title: str
    asked: Several[Two[str]] = ()
    message: str
    solved: bool
    usable: bool
    risk_name: str
    loss_name: str
    lower_bound: Number = None
    lower_bound_standard_error: Number = None
    gap: Number = None
    gap_limit: Number = None
    known_theta_risk: Number = None
    known_theta_risk_standard_error: Number = None
    certificate: CertificateRecord | None = None
    proof: ProofRecord | None = None
    drivers: Several[DriverRecord] = ()
    limits: Several[LimitRecord] = ()
    frontier: FrontierRecord | None = None
    worth: WorthRecord | None = None
    deterministic: PolicyRecord | None = None
    rivals: Several[PolicyRecord] = ()
    decision: DecisionRecord | None = None
    coverage: CoverageRecord | None = None
    fit: FitRecord | None = None
    linear: LinearRecord | None = None
    log: dict[str, float] = Field(default_factory=dict)
    states: Several[str] | Count = 0
    actions: Several[str] | Count = 0
    grid: Two[Annotated[int, Field(ge=1)]] | None = None
    directions: Several[str] | None = None
    solver: str = ""
    iterations: Count
    seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    seed: int
    episode: Count = 0
    problem: ProblemRecord = ProblemRecord(file="", digest="")
    settings: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    draw_probabilities: Array
    objective: History
    gradient_norm: History
    counts: Table = None

    @property
    def plans(self) -> tuple[PolicyRecord, ...]:
        """The answer, then what it is set beside."""
        return (self, *(() if self.deterministic is None else (self.deterministic,)), *self.rivals)

    @property
    def names(self) -> tuple[Any, Any]:
        """Of states and actions, or how many there are, by which runs of one problem are known."""
        return (self.states, self.actions) if self.linear is None else (self.linear.states, self.linear.actions)

    @property
    def state_names(self) -> tuple[str, ...]:
        """By number."""
        return _names(self.states)

    @property
    def action_names(self) -> tuple[str, ...]:
        """By number."""
        return _names(self.actions)

    @property
    def weighs_alike(self) -> bool:
        """Whether the risk gives all draws the same weight."""
        return float(np.ptp(self.weights)) <= ALIKE

    @property
    def bounded(self) -> str:
        """Which policies bound and gap are about."""
        limited = self.certificate is not None and self.certificate.limited
        return "policy that keeps the limits there" if limited else "policy"

    @property
    def on_few(self) -> bool:
        """Whether bound and gap were found on fewer draws than the risk."""
        return self.certificate is not None and self.certificate.draws < self.draws

    def model_post_init(self, context: Any) -> None:
        """Refuse what does not belong together, before anything is drawn or said."""
        del context
        if not self.status:
            raise InputError("the record does not say how its solver ended")
        pairs = tuple(each if isinstance(each, int) else len(each) for each in (self.states, self.actions))
        for plan in self.plans:
            if (plan.probabilities is None) != (0 in pairs) or (plan.occupancy is None) != (0 in pairs):
                raise InputError(f"the record's {plan.name!r} needs probabilities and occupancy of its pairs {pairs}")
            require_pairs(f"probabilities of {plan.name!r}", plan.probabilities, pairs, most=1.0)
            require_pairs(f"occupancy of {plan.name!r}", plan.occupancy, pairs)
            for name, shape in (("losses", plan.losses.shape), ("weights", plan.weights.shape)):
                if shape != (self.draws,):
                    raise InputError(f"the record's {name} of {plan.name!r} must be [M] = ({self.draws},), got {shape}")
        require_pairs("counts", self.counts, pairs)
        if self.grid is not None and self.grid[0] * self.grid[1] != pairs[0]:
            raise InputError(f"a grid of {self.grid[0]} x {self.grid[1]} cannot hold {pairs[0]} states")
        if self.directions is not None and len(self.directions) != pairs[1]:
            raise InputError(f"the record needs a direction for each of {pairs[1]} actions, got {len(self.directions)}")
        if self.draw_probabilities.shape != (self.draws,) or np.any(self.draw_probabilities < 0.0):
            raise InputError(
                f"the record needs a probability for each of {self.draws} draws, got {self.draw_probabilities.shape}"
            )
        if self.objective.ndim != 1 or self.objective.shape != self.gradient_norm.shape:
            raise InputError(
                f"the record's histories differ in length: {self.objective.shape} objectives, "
                f"{self.gradient_norm.shape} gradient norms"
            )


def _names(names: tuple[str, ...] | int) -> tuple[str, ...]:
    return tuple(map(str, range(names))) if isinstance(names, int) else names


def arrays_of(part: BaseModel, place: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Every array of a record with its place, such as `rivals.0.losses`."""
    for name, value in part:
        if isinstance(value, np.ndarray):
            yield f"{place}{name}", value
        parts = (
            {f"{name}.": value} if not isinstance(value, tuple) else {f"{name}.{k}.": v for k, v in enumerate(value)}
        )
        for inside, each in parts.items():
            if isinstance(each, BaseModel):
                yield from arrays_of(each, place + inside)


def record_from(said: dict[str, Any], arrays: dict[str, np.ndarray]) -> SolutionRecord:
    """The record of a JSON and the arrays beside it, all checked; refused by `InputError` or `LookupError`."""
    for name, array in arrays.items():
        *path, last = name.split(".")
        part: Any = said
        for key in path:
            part = part[int(key) if isinstance(part, list) else key]
        part[last] = array
    return SolutionRecord(**said)


def versions() -> dict[str, str]:
    """The packages that the numbers depend on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        # Some belong to extras.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def message_of(status: Any) -> str:
    """How a run ended and what to do about it: the status's own words, for those who do not write Python."""
    return re.sub(r"\b(\w+)=", lambda found: ARGUMENTS.get(found[1], f"{found[1]} in [solver]"), status.value)


def policy_record(name: str, judged: Evaluation, tail_level: float, **more: Any) -> PolicyRecord:
    """A policy's evaluation as a record; `more` are fields that it does not tell."""
    tail = {"value_at_risk": float(judged.quantile(tail_level)), "tail_mean": judged.under(CVaR(tail_level)).risk}
    # The probabilities of an evaluation are those of its draws.
    other = {"probabilities": None, "evidence": None} | tail | more
    return PolicyRecord.of(judged, name=name, draws=len(judged.losses), tail_level=tail_level, **other)


def solution_record(
    solution: Solution, answer: PolicyRecord, *, name: Callable[..., str | None] | None = None, **more: Any
) -> SolutionRecord:
    """A solution whose policy was judged, as a record.

    Args:
        solution: of `solve`.
        answer: its policy.
        name: of an unknown by its place in theta, where it has another than the solver's.
        more: fields that neither tells, in the place of those that they do.
    """
    certificate, drivers = solution.certificate, ()
    if certificate is not None:
        more |= {name: getattr(certificate, name) for name in CERTIFIED}
        because, confidence = certificate.reason or None, certificate.confidence
        more["certificate"] = CertificateRecord.of(certificate, no_bound_because=because, gap_confidence=confidence)
        drivers = certificate.drivers[:MOST_DRIVERS]
    thetas, share = np.asarray(solution.thetas), np.asarray(solution.probabilities)
    pulled = share * np.asarray(solution.weights)
    found = {
        "solved": solution.status.name in ("CONVERGED", "CONVERGED_WITHIN_LIMITS", "PLAN_KEPT"),
        "usable": solution.status.ok,
        "iterations": solution.iterations,
        "seconds": solution.seconds,
        "versions": versions(),
        "draw_probabilities": share,
        "objective": np.asarray(solution.history.objective),
        "gradient_norm": np.asarray(solution.history.gradient_norm),
        "drivers": tuple(
            DriverRecord.of(
                driver,
                name=(None if name is None else name(*driver.place)) or driver.name,
                plain=float(share @ thetas[(slice(None), *driver.place)]),
                weighted=float(pulled @ thetas[(slice(None), *driver.place)]),
            )
            for driver in drivers
        ),
    }
    return SolutionRecord(**dict(answer) | found | more)


def problem_fields(case: AbstractCase, solution: Solution, solver: Any) -> dict[str, Any]:
    """What any problem file tells of a run; the solver has the numbers that were in force where the file names none."""
    file = case.file
    given = file.solver.model_dump(mode="json")
    usual: dict[str, Any] = {name: getattr(solver, name, None) for name, value in given.items() if value is None}
    settings = given | {name: np.asarray(value).item() for name, value in usual.items() if np.ndim(value) == 0}
    return {
        "title": file.title or Path(case.source).stem,
        "message": message_of(solution.status),
        "asked": (("problem file", case.source), *case.describe()),
        "risk_name": risk_name(file.risk),
        "loss_name": "expected discounted cost",
        "log": {name: value for name, value in case.seen().items() if name != "unseen"},
        "solver": file.solver.kind,
        "seed": file.seed,
        "problem": ProblemRecord(file=case.source, digest=case.digest()),
        "settings": file.model_dump(mode="json") | {"solver": settings},
    }


def table_fields(case: Case, solution: Solution, answer: PolicyRecord) -> dict[str, Any]:
    """What else a problem of states and actions tells of a run."""
    file, facts, certificate = case.facts.file, case.facts, solution.certificate
    grid = file.layout.grid if file.layout.grid is None or len(file.layout.grid) == 2 else None
    directions = None if grid is None else file.layout.directions
    counts = None if facts.log is None else case.counts()
    # The bound is the risk of one who is told theta, and not below that, where plans are exact and all draws planned.
    plain = file.loss.kind == "expected-cost" and not file.limit
    told = certificate if plain and certificate is not None and certificate.draws == answer.draws else None
    coverage = None
    # Where pairs share laws, a pair that was never seen may be as well known as any.
    if counts is not None and answer.occupancy is not None and case.layout is None:
        # Of a family it is not known which pairs have one possible successor.
        own = case.family is not None
        certain = np.zeros(case.shape[:2], bool) if own else case.support.allowed().sum(axis=2) == 1
        coverage = coverage_record(counts, certain, answer.occupancy, case.states, case.actions, THIN, own)
    return {
        "loss_name": loss_name(file.loss),
        "known_theta_risk": getattr(told, "lower_bound", None),
        "known_theta_risk_standard_error": getattr(told, "lower_bound_standard_error", None),
        "coverage": coverage,
        "states": len(facts.states) if facts.states.numbered else case.states,
        "actions": len(facts.actions) if facts.actions.numbered else case.actions,
        "grid": None if grid is None else tuple(grid),
        "directions": None if directions is None else tuple(directions),
        "counts": counts,
    }
