"""Tables that tests are parametrised over; a new part of the library is added here once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import prudent as pr


class RiskCase(NamedTuple):
    """A kind of risk; `build` makes one from a number in [0, 1), which may be a JAX tracer."""

    name: str
    build: Callable[[Any], pr.Risk]
    has_standard_error: bool = True


def mixture(level: Any) -> pr.Mixture:
    parts = (pr.Expectation(), pr.CVaR(level), pr.ChiSquareBall(level))
    return pr.Mixture(parts, np.array([0.2, 0.5, 0.3]))


# Steps whose integral is 1 at every level, flat at level 0.
STEPS = np.array([1.5, 0.5, 0.0, -1.0, -1.0])

RISKS = (
    RiskCase("expectation", lambda level: pr.Expectation()),
    RiskCase("cvar", lambda level: pr.CVaR(level)),
    RiskCase("worst_case", lambda level: pr.WorstCase(), has_standard_error=False),
    RiskCase("mean_semideviation", lambda level: pr.MeanSemideviation(weight=level)),
    RiskCase("mean_semideviation_of_higher_order", lambda level: pr.MeanSemideviation(order=1.0 + 4.0 * level)),
    RiskCase("spectral", lambda level: pr.Spectral(1.0 + level * STEPS)),
    RiskCase("distortion", lambda level: pr.Distortion(jnp.sqrt)),
    RiskCase("entropic_var", lambda level: pr.EntropicVaR(level)),
    RiskCase("kullback_leibler_ball", lambda level: pr.KullbackLeiblerBall(0.7 * level)),
    RiskCase("chi_square_ball", lambda level: pr.ChiSquareBall(3.0 * level)),
    RiskCase("total_variation_ball", lambda level: pr.TotalVariationBall(level), has_standard_error=False),
    RiskCase("quantile_deviation", lambda level: pr.QuantileDeviation(level, 0.9)),
    RiskCase("mixture", mixture),
)

# Monotone, but not convex.
PERCENTILE = RiskCase("smoothed_var", lambda level: pr.SmoothedVaR(0.005 + 0.99 * level, 0.2))


def losses(target: np.ndarray, scenarios: np.ndarray) -> dict[str, pr.ConvexLoss]:
    """Every kind of loss of the library, towards a target `[S, A]` and with penalties `[K, S, A]`."""
    return {
        "expected cost": pr.ExpectedCost(),
        "kl of states": pr.Imitation(target.sum(axis=1)),
        "kl": pr.Imitation(target),
        "reverse kl": pr.Imitation(target, pr.ReverseKullbackLeibler()),
        "chi-square": pr.Imitation(target, pr.ChiSquare()),
        "total variation": pr.Imitation(target, pr.TotalVariation(0.1)),
        "jensen-shannon": pr.Imitation(target, pr.JensenShannon()),
        "hellinger": pr.Imitation(target, pr.Hellinger()),
        "negative entropy": pr.NegativeEntropy(),
        "quadratic": pr.QuadraticDistance(target),
        "constrained": pr.ConstrainedCost(scenarios, multiplier=0.5, limit=2.0, risk=pr.CVaR(0.5)),
    }
