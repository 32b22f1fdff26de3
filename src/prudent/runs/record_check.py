"""What a record read back from a file must be, before anything is made of it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

NUMBERS = ("risk", "risk_standard_error", "mean", "mean_standard_error", "value_at_risk", "tail_mean")
ARRAYS = ("probabilities", "losses", "weights", "occupancy")


Item = TypeVar("Item")
Two = Annotated[list[Item], Field(min_length=2, max_length=2)]


class _Open(BaseModel):
    """Keys that are checked; others may be there."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Problem(_Open):
    file: str
    digest: str


class _Solver(_Open):
    kind: str


class _Settings(_Open):
    title: str
    solver: _Solver


class _Certificate(_Open):
    draws: int | None
    no_bound_because: str | None
    drivers_considered: int


class _Closed(BaseModel):
    """Keys that are checked, and no others."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _LeantOn(_Closed):
    state: str
    action: str
    rows: float
    time: float
    tail_time: float


class _UnderPrior(_Closed):
    name: str
    risk: float
    exceeded: float
    gain: float | None


class _Standing(_Closed):
    word: Literal["sound", "thin", "unsupported"] | None
    message: str
    few: int
    time: float | None
    tail_time: float | None
    exceeded: float | None
    pairs: list[_LeantOn]
    pairs_left_out: int
    others: list[_UnderPrior]


class _Summary(_Open):
    status: str
    message: str
    solved: bool
    usable: bool
    exact: bool
    risk: float | None
    lower_bound: float | None
    gap: float | None
    gap_limit: float | None
    certificate: _Certificate | None
    footing: _Standing | None
    tail_level: float
    known_theta_risk: float | None
    known_theta_risk_standard_error: float | None
    iterations: int
    seconds: float
    seed: int
    problem: _Problem
    settings: _Settings
    versions: dict[str, str]


class _Difference(_Closed):
    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None


class _View(_Open):
    name: str
    kind: str
    status: str
    difference: _Difference | None
    risk: float | None
    risk_standard_error: float | None
    mean: float | None
    mean_standard_error: float | None
    value_at_risk: float | None
    tail_mean: float | None


class _Driver(_Closed):
    name: str
    plain: float
    weighted: float
    shift: float
    standard_error: float


class Said(_Open):
    """The text part of a record."""

    summary: _Summary
    asked: list[Two[str]]
    risk_name: str
    loss_name: str
    states: list[str]
    actions: list[str]
    grid: Two[int] | None
    directions: list[str] | None
    views: list[_View]
    drivers: list[_Driver]


def check_record(said: dict[str, object], arrays: dict[str, np.ndarray]) -> None:
    """Refuse, by ValueError, a record whose parts are not what they should be or do not fit together."""
    text = Said.model_validate(said)
    pairs = (len(text.states), len(text.actions))
    history = arrays["objective"].shape
    wanted: dict[str, tuple[int, ...]] = {"objective": history, "gradient_norm": history, "certain": pairs}
    if "counts" in arrays:
        wanted["counts"] = pairs
    draws = arrays["draw_probabilities"].shape
    wanted["draw_probabilities"] = draws
    for place in range(len(text.views)):
        shapes = (pairs, draws, draws, pairs)
        wanted |= {f"view.{place}.{name}": shape for name, shape in zip(ARRAYS, shapes, strict=True)}
    if len(draws) != 1 or not draws[0]:
        raise ValueError("no losses")
    if not text.views or len(history) != 1 or wanted.keys() != arrays.keys():
        raise ValueError("arrays that do not belong to a record")
    for name, shape in wanted.items():
        if arrays[name].dtype != np.float64 or arrays[name].shape != shape:
            raise ValueError(f"{name} is not what it should be")
        if name.startswith(("view.", "counts", "certain", "draw")) and not np.all(np.isfinite(arrays[name])):
            raise ValueError(f"{name} is not finite")
