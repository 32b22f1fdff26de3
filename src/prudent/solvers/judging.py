"""How good a policy is on draws that no iteration has seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..arrays import to_numpy
from ..gradients import Problem, losses_on, model_bytes, model_slopes
from ..posteriors import WeightedDraws, equally_weighted
from ..risks import Risk, effective_draws, risk_value
from ..risks.intervals import LEAST_DRAWS

# Derivatives of single draws that are kept, and the fewest that are.
SLOPE_BYTES, FEWEST_SLOPES = 256 * 2**20, 40

# Fresh draws of which a risk is reported: these, or as many as put this many into its tail where that is cheap: by what
# their kernels take together, what is worked through, and their number.
USUAL_DRAWS, TAIL_DRAWS = 1000, 100
CHEAP_KERNELS, CHEAP_WORK, CHEAP_DRAWS = 2**27, 2**29, 100_000


class Judgement(NamedTuple):
    """A policy on draws: its losses, their risk and how well that is known.

    Attributes:
        draws: the draws.
        losses: `[M]` at each.
        risk: the risk.
        weights: `[M]` the density xi* that attains it.
        influence: `[M]` derivative of the risk by each draw's probability, centred; NaN where there is none.
        standard_error: of the risk; 0 on a whole posterior.
        interval: of the risk, 95 %; the risk itself on a whole posterior, NaN where none can be had.
    """

    draws: WeightedDraws
    losses: np.ndarray
    risk: float
    weights: np.ndarray
    influence: np.ndarray
    standard_error: float
    interval: tuple[float, float]

    def finite(self) -> bool:
        """Whether the risk and all losses are numbers."""
        return bool(np.isfinite(self.risk) and np.all(np.isfinite(self.losses)))

    def error_of_difference(self, other: Judgement) -> float:
        """Standard error of the difference of two risks on the same draws; of the losses', where a risk has none."""
        if self.draws.exact:
            return 0.0
        if len(self.losses) == 1:
            return float("nan")
        difference = self.influence - other.influence
        if not np.all(np.isfinite(difference)):
            difference = self.losses - other.losses
        share = self.draws.probabilities
        return self.draws.stretch * float(np.sqrt(((share * (difference - share @ difference)) ** 2).sum()))

    def clearly_above(self, other: Judgement) -> bool:
        """Whether the risk is larger than another's on the same draws, beyond what chance explains."""
        noise = self.error_of_difference(other)
        noise = 0.0 if np.isnan(noise) else noise
        size = float(np.abs(np.concatenate([self.losses, other.losses])).max())
        return bool(self.risk - other.risk > 5.0 * noise + 1e-9 * size)


def judgement(risk: Risk, losses: np.ndarray, draws: WeightedDraws) -> Judgement:
    """The risk of losses on draws, and how well it is known."""
    value, weights, influence = to_numpy(_know(risk, losses, draws.probabilities))
    value, share = float(value), draws.probabilities
    influence = influence - share @ influence
    if draws.exact:
        return Judgement(draws, losses, value, weights, influence, 0.0, (value, value))
    error = draws.stretch * float(np.sqrt(((share * influence) ** 2).sum())) if len(losses) > 1 else float("nan")
    interval = (float("nan"), float("nan"))
    if np.all(np.isfinite(losses)) and _told(draws, weights):
        interval = stretched(value, risk.interval(losses, share), draws)
    return Judgement(draws, losses, value, weights, influence, error, interval)


def stretched(value: float, interval: tuple[float, float], draws: WeightedDraws) -> tuple[float, float]:
    """An interval of independent draws, with the error of what they were drawn from."""
    low, high = (value + draws.stretch * (end - value) for end in interval)
    return low, high


def _told(draws: WeightedDraws, weights: np.ndarray) -> bool:
    """Whether the posterior's own draws are enough for the tail: drawn again and again they only look like more."""
    return effective_draws(weights, draws.probabilities) / len(draws) * draws.behind >= LEAST_DRAWS


def judge(problem: Problem, risk: Risk, table: np.ndarray, draws: WeightedDraws) -> Judgement:
    """A policy's losses on draws, and their risk."""
    return judgement(risk, losses_on(problem, table[None], draws.thetas[None])[0], draws)


def judge_closely(
    problem: Problem, risk: Risk, table: np.ndarray, draws: WeightedDraws
) -> tuple[Judgement, np.ndarray]:
    """`judge`, and `[N, S, A]` the losses' derivatives by the table at the first N draws, as many as memory takes."""
    count = len(draws)
    few = int(np.clip(SLOPE_BYTES // (8 * table.size), min(count, FEWEST_SLOPES), count))
    losses = np.empty(count)
    losses[:few], slopes, _ = model_slopes(problem, table[None], draws.thetas, np.zeros(few, int), np.arange(few))
    if few < count:
        losses[few:] = losses_on(problem, table[None], draws.thetas[None, few:])[0]
    return judgement(risk, losses, draws), slopes


def usual_draws(problem: Problem, risk: Risk) -> int:
    """How many fresh draws a risk is reported on when nobody says: its tail holds a hundred of them where cheap."""
    sample = equally_weighted(np.zeros(USUAL_DRAWS))
    _, weights, influence = to_numpy(_know(risk, np.linspace(0.0, 1.0, USUAL_DRAWS), sample.probabilities))
    if not np.all(np.isfinite(influence)):
        # Without an interval there is nothing that more draws would narrow.
        return USUAL_DRAWS
    in_tail = USUAL_DRAWS**2 / float((weights**2).sum())
    support = problem.family.support
    cheap = min(
        CHEAP_KERNELS // (8 * int(np.prod(support.shape))),
        CHEAP_WORK // model_bytes(problem.occupancy, support),
        CHEAP_DRAWS,
    )
    return int(max(USUAL_DRAWS, min(cheap, round(USUAL_DRAWS * TAIL_DRAWS / in_tail))))


@eqx.filter_jit
def _know(risk: Risk, losses: Any, probabilities: Any) -> tuple[Any, Any, Any]:
    value, weights = risk_value(risk, losses, probabilities)
    return value, weights, risk.influence(losses, probabilities)
