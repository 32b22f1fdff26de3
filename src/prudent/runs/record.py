"""What a run has to say: `solution.json`, and the record behind the report."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..problems import Case, coverage, describe, loss_name, risk_name
from ..report.data import Difference, Driver
from .footing import standing_of
from .record_check import ARRAYS, NUMBERS, check_record
from .tensors import read_tensors, write_tensors
from .view import View

if TYPE_CHECKING:
    from ..solvers import Solution
else:
    Solution = Any  # importing it would import JAX, which refusing bad input does not need

KIND = "prudent report record, version 4"
PACKAGES = ("prudent", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "pyarrow", "pydantic", "safetensors")


@dataclass(frozen=True)
class Record:
    """A run as it is reported.

    Attributes:
        summary: the content of `solution.json`.
        asked: lines of (label, text) on the question.
        risk_name, loss_name: in words.
        states, actions: names by number.
        grid, directions: how the policy is drawn, or None.
        views: the answer, the best deterministic policy found, then the rivals, on the same draws.
        drivers: which unknowns drive the risk.
        objective, gradient_norm: `[T]` of every iteration.
        counts: `[S, A]` how often each pair was seen, or None.
        certain: `[S, A]` 1 where a pair has one possible successor, else 0.
    """

    summary: dict[str, Any]
    asked: tuple[tuple[str, str], ...]
    risk_name: str
    loss_name: str
    states: tuple[str, ...]
    actions: tuple[str, ...]
    grid: tuple[int, int] | None
    directions: tuple[str, ...] | None
    views: tuple[View, ...]
    drivers: tuple[Driver, ...]
    objective: np.ndarray
    gradient_norm: np.ndarray
    counts: np.ndarray | None
    certain: np.ndarray


def versions() -> dict[str, str]:
    """The packages that the numbers depend on."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


def number(value: Any) -> float | None:
    """A number as JSON has it: NaN and infinities, which it has not, are null."""
    return None if value is None or not math.isfinite(value) else float(value)


# An argument of a function as the command line and the problem file know it; any other is a key of [solver].
ARGUMENTS = {"resume": "prudent continue"}


def message_of(solution: Solution) -> str:
    """How the run ended and what to do about it: the status's own words, for those who do not write Python."""
    return re.sub(r"\b(\w+)=", lambda found: ARGUMENTS.get(found[1], f"{found[1]} in [solver]"), solution.status.value)


def is_solved(solution: Solution) -> bool:
    """Whether the solver says that it has converged, and not merely that the policy can be used."""
    return solution.status.name == "CONVERGED"


def certified(solution: Solution, exact: bool) -> dict[str, Any]:
    """What the certificate says; `exact` if its bound is the risk of one who is told theta, and not below that."""
    certificate = solution.certificate
    names = ("lower_bound", "lower_bound_standard_error", "gap", "gap_limit")
    said: dict[str, Any] = {name: number(getattr(certificate, name, None)) for name in names}
    whole = certificate is not None and certificate.draws == len(solution.losses)
    told = ("known_theta_risk", "lower_bound"), ("known_theta_risk_standard_error", "lower_bound_standard_error")
    said |= {name: said[source] if exact and whole else None for name, source in told}
    if certificate is None:
        return said | {"certificate": None}
    rest = {name: number(getattr(certificate, name)) for name in ("in_sample", "stationarity")}
    more = {"draws": certificate.draws, "exact": certificate.exact, "no_bound_because": certificate.reason or None}
    more["drivers_considered"] = certificate.drivers_considered
    return said | {"certificate": more | rest}


def said_of(view: View) -> dict[str, Any]:
    """What is said of a plan, but for its arrays."""
    numbers = {name: number(getattr(view, name)) for name in NUMBERS}
    apart = None if view.difference is None else {k: number(v) for k, v in asdict(view.difference).items()}
    return {"name": view.name, "kind": view.kind, "status": view.status, **numbers, "difference": apart}


def record_of(
    case: Case,
    solution: Solution,
    views: list[View],
    drivers: list[Driver],
    tail_level: float,
    episode: int,
    settings: dict[str, Any],
) -> Record:
    """Gather what a solution, its rivals and its problem say; `settings` are those the solver ran with."""
    ours, file = views[0], case.facts.file
    summary = {
        "status": solution.status.name,
        "message": message_of(solution),
        "solved": is_solved(solution),
        "usable": solution.status.ok,
        "exact": ours.exact,
        "risk": number(solution.risk),
        "risk_standard_error": number(solution.risk_standard_error),
        "interval": [number(end) for end in solution.interval],
        **certified(solution, file.loss.kind == "expected-cost"),
        "footing": None if solution.footing is None else asdict(standing_of(case, solution.footing)),
        "mean": ours.mean,
        "mean_standard_error": number(ours.mean_standard_error),
        "tail_level": tail_level,
        "value_at_risk": ours.value_at_risk,
        "tail_mean": ours.tail_mean,
        "deterministic": next((said_of(view) for view in views if view.kind == "deterministic"), None),
        "rivals": [said_of(view) for view in views if view.kind == "rival"],
        "draws": len(ours.losses),
        "iterations": solution.iterations,
        "seconds": solution.seconds,
        "seed": file.seed,
        "episode": episode,
        "problem": {"file": case.facts.source, "digest": case.digest()},
        "states": len(case.states),
        "actions": len(case.actions),
        "log": {name: value for name, value in coverage(case).items() if name != "unseen"},
        "settings": file.model_dump(mode="json") | {"solver": settings},
        "versions": versions(),
    }
    grid, directions = file.layout.grid, file.layout.directions
    return Record(
        summary=summary,
        asked=(("problem file", case.facts.source), *describe(case)),
        risk_name=risk_name(file.risk),
        loss_name=loss_name(file.loss),
        states=case.states,
        actions=case.actions,
        grid=None if grid is None or len(grid) != 2 else (grid[0], grid[1]),
        directions=None if directions is None else tuple(directions),
        views=tuple(views),
        drivers=tuple(drivers),
        objective=np.asarray(solution.history.objective),
        gradient_norm=np.asarray(solution.history.gradient_norm),
        counts=None if case.facts.log is None else case.counts(),
        certain=certain_pairs(case),
    )


def certain_pairs(case: Case) -> np.ndarray:
    """`[S, A]` 1 where a pair has one possible successor; of a family nothing is known, 0."""
    if case.family is not None:
        return np.zeros(case.shape[:2])
    return (case.support.allowed().sum(axis=2) == 1).astype(np.float64)


def write_record(path: Path, record: Record) -> Path:
    """Write the record, so that the report can be made again without solving again."""
    arrays = {"objective": record.objective, "gradient_norm": record.gradient_norm, "certain": record.certain}
    if record.counts is not None:
        arrays["counts"] = record.counts
    arrays["draw_probabilities"] = record.views[0].draw_probabilities
    for place, view in enumerate(record.views):
        arrays |= {f"view.{place}.{name}": getattr(view, name) for name in ARRAYS}
    said = {
        name: getattr(record, name)
        for name in ("summary", "asked", "risk_name", "loss_name", "states", "actions", "grid", "directions")
    }
    said["views"] = [said_of(view) for view in record.views]
    said["drivers"] = [asdict(driver) for driver in record.drivers]
    return write_tensors(path, arrays, {"kind": KIND, **said})


def read_record(path: Path) -> Record:
    """The record of a run."""
    arrays, said = read_tensors(path, KIND)
    try:
        check_record(said, arrays)
        exact = bool(said["summary"]["exact"])
        views = tuple(_view(place, view, arrays, exact) for place, view in enumerate(said["views"]))
        grid, directions = said["grid"], said["directions"]
        return Record(
            summary=dict(said["summary"]),
            asked=tuple((str(label), str(text)) for label, text in said["asked"]),
            risk_name=str(said["risk_name"]),
            loss_name=str(said["loss_name"]),
            states=tuple(map(str, said["states"])),
            actions=tuple(map(str, said["actions"])),
            grid=None if grid is None else (int(grid[0]), int(grid[1])),
            directions=None if directions is None else tuple(map(str, directions)),
            views=views,
            drivers=tuple(Driver(**driver) for driver in said["drivers"]),
            objective=arrays["objective"],
            gradient_norm=arrays["gradient_norm"],
            counts=arrays.get("counts"),
            certain=arrays["certain"],
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise InputError(f"{path}: is damaged; solve again") from None


def _view(place: int, said: dict[str, Any], arrays: dict[str, np.ndarray], exact: bool) -> View:
    parts: dict[str, Any] = {name: _number(said[name]) for name in NUMBERS}
    parts |= {name: arrays[f"view.{place}.{name}"] for name in ARRAYS}
    parts |= {name: str(said[name]) for name in ("name", "kind", "status")}
    apart = said["difference"]
    difference = None if apart is None else Difference(**{name: _number(value) for name, value in apart.items()})
    return View(draw_probabilities=arrays["draw_probabilities"], exact=exact, difference=difference, **parts)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
