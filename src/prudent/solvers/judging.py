"""How good policies are on draws that no iteration has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..arrays import to_numpy
from ..gradients import Problem, assess, losses_on, model_slopes
from ..risks import Risk, risk_value

# Derivatives of single draws that are kept, and how few of them tell a standard error.
SLOPE_BYTES, FEWEST_SLOPES = 256 * 2**20, 40


class Judgement(NamedTuple):
    """The policies of G runs on M draws each: thetas, losses, the risk with its density and standard error."""

    thetas: np.ndarray
    losses: np.ndarray
    risk: np.ndarray
    weights: np.ndarray
    standard_error: np.ndarray

    def finite(self) -> np.ndarray:
        """Which runs have a risk and losses that are numbers."""
        return np.isfinite(self.risk) & np.isfinite(self.losses).all(axis=1)

    def clearly_above(self, other: Judgement) -> np.ndarray:
        """Which runs have a larger risk than another's on the same draws, beyond what chance explains.

        A risk without a standard error of its own is compared by that of the losses' differences.
        """
        noise = np.maximum(self.standard_error, other.standard_error)
        difference = self.losses - other.losses
        paired = difference.std(axis=1) / np.sqrt(difference.shape[1])
        noise = np.where(np.isnan(noise), paired, noise)
        return self.risk - other.risk > 5.0 * noise + 1e-9 * np.abs(other.risk)


def judge(problem: Problem, probabilities: np.ndarray, thetas: np.ndarray) -> Judgement:
    """The risk of policies `[G, S, A]` on draws `[G, M, ...]`, under a risk whose arrays have a leading axis G."""
    losses = losses_on(problem, probabilities, thetas)
    return Judgement(thetas, losses, *to_numpy(_assess(problem.risk, losses)))


def judge_closely(
    problem: Problem, risks: Sequence[Risk], probabilities: np.ndarray, thetas: np.ndarray
) -> tuple[Judgement, list[np.ndarray]]:
    """`judge`, and for each run the losses' derivatives by the table at its first draws, as many as memory takes."""
    groups, draws = thetas.shape[:2]
    few = int(np.clip(SLOPE_BYTES // (8 * probabilities[0].size), min(draws, FEWEST_SLOPES), draws))
    losses = np.empty((groups, draws))
    # The models of all runs go through in one stream.
    which, flat = np.repeat(np.arange(groups), few), thetas.reshape(-1, *thetas.shape[2:])
    places = (np.arange(groups)[:, None] * draws + np.arange(few)).ravel()
    found, slope, _ = model_slopes(problem, probabilities, flat, which, places)
    losses[:, :few] = found.reshape(groups, few)
    slopes = list(slope.reshape(groups, few, *probabilities.shape[1:]))
    if few < draws:
        losses[:, few:] = losses_on(problem, probabilities, thetas[:, few:])
    known = [known_of(risk, row) for risk, row in zip(risks, losses, strict=True)]
    parts = (np.array([getattr(one, name) for one in known]) for name in ("value", "weights", "standard_error"))
    return Judgement(thetas, losses, *parts), slopes


class Known(NamedTuple):
    """All there is to know of a risk on one sample.

    Attributes:
        value, weights: the risk and the density xi* that attains it.
        influence: derivative of the value by each draw's weight, centred; NaN where there is none.
        standard_error: of the value.
    """

    value: float
    weights: np.ndarray
    influence: np.ndarray
    standard_error: float

    def error_of_difference(self, other: Known, losses: np.ndarray, others: np.ndarray) -> float:
        """Standard error of the difference of two risks on the same draws; of the losses', where a risk has none."""
        if len(losses) == 1:
            return float("nan")
        difference = self.influence - other.influence
        if not np.all(np.isfinite(difference)):
            difference = losses - others
        return float(np.sqrt(((difference - difference.mean()) ** 2).sum()) / len(losses))


def known_of(risk: Risk, losses: np.ndarray) -> Known:
    """Value, density, influence and standard error of a sample of equally weighted losses."""
    value, weights, influence = to_numpy(_know(risk, losses))
    influence = influence - influence.mean()
    error = np.sqrt((influence**2).sum()) / len(losses) if len(losses) > 1 else np.nan
    return Known(float(value), weights, influence, float(error))


@eqx.filter_jit
def _know(risk: Risk, losses: Any) -> tuple[Any, Any, Any]:
    equal = jnp.full(losses.shape, 1.0 / losses.shape[0])
    value, weights = risk_value(risk, losses, equal)
    return value, weights, risk.influence(losses, equal)


@eqx.filter_jit
def _assess(risk: Risk, losses: Any) -> tuple[Any, Any, Any]:
    value, weights = assess(risk, losses)
    return value, weights, jax.vmap(lambda risk, row: risk.standard_error(row))(risk, losses)
