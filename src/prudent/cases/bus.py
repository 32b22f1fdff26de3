"""Engines of the buses of Madison, Wisconsin (Rust 1987): keep an engine, or replace it.

A state is the mileage of the engine in steps of 5,000 miles. What is unknown is how fast a bus ages, the law of the
steps that it gains in a month, and how fast the cost of running it grows with mileage. Costs are those that Rust
estimated from the same buses, in his units; they are swept, not believed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, namespace_of
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily
from ..posteriors import Posterior
from ..records import changed
from ..transitions import Transitions
from .held_out import lines

STEP = 5000
STATES = 90
GAINS = 4
KEEP, REPLACE = 0, 1

# J. Rust, "Optimal replacement of GMC bus engines", Econometrica 55 (1987), table IX, groups 1 to 4: the cost of a
# replacement, the growth of the monthly cost with mileage in thousandths a step, and its standard error.
REPLACEMENT, GROWTH, GROWTH_ERROR = 9.7558, 2.6275, 0.618

# Rust's own discount of 0.9999 a month makes all that happens in a century count alike; this is about 6 % a year.
DISCOUNT = 0.995


class Bus(NamedTuple):
    """One bus.

    Attributes:
        name: its number in the fleet.
        model: the make of the bus.
        begin: month of the first reading, such as `1974-12`.
        miles: `[T]` on the engine at each reading but the last.
        driven: `[T]` miles to the next reading.
        replaced: `[T]` whether the engine was replaced before the next reading.
        then: `[T]` miles on the engine at the next reading.
    """

    name: str
    model: str
    begin: str
    miles: np.ndarray
    driven: np.ndarray
    replaced: np.ndarray
    then: np.ndarray

    @property
    def gains(self) -> np.ndarray:
        """`[T]` steps gained in each month, by the fractions of steps that add up."""
        total = np.concatenate([[0], np.cumsum(self.driven)]) // STEP
        return np.diff(total)


def buses() -> list[Bus]:
    """The 162 buses of Rust's study, in the order of the file."""
    return [_bus(*row) for row in lines("bus.csv")[1]]


def _bus(name: str, model: str, begin: str, odometer: Any, replaced: str, driven: str) -> Bus:
    miles = np.array(driven.split(), np.int64)
    reading = int(odometer) + np.concatenate([[0], np.cumsum(miles)])
    since, then, new = np.zeros(len(miles), np.int64), np.zeros(len(miles), np.int64), np.zeros(len(miles), bool)
    at, left = 0, [int(each) for each in replaced.split()]
    for month in range(len(miles)):
        since[month] = reading[month] - at
        if left and left[0] <= reading[month + 1]:
            new[month], at = True, left.pop(0)
        then[month] = reading[month + 1] - at
    return Bus(name, model, begin, since, miles, new, then)


class Fleet(AbstractFamily):
    """Buses whose engines age by one law: theta is `(chance to gain 0, 1, 2, 3 steps a month, growth of costs)`.

    Attributes:
        replacement: what a new engine costs.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    replacement: float

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """The law of the gains, from every state by either action."""
        return namespace_of(theta).broadcast_to(theta[:GAINS], (STATES, 2, GAINS))

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Running grows with mileage; a new engine runs as one of 0 miles."""
        running, xp = 0.001 * theta[GAINS] * np.arange(STATES), namespace_of(theta)
        return xp.stack([running, xp.full(STATES, self.replacement)], axis=1)

    def tables(self, thetas: Float[np.ndarray, "N 5"]) -> tuple[np.ndarray, np.ndarray]:
        """Return kernels and costs of N thetas."""
        probability, cost = zip(*((self.probability(theta), self.cost(theta)) for theta in thetas), strict=True)
        return np.stack(probability), np.stack(cost)

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """Gains and the growth of costs by name."""
        del shape
        return "growth of costs" if place[0] == GAINS else f"{STEP * place[0]:,} miles a month"


class Ageing(Posterior):
    """What is believed of the law of the gains and of the growth of costs.

    The law is Dirichlet after the gains that were counted. If `own` buses are given, it is that of a new bus whose
    law is its own: Dirichlet, with the concentration that fits the buses best, around a mean of their laws whose
    weights are drawn with each draw (the Bayesian bootstrap), because a few buses do not tell what the next ones
    are like. The growth is log-normal around Rust's estimate with his standard error.

    Attributes:
        counts: `[4]` how often each gain was seen.
        own: `[buses, 4]` the same by bus where each has a law of its own; None where all share one.
        growth, error: of the costs.
    """

    counts: np.ndarray
    own: np.ndarray | None
    growth: float
    error: float

    def update(self, log: Transitions) -> Ageing:
        """Count the gains of a log of steps, which no longer tells its buses apart."""
        if self.own is not None:
            raise InputError("a log of steps does not tell buses apart; make the belief of counts by bus")
        gain = np.where(np.asarray(log.action) == REPLACE, log.next_state, log.next_state - np.asarray(log.state))
        # An engine at the end of the scale gains no more steps, whatever it drives.
        told = np.asarray(log.state) + GAINS <= STATES
        if np.any((gain[told] < 0) | (gain[told] >= GAINS)):
            raise InputError(f"a bus gains 0 to {GAINS - 1} steps of {STEP:,} miles in a month")
        counts = np.bincount(gain[told], np.asarray(log.count)[told], minlength=GAINS)
        return changed(self, counts=self.counts + counts)

    def mean(self) -> Float[np.ndarray, " 5"]:
        """Means of the law and of the growth."""
        law = self.counts + 1.0 if self.own is None else _shares(self.own).mean(axis=0)
        return np.append(law / law.sum(), self.growth)

    def maximum_likelihood(self) -> Float[np.ndarray, " 5"]:
        """The shares of gains as they were seen, and the estimate of the growth."""
        if not self.counts.sum() > 0:
            raise InputError("no gain was seen")
        return np.append(self.counts / self.counts.sum(), self.growth)

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N 5"]:
        """Laws by Dirichlet, growths by their logarithm."""
        if self.own is None:
            laws = generator.dirichlet(self.counts + 1.0, size=n)
        else:
            means = generator.dirichlet(np.ones(len(self.own)), size=n) @ _shares(self.own)
            weight = concentration(self.own)
            laws = np.array([generator.dirichlet(weight * law) for law in means])
        ratio = self.error / self.growth
        spread = np.sqrt(np.log1p(ratio**2))
        growths = self.growth * np.exp(spread * generator.normal(size=n) - spread**2 / 2.0)
        return np.column_stack([laws, growths])


def _shares(own: Float[np.ndarray, "buses 4"]) -> Float[np.ndarray, "buses 4"]:
    """The laws of buses, each with a quarter of each gain more than was seen."""
    return (own + 0.25) / (own.sum(axis=1, keepdims=True) + 1.0)


def concentration(own: Float[np.ndarray, "buses 4"]) -> float:
    """How alike the laws of buses are: the concentration of the Dirichlet that makes their counts most likely."""
    from scipy.special import gammaln

    mean = own.sum(axis=0) + 0.5
    mean = mean / mean.sum()
    grid = np.exp(np.linspace(np.log(0.5), np.log(5000.0), 200))
    weights = grid[:, None] * mean
    likelihood = gammaln(weights[:, None] + own).sum(axis=(1, 2)) - len(own) * gammaln(weights).sum(axis=1)
    likelihood += len(own) * gammaln(grid) - gammaln(grid[:, None] + own.sum(axis=1)).sum(axis=1)
    return float(grid[np.argmax(likelihood)])


def fleet(
    replacement: float = REPLACEMENT,
    growth: float = GROWTH,
    growth_error: float = GROWTH_ERROR,
    discount: float = DISCOUNT,
) -> tuple[Fleet, Ageing]:
    """The model and the belief before any reading, as a problem file names them (`family`, `options`)."""
    gains = np.arange(GAINS)
    kept = np.minimum(np.arange(STATES)[:, None] + gains, STATES - 1)
    index = np.stack([kept, np.broadcast_to(gains, (STATES, GAINS))], axis=1)
    support = Support.lists(index.tolist())
    model = Fleet(support, np.eye(STATES)[0], np.array(discount), replacement)
    return model, Ageing(np.zeros(GAINS), None, growth, growth_error)


def believed(of: list[Bus], prior: Ageing, each_its_own: bool = False) -> Ageing:
    """The belief after the readings of buses: of one law for all, or of the law of a new bus."""
    own = np.array([np.bincount(np.minimum(bus.gains, GAINS - 1), minlength=GAINS) for bus in of], float)
    return Ageing(own.sum(axis=0), own if each_its_own else None, prior.growth, prior.error)


def state_names() -> list[str]:
    """States as the problem file calls them."""
    return [f"{step * STEP // 1000}k miles" for step in range(STATES)]


def log_of(of: list[Bus]) -> list[tuple[str, int, str, int, int]]:
    """Rows `unit, time, action, state, next_state` of the unit's own decisions; time is the month since 1970."""
    rows = []
    for bus in of:
        year, month = (int(part) for part in bus.begin.split("-"))
        for t, (miles, then, new) in enumerate(zip(bus.miles, bus.then, bus.replaced, strict=True)):
            state, following = min(int(miles) // STEP, STATES - 1), min(int(then) // STEP, STATES - 1)
            rows.append((bus.name, 12 * (year - 1970) + month - 1 + t, "replace" if new else "keep", state, following))
    return rows
