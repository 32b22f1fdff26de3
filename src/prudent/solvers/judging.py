"""How good policies are on draws that no iteration has seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..arrays import to_numpy
from ..gradients import Problem, assess, losses_on
from ..risks import Risk


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


@eqx.filter_jit
def _assess(risk: Risk, losses: Any) -> tuple[Any, Any, Any]:
    value, weights = assess(risk, losses)
    return value, weights, jax.vmap(lambda risk, row: risk.standard_error(row))(risk, losses)
