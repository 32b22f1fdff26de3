"""Families whose theta is a few named probabilities, each with trials of its own: a river to swim, a machine."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_float, namespace_of, require_number, require_size
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily
from ..posteriors import Beta
from ..seeds import Stream, generator
from ..transitions import Trials
from .unknown_tables import TabularProblem

COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def check_theta(theta: Any, names: tuple[str, ...], family: str) -> None:
    """Refuse a theta of another length: JAX clamps an index out of bounds, and would read an entry twice."""
    if np.shape(theta)[:1] != (len(names),):
        raise InputError(
            f"theta of {family} is ({', '.join(names)}), {COUNTS[len(names)]} numbers; got shape {np.shape(theta)[:1]}"
        )


def check_truth(truth: Any, names: tuple[str, ...]) -> Float[np.ndarray, " D"]:
    """The true probabilities, one for each name."""
    array = np.asarray(as_float(truth, "truth"))
    if array.shape != (len(names),) or not np.all((array >= 0) & (array <= 1)):
        raise InputError(
            f"truth must be ({', '.join(names)}), {COUNTS[len(names)]} probabilities, got {array.tolist()}"
        )
    return array


def amounts(**costs: Any) -> list[float]:
    """Costs of a family, each at least 0."""
    return [float(require_number(f"cost {name}", cost, "[0, inf)")) for name, cost in costs.items()]


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
        return self.costs

    def tables(self, thetas: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray]:
        """Return kernels and costs of N thetas."""
        probability = np.moveaxis(np.asarray(self.probability(np.ascontiguousarray(thetas.T))), -1, 0)
        return probability, np.broadcast_to(self.costs, (len(thetas), *np.shape(self.costs)))

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


LEFT, RIGHT = 0, 1


class RiverSwim(CoinFamily):
    """A row of states from the near bank (0) to the far end: `theta = (advance, swept)`.

    Action 0 drifts one state to the left, for sure. Action 1 swims right: it gets one state farther with
    probability `advance`; if not, the current sweeps the swimmer one state back with probability `swept`, and
    otherwise the swimmer holds. Nothing leads beyond either end. A step costs 1; drifting at the near bank costs
    `1 - near`, swimming at the far end nothing. Build one with `river_swim`.

    Attributes:
        costs: `[S, A]`, known.
        prior: Beta(1, 1) on each coordinate.
        truth: `(advance, swept)` that data come from when nothing else is said.
    """

    names: ClassVar[tuple[str, ...]] = ("advance", "swept")

    def probability(self, theta: Float[Array, "2 ..."]) -> Float[Array, "S A 3 ..."]:
        """Along the successors (right, hold, back); drifting lists its one successor three times."""
        check_theta(theta, self.names, "a river swim")
        (advance, swept), xp = theta, namespace_of(theta)
        zero = xp.zeros_like(advance)
        drift = xp.stack([zero, zero, zero + 1.0])
        swim = xp.stack([advance, (1.0 - advance) * (1.0 - swept), (1.0 - advance) * swept])
        return xp.broadcast_to(xp.stack([drift, swim]), (*self.support.shape, *theta.shape[1:]))


def river_swim(states: int = 6, near: float = 0.4, discount: float = 0.95, truth: Any = (0.3, 1.0 / 7.0)) -> RiverSwim:
    """A river swim that starts, with equal chance, one or two states from the near bank.

    The classical six states and chances: a swim gets on with 0.3, is swept back with 0.1 and holds with 0.6.

    Args:
        states: how many there are, at least 3.
        near: reward of a step at the near bank, as a share of the far end's, in [0, 1].
        discount: in [0, 1).
        truth: `(advance, swept)` that data come from.

    >>> import prudent as pr
    >>> river = pr.envs.river_swim()
    >>> river.at((0.5, 0.2)).kernel.table()[2, 1].round(2).tolist()
    [0.0, 0.1, 0.4, 0.5, 0.0, 0.0]
    """
    states = require_size("states", states, 3)
    near = float(require_number("near", near, "[0, 1]"))
    place = np.arange(states)
    right, back = np.minimum(place + 1, states - 1), np.maximum(place - 1, 0)
    successor = np.stack([np.stack([back, back, back], axis=1), np.stack([right, place, back], axis=1)], axis=1)
    costs = np.ones((states, 2))
    costs[0, LEFT], costs[-1, RIGHT] = 1.0 - near, 0.0
    start = np.zeros(states)
    start[1:3] = 0.5
    return RiverSwim.of(successor, start, discount, costs, truth)


RUN = 0


class MachineReplacement(CoinFamily):
    """Levels of wear from new (0) to broken (the last): `theta = (wear, breakdown, repair)`.

    Action 0 runs the machine: with probability `wear` it gets worse, and then it breaks with probability
    `breakdown` and is otherwise one level worse; a broken machine stays broken. Action 1 tries a repair: with
    probability `repair` the machine is as new, otherwise it stays as it was. Action 2 replaces it by a new one, for
    sure. A new machine runs whatever is done to it, so that no one can keep it from wear. Costs are known. Build one
    with `machine_replacement`.

    Attributes:
        costs: `[S, A]`, known.
        prior: Beta(1, 1) on each coordinate.
        truth: `(wear, breakdown, repair)` that data come from when nothing else is said.
    """

    names: ClassVar[tuple[str, ...]] = ("wear", "breakdown", "repair")

    def probability(self, theta: Float[Array, "3 ..."]) -> Float[Array, "S A 3 ..."]:
        """Along the successors (as it was, one level worse, broken) of running, (as it was, new, -) of the others."""
        check_theta(theta, self.names, "machine replacement")
        (wear, breakdown, repair), xp = theta, namespace_of(theta)
        zero = xp.zeros_like(wear)
        run = xp.stack([1.0 - wear, wear * (1.0 - breakdown), wear * breakdown])
        mend = xp.stack([1.0 - repair, repair, zero])
        replace = xp.stack([zero, zero + 1.0, zero])
        used = xp.stack([run, mend, replace])
        level = np.arange(self.support.states).reshape(-1, *(1,) * used.ndim)
        return xp.where(level == 0, xp.broadcast_to(run, used.shape), used)

    def tied(self) -> Int[np.ndarray, "S A"]:
        """Only that a new machine runs whatever is done to it is known of its table.

        >>> import prudent as pr
        >>> problem = pr.envs.machine_replacement().tabular()
        >>> problem.family.support.allowed().sum(axis=2).tolist()  # successors of running, repair, replacement
        [[3, 3, 3], [3, 2, 1], [3, 2, 1], [2, 2, 1], [1, 2, 1]]
        """
        labels = np.arange(self.costs.size).reshape(self.costs.shape)
        labels[0] = labels[0, RUN]
        return labels


def machine_replacement(
    levels: int = 5,
    running: float = 1.0,
    broken: float = 20.0,
    repair: float = 4.0,
    replace: float = 8.0,
    discount: float = 0.95,
    truth: Any = (0.3, 0.3, 0.3),
) -> MachineReplacement:
    """A machine that starts new.

    Args:
        levels: of wear, new and broken included; at least 3.
        running: cost of a period run, for each level of wear.
        broken: cost of a period with a broken machine, whatever is done to it, on top of what that costs.
        repair: cost of a try.
        replace: cost of a new machine.
        discount: in [0, 1).
        truth: `(wear, breakdown, repair)` that data come from.

    >>> import prudent as pr
    >>> machine = pr.envs.machine_replacement()
    >>> machine.at((0.5, 0.2, 0.4)).kernel.table()[1].round(2).tolist()  # run, repair, replace
    [[0.0, 0.5, 0.4, 0.0, 0.1], [0.4, 0.6, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    """
    levels = require_size("levels", levels, 3)
    running, broken, repair, replace = amounts(running=running, broken=broken, repair=repair, replace=replace)
    level, new, last = np.arange(levels), np.zeros(levels, dtype=int), np.full(levels, levels - 1)
    run = np.stack([level, np.minimum(level + 1, last), last], axis=1)
    run[-1] = levels - 1
    mend, fresh = np.stack([level, new, new], axis=1), np.stack([new, new, new], axis=1)
    mend[0] = fresh[0] = run[0]
    down = broken * (level == levels - 1)
    wearing = np.where(level < levels - 1, running * level, 0.0)
    costs = np.stack([wearing + down, repair + down, replace + down], axis=1)
    successor = np.stack([run, mend, fresh], axis=1)
    return MachineReplacement.of(successor, np.eye(levels)[0], discount, costs, truth)
