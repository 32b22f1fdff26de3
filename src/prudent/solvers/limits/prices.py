"""What one unit more of a limit saves and one unit less costs: they differ at a corner of the frontier.

Any number between the two is a multiplier there, so a multiplier alone does not say what a looser limit saves.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .descent import LimitIterate
from .problem import LimitQuestion, Variables
from .program import merit, minimum_near

# How far a limit is moved, in units of its loss: on a sample, across the many small kinks of its risk.
NEAR, NEAR_ON_SAMPLES = 1e-4, 1e-3

# In units of the objective for one of the limit, what is smaller is the program's rounding.
NOTHING = 1e-4

# How far a policy may move with it, and what its planes leave open.
RADIUS, ACCURACY = 0.05, 1e-5

# What these differences are off by, as a share: the multipliers of a point that was polished are closer.
ROUGH = 0.01


def prices_beside(question: LimitQuestion, variables: Variables, point: LimitIterate) -> Float[np.ndarray, "L 2"]:
    """For each limit what one more of it saves and what one less costs, to first order; infinite where none keeps it.

    Both are differences of the least of the linearised problem, with that limit moved and the others as they are.
    """
    radius = RADIUS if np.isfinite(variables.widest) else RADIUS * float(1.0 + np.abs(point.x).max())
    near = (NEAR if question.draws.exact else NEAR_ON_SAMPLES) * question.units[1:]

    def least(moved: np.ndarray) -> float:
        asked = question._replace(aims=question.aims + moved)
        step, values = minimum_near(asked, variables, point.x, point.here, point.prices, radius, ACCURACY)
        broken = asked.breach(values) > 0.1 * near
        return np.inf if broken.any() else merit(asked, values, step.prices)

    here = least(np.zeros(question.limits))
    found = []
    for j in range(question.limits):
        moved = near[j] * np.eye(question.limits)[j]
        found.append(((here - least(moved)) / near[j], (least(-moved) - here) / near[j]))
    prices = np.nan_to_num(np.array(found), nan=np.inf, posinf=np.inf, neginf=0.0)
    prices = np.where(prices * question.units[1:, None] > NOTHING * question.units[0], prices, 0.0)
    # The least is convex in the limits; rounding can cross the two.
    return np.sort(prices, axis=1)


def within_prices(multipliers: Float[np.ndarray, " L"], prices: Float[np.ndarray, "L 2"]) -> Float[np.ndarray, " L"]:
    """Multipliers as they are, unless the newest step ended on one side of a corner and has none of it."""
    return np.clip(multipliers, (1.0 - ROUGH) * prices[:, 0], (1.0 + ROUGH) * prices[:, 1])
