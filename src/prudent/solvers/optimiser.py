"""What every solver is: settings, and a way to bring a batch of jobs to their answers."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import is_jax_array
from ..gradients import GradientEstimator
from ..objectives import Objective
from ..records import AbstractVar, Record
from .draws import JobDraws
from .progress import Shown
from .solution import Status
from .states import Arrays

if TYPE_CHECKING:
    from .limits import LimitFindings, LimitsAsked

EVALUATION = "fresh draws on which the risk is reported; when left out, 1000, or more where that is cheap"


class Outcome(NamedTuple):
    """One job's answer, before it is judged on fresh draws.

    Attributes:
        parameters: of the policy.
        status: how the job ended, as far as its own sample tells.
        history: `[T, 3]` objective, gradient norm and step of each iteration.
        iterations: how many were made, those of a resumed run included.
        models: gradients of single models that were evaluated.
        in_sample: the objective on the draws the policy was fitted to, or chosen on.
        state: what a later call needs to go on.
        iterates: `[T, ...]` the parameters before each step where they were asked for, else None.
        limits: what was found of the limits, where there are any.
    """

    parameters: Any
    status: Status
    history: np.ndarray
    iterations: int
    models: int
    in_sample: float
    state: Any
    iterates: Any = None
    limits: LimitFindings | None = None


Watch = Callable[[Callable[[], Outcome]], None]


def digest_of(part: Any) -> str:
    """A digest of a part's kind and numbers, the same in every process; functions count by their names."""
    return hashlib.sha256(repr(_described(part)).encode()).hexdigest()


def _described(part: Any) -> Any:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = [(each.name, _described(getattr(part, each.name))) for each in dataclasses.fields(part)]
        return type(part).__name__, fields
    if isinstance(part, np.ndarray) or is_jax_array(part):
        array = np.asarray(part)
        return array.shape, array.tobytes()
    if isinstance(part, dict):
        return [(name, _described(value)) for name, value in part.items()]
    if isinstance(part, list | tuple):
        return [_described(each) for each in part]
    return getattr(part, "__qualname__", None) or repr(part)


class Optimiser(Record):
    """Settings of a solver. `solve` checks the parts, draws, judges and certifies; the rest is here."""

    evaluation: AbstractVar[int | None]

    @abc.abstractmethod
    def check(self, objective: Objective, gradient: GradientEstimator, theta: np.ndarray) -> None:
        """Refuse parts that this solver cannot work with, as far as one draw of theta tells."""

    @abc.abstractmethod
    def sizes(self) -> set[int]:
        """Numbers of draws on which it assesses risks."""

    @abc.abstractmethod
    def state_from(self, arrays: Arrays, objective: Objective, theta: np.ndarray, limits: int = 0) -> Any:
        """Return the state of one run whose leaves were `named_leaves(state)`, for an objective of the same kind.

        Arrays that no run of these settings could have left are refused.
        """

    @abc.abstractmethod
    def jobs_at_once(self, objective: Objective) -> int:
        """How many jobs fit one batch."""

    @abc.abstractmethod
    def optimise(
        self,
        objective: Objective,
        gradient: GradientEstimator,
        draws: JobDraws,
        progress: Shown,
        watch: Watch | None = None,
        limits: LimitsAsked | None = None,
    ) -> list[Outcome]:
        """The answers of the jobs in `draws`.

        Args:
            objective: what is minimised.
            gradient: how its gradient is found.
            draws: the jobs, with their starts, posterior draws and solutions to go on from.
            progress: whether to show a bar, or who is told of every iteration.
            watch: called between iterations with what gives the first job's outcome so far.
            limits: that the policy has to keep.
        """
