"""How often a closed loop is unstable under a belief, and how to come from a gain that is to one that is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..posteriors import Posterior, WeightedDraws
from ..records import Record
from .beliefs import CutOff, LinearBelief, Share

# A direction of (state, action) of which logs took off less than this share of the prior's variance is not learned.
LEARNED = 0.5

# Annealing: how close to instability the discount may bring a gain at first, halving the distance where that brings no
# progress; most discounts, steps at each, the least fall of the largest radius that is progress, and the rounds whose
# pace tells whether the rest will do.
NEAR, DISCOUNTS, STEPS, FALL, PACED = 0.97, 40, 12, 1e-3, 6

# What an infinite loss counts as, in losses of where a descent begins: so little that interpolation makes a short step.
TOO_FAR = 10.0


class Stability(Record):
    """How often the closed loop is unstable under a belief, what the belief was cut off, and what logs taught it.

    >>> import numpy as np, prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> belief = pr.Draws([[[0.9, 1.0]], [[1.02, 1.0]]])
    >>> stability = pr.evaluate([[0.0]], family, belief).notes
    >>> stability.unstable.value, stability.growing.value
    (0.0, 0.5)

    Attributes:
        unstable: share of the belief where `sqrt(discount) * radius >= 1`, so that the loss is infinite.
        growing: share where `radius >= 1`, so that states grow, though discounting may hide it.
        cut_off: mass of the posterior outside the set it was cut off at; None where it was not.
        learned: `[n + m]` share of the prior's variance that logs took off, by direction of `(s, a)`, the least known
            first; None where the belief does not know.
    """

    unstable: Share
    growing: Share
    cut_off: Share | None
    learned: Float[np.ndarray, " p"] | None

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a summary, as (label, text)."""
        rows = [("unstable", str(self.unstable)), ("states grow", str(self.growing))]
        if self.cut_off is not None:
            rows.append(("cut off", f"{self.cut_off}: the risk is of the belief without it"))
        if self.learned is not None and np.any(self.learned < LEARNED):
            few, size = int((self.learned < LEARNED).sum()), len(self.learned)
            rows.append(
                (
                    "excitation",
                    f"in {few} of {size} directions of (state, action) the log took off less than {LEARNED:.0%} of the "
                    f"prior's variance, {self.learned[0]:.1%} at worst: there the belief is the prior's",
                )
            )
        return rows


def radii(point: Float[np.ndarray, "m x"], thetas: Float[np.ndarray, "N n q"]) -> Float[np.ndarray, " N"]:
    """Spectral radii of the closed loops."""
    n, m = thetas.shape[1], len(point)
    loops = thetas[:, :, :n] + thetas[:, :, n : n + m] @ point[:, 1:]
    return np.abs(np.linalg.eigvals(loops)).max(axis=1)


def stability_of(belief: Posterior, point: np.ndarray, draws: WeightedDraws, discount: float) -> Stability:
    """The closed loops of a policy on draws of the belief."""
    sizes = radii(point, draws.thetas)

    def share(bad: np.ndarray) -> Share:
        if draws.exact:
            value = float(draws.probabilities[bad].sum())
            return Share(value, value, value, len(draws), True)
        return Share.of(int(bad.sum()), len(draws))

    inner = belief.posterior if isinstance(belief, CutOff) else belief
    return Stability(
        share(np.sqrt(discount) * sizes >= 1.0),
        share(sizes >= 1.0),
        belief.mass_cut_off() if isinstance(belief, CutOff) else None,
        inner.learned() if isinstance(inner, LinearBelief) else None,
    )


def annealed(
    point: np.ndarray, thetas: np.ndarray, discount: float, descend: Callable[[np.ndarray, float], np.ndarray]
) -> np.ndarray | None:
    """A gain that is stable at all draws, or None where none was found.

    At a discount so small that the gain's losses are finite the worst are made smaller, which leaves room for a larger
    discount; and so on up to the discount itself. This is policy search by discount annealing. It is given up where the
    largest radius falls too slowly to get there in the rounds that are left.

    Args:
        point: where to begin.
        thetas: the draws.
        discount: to come to.
        descend: `(gain, discount) -> gain` with smaller losses at the worst draws, finite at all.
    """
    found, idle = [np.inf], 0
    for left in range(DISCOUNTS, 0, -1):
        largest = float(radii(point, thetas).max())
        if np.sqrt(discount) * largest < 1.0:
            return point
        idle = 0 if largest < found[-1] * (1.0 - FALL) else idle + 1
        found.append(min(found[-1], largest))
        if len(found) > PACED + 1 and found[-1] - left * (found[-1 - PACED] - found[-1]) / PACED > discount**-0.5:
            return None
        near = 1.0 - (1.0 - NEAR) * 0.5**idle
        point = descend(point, min(discount, (near / largest) ** 2))
    return None


def descended(evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], point: np.ndarray) -> np.ndarray:
    """A few steps of BFGS; a trial of infinite loss is a step too far."""
    from scipy.optimize import minimize  # slow to import

    value, slope = evaluate(point)

    def finite(flat: np.ndarray) -> tuple[float, np.ndarray]:
        found, turned = evaluate(flat.reshape(point.shape))
        return (found, turned.ravel()) if np.isfinite(found) else (TOO_FAR * value, np.zeros_like(flat))

    inverse = np.eye(point.size) * (0.1 / max(1e-12, float(np.linalg.norm(slope))))
    options = {"maxiter": STEPS, "hess_inv0": inverse}
    return minimize(finite, point.ravel(), jac=True, method="BFGS", options=options).x.reshape(point.shape)
