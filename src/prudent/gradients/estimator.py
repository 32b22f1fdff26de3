"""The risk of losses on posterior samples, what every estimator of its gradient is, and the exact one."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt32

from ..objectives import Objective, losses_of_pairs, slopes_on
from ..records import Record
from ..risks import Risk, assess_each, assess_sample, select_run


class RiskOfLosses(NamedTuple):
    """G risks on R draws each: their values, the losses, and the weights xi* behind them."""

    value: Float[np.ndarray, " G"]
    losses: Float[np.ndarray, "G R"]
    weights: Float[np.ndarray, "G R"]


class SampledRisk(NamedTuple):
    """What G runs minimise: `rho_theta(C(alpha, theta))`, each on draws of its own.

    Attributes:
        objective: what is lost.
        risk: its numbers have a leading axis G.
        thetas: the draws of each run.
        shares: their probabilities.
    """

    objective: Objective
    risk: Risk
    thetas: Float[np.ndarray, "G R ..."]
    shares: Float[np.ndarray, "G R"]

    @staticmethod
    def on(objective: Objective, risk: Risk, thetas: Float[np.ndarray, "G R ..."]) -> SampledRisk:
        """Return the risks on draws that count alike."""
        return SampledRisk(objective, risk, thetas, np.full(thetas.shape[:2], 1.0 / thetas.shape[1]))

    def pairs(self) -> tuple[Float[np.ndarray, "M ..."], Int[np.ndarray, " M"], Int[np.ndarray, " M"]]:
        """Return the draws of all runs, and of each of `M = G R` models its run and its draw."""
        runs, draws = self.shares.shape
        which = np.repeat(np.arange(runs), draws)
        return self.thetas.reshape(runs * draws, *self.thetas.shape[2:]), which, np.arange(runs * draws)

    def losses(self, parameters: Any) -> Float[np.ndarray, "G R"]:
        """Return `C(alpha_g, theta_gr)` at parameters with leading axis G."""
        points = self.objective.points(parameters)
        return losses_of_pairs(self.objective, points, *self.pairs()).reshape(self.shares.shape)

    def at(self, parameters: Any) -> RiskOfLosses:
        """Return the risks of G parameter sets."""
        losses = self.losses(parameters)
        value, weights = assess_each(self.risk, losses, self.shares)
        return RiskOfLosses(value, losses, weights)


class GradientEstimator(Record):
    """A way to find `g(alpha) = sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equation 9 of the paper).

    Estimators differ in how they find `dC/dalpha`; the weights xi* are always the risk's own.
    """

    @property
    def by_values(self) -> bool:
        """Whether values of the loss are enough, so that it need not have a derivative."""
        return False

    @property
    def exact(self) -> bool:
        """Whether it is the derivative itself, which a solver may take by other means."""
        return False

    @abc.abstractmethod
    def __call__(
        self, sampled: SampledRisk, parameters: Any, words: UInt32[np.ndarray, "G 2"]
    ) -> tuple[RiskOfLosses, Any]:
        """Return the risks and their gradients, both with leading axis G.

        Args:
            sampled: the risks of G runs on their draws.
            parameters: of G runs, leading axis G.
            words: fresh random words for each run, for estimators that need chance.
        """


class Adjoint(GradientEstimator):
    """The exact gradient: `sum_k p_k xi*_k dC(alpha, theta_k)/dalpha` (equations 6 and 9 of the paper).

    One factorisation a model serves the occupancy and the adjoint solve; nothing is differenced.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> pr.solve(lake, lake.prior, gradient=pr.Adjoint(), solver=pr.BRPG(iterations=5)).iterations
    5
    """

    @property
    def exact(self) -> bool:
        """It is."""
        return True

    def __call__(self, sampled: SampledRisk, parameters: Any, words: Any = None) -> tuple[RiskOfLosses, Any]:
        """Return the risks and their gradients; no chance is involved, `words` are not used."""
        del words
        objective, shares = sampled.objective, sampled.shares
        points = objective.points(parameters)
        if objective.averages() is None:
            models = slopes_on(objective, points, *sampled.pairs())
            losses = models.losses.reshape(shares.shape)
            value, weights = assess_each(sampled.risk, losses, shares)
            # Models are last in memory, and summed where they are.
            each = np.moveaxis(models.slopes, 0, -1).reshape(*points.shape[1:], *shares.shape)
            slopes = np.moveaxis(np.einsum("...gr,gr->...g", each, shares * weights), -1, 0)
            return RiskOfLosses(value, losses, weights), objective.pull_back(parameters, slopes)
        runs = [_average(sampled, point, g) for g, point in enumerate(points)]
        found, slopes = zip(*runs, strict=True)
        risks = RiskOfLosses(*(np.stack(part) for part in zip(*found, strict=True)))
        return risks, objective.pull_back(parameters, np.stack(slopes))


def _average(sampled: SampledRisk, point: np.ndarray, g: int) -> tuple[tuple, np.ndarray]:
    """Return what run g risks and its derivative by the point, of models that the objective works through itself."""
    own, shares = sampled.objective.averages(), sampled.shares[g]
    assert own is not None
    risk, found = select_run(sampled.risk, g), []

    def weigh(losses: np.ndarray) -> np.ndarray:
        found.append((*assess_sample(risk, losses, shares), losses))
        return shares * found[-1][1]

    slope = own.slopes(point, sampled.thetas[g], weigh).slope
    value, weights, losses = found[-1]
    return (value, losses, weights), slope
