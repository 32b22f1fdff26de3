"""What a limit costs: its multiplier, and its price on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..linear_model import LinearModel
from ..prox_linear import linear_model
from ..question import Found, Question, evaluate_points
from ..space import Space

# For a price a limit is moved so far, in units of its loss: on a sample, across the many small kinks of its risk.
NEAR, NEAR_ON_SAMPLES = 1e-4, 1e-3

# In units of the objective for one of the limit, what is smaller is the program's rounding.
NOTHING = 1e-4

# How far a policy may move with the limit, and what its planes leave open.
RADIUS, ACCURACY = 0.05, 1e-5

# What these differences are off by, as a share: the multipliers of a point that was polished are closer.
ROUGH = 0.01

# A breach below this share of a unit is none.
BROKEN = 1e-6


def evaluate_choice(space: Space, question: Question, parameters: Any) -> Found:
    """Return the losses and their derivatives at one parameter set, which has an axis of length 1."""
    return evaluate_points(question, np.asarray(space.objective.points(parameters)), np.ones(1, bool))


def multipliers_at(
    space: Space, question: Question, found: Found, parameters: Any, prices: Float[np.ndarray, " L"]
) -> Float[np.ndarray, " L"]:
    """Return the multipliers of the linearised problem near a point; NaN where too little is known of it."""
    if not found.each:
        return np.full(question.limits, np.nan)
    return _model(space, question, found, parameters, RADIUS).minimise_feasibly(prices).multipliers


def prices_beside(
    space: Space, question: Question, found: Found, parameters: Any, prices: Float[np.ndarray, " L"]
) -> Float[np.ndarray, "L 2"]:
    """Return for each limit what one more of it saves and what one less costs, to first order.

    They differ at a corner of the frontier, where any number between the two is a multiplier, so that a multiplier
    alone does not say what a looser limit saves. Both are differences of the least of the linearised problem, with that
    limit moved and the others as they are; infinite where no policy near by keeps the limit, NaN where it is not known.
    """
    if not found.each:
        return np.full((question.limits, 2), np.nan)
    points = np.asarray(space.objective.points(parameters))
    wide = 1.0 if space.table is not None else float(1.0 + np.abs(points).max())
    near = (NEAR if question.draws.exact else NEAR_ON_SAMPLES) * question.units[1:]

    def least(moved: np.ndarray) -> float:
        asked = question._replace(aims=question.aims + moved)
        model = _model(space, asked, found, parameters, RADIUS * wide)
        step = model.minimise_feasibly(prices, ACCURACY)
        values = model.values + step.rises
        return np.inf if np.any(asked.breach(values) > 0.1 * near) else float(asked.merit(values, step.prices))

    middle, moves = least(np.zeros(question.limits)), np.diag(near)
    with np.errstate(invalid="ignore"):
        both = [((middle - least(move)) / move[j], (least(-move) - middle) / move[j]) for j, move in enumerate(moves)]
    known = np.nan_to_num(np.array(both), nan=np.inf, posinf=np.inf, neginf=0.0)
    known = np.where(known * question.units[1:, None] > NOTHING * question.units[0], known, 0.0)
    # The least is convex in the limits; rounding can cross the two.
    return np.sort(known, axis=1)


def within_prices(multipliers: Float[np.ndarray, " L"], prices: Float[np.ndarray, "L 2"]) -> Float[np.ndarray, " L"]:
    """Return multipliers as they are, unless the newest step ended on one side of a corner and has none of it."""
    return np.clip(multipliers, (1.0 - ROUGH) * prices[:, 0], (1.0 + ROUGH) * prices[:, 1])


def _model(space: Space, question: Question, found: Found, parameters: Any, radius: float) -> LinearModel:
    point = np.asarray(space.objective.points(parameters))[0]
    return linear_model(space, question, found, parameters, 0, space.region(parameters, point, 0, radius))
