"""Families whose theta is a few named probabilities, each learned from trials of its own."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, Stream, as_float, generator, require_number, require_size
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily
from ..posteriors import Beta
from ..transitions import Trials
from .tabular_problem import TabularProblem

COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def check_theta(theta: Any, names: tuple[str, ...], family: str) -> None:
    """Refuse a theta of another length: JAX clamps an index out of bounds, and would read an entry twice."""
    if jnp.shape(theta) != (len(names),):
        raise InputError(
            f"theta of {family} is ({', '.join(names)}), {COUNTS[len(names)]} numbers; got shape {jnp.shape(theta)}"
        )


def check_truth(truth: Any, names: tuple[str, ...]) -> Float[np.ndarray, " D"]:
    """The true probabilities, one for each name."""
    array = np.asarray(as_float(truth, "truth"))
    if array.shape != (len(names),) or not np.all((array >= 0) & (array <= 1)):
        raise InputError(
            f"truth must be ({', '.join(names)}), {COUNTS[len(names)]} probabilities, got {array.tolist()}"
        )
    return array


def coin_trials(n: Any, truth: Float[np.ndarray, " D"], seed: Any) -> Trials:
    """`n` trials of each coordinate."""
    n = require_size("n, the trials of each coordinate,", n)
    success = generator(seed, Stream.TRIALS).binomial(n, truth)
    return Trials(np.stack([success, n - success], axis=1))


class CoinFamily(AbstractFamily):
    """A family with known costs whose theta is a few probabilities, `names`; each has trials of its own.

    Attributes:
        costs: `[S, A]`, known.
        prior: Beta(1, 1) on each coordinate.
        truth: theta that data come from when nothing else is said.
    """

    names: ClassVar[tuple[str, ...]]

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    costs: Float[Array, "S A"]
    prior: Beta
    truth: Float[Array, " D"]

    @classmethod
    def of(cls, successor: Any, start: Any, discount: Any, costs: np.ndarray, truth: Any) -> Any:
        """From successor lists, with nothing known of theta."""
        truth = check_truth(truth, cls.names)
        discount = require_number("discount", discount, "[0, 1)")
        return cls(Support.lists(successor), start, discount, costs, Beta.uniform(len(cls.names)), truth)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """The cost of one action, whatever theta is."""
        return jnp.asarray(self.costs)

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """By the names of the coordinates."""
        del shape
        return self.names[place[0]]

    def trials(self, n: int, truth: Any = None, seed: Any = 0) -> Trials:
        """The log of `n` trials of each coordinate.

        >>> import prudent as pr
        >>> pr.envs.machine_replacement().trials(n=5, seed=0).counts.sum(axis=1).tolist()
        [5.0, 5.0, 5.0]
        """
        return coin_trials(n, check_truth(self.truth if truth is None else truth, self.names), seed)

    def tabular(self, truth: Any = None, weight: float = 1.0) -> TabularProblem:
        """The same problem with the whole table unknown, its data from `truth`; rows known to be one are tied.

        >>> import prudent as pr
        >>> pr.envs.river_swim().tabular().truth[0, 1].round(2).tolist()
        [0.7, 0.3, 0.0]
        """
        truth = check_truth(self.truth if truth is None else truth, self.names)
        return TabularProblem.of(self.at(truth), self.costs, weight, self.tied())

    def tied(self) -> Int[np.ndarray, "S A"] | None:
        """Labels of pairs that are one and the same move, whatever else is unknown; None where all differ."""
        return None
