"""The best policy against the worst kernel in a KL ball around a nominal one."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_kind
from ..engine import level_of, plan
from ..errors import InputError
from ..kernels import Kernel
from ..losses import batch_of
from ..models import MDP
from ..policies import TabularPolicy
from ..records import Record
from ..risks import worst_rows

# Planning ends at this residual as a share of the largest value, the costs' level taken off: some thousand times the
# rounding of a sweep.
TOLERANCE = 1e-12

# Actions whose qualities differ by less, as a share of the largest, are as good as one another: the first is taken. In
# wide balls most states have several, and rounding would choose among them.
TIE = 1e-10

# Ten turns are usual; a large model is planned against a held kernel until its residual is this much below the last.
MOST_IMPROVEMENTS = 1000
EVALUATED = 1e-2


class RobustPlan(Record):
    """The best policy against the worst kernel of a KL ball, and that kernel.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> robust = pr.robust_plan(lake.at((0.3, 0.5)), radius=0.05)
    >>> bool(lake.start @ robust.values > lake.start @ pr.plan(lake.at((0.3, 0.5))).values)
    True

    Attributes:
        policy: deterministic, best against its worst kernel; of actions that are as good, the first.
        values: `[S]` the least worst-case expected discounted cost from each state.
        quality: `[S, A]` the same for a first action.
        kernel: the worst case, along the support of the nominal kernel.
        radius: `[S, A]` of each pair's ball.
        residual: largest violation of the robust Bellman equation at the last sweep.
        error_bound: what the values and the quality may be off by, `residual discount / (1 - discount)`.
        iterations: worst kernels found, each of all pairs.
        converged: whether the residual came down to rounding.
    """

    policy: TabularPolicy
    values: Float[Array, " S"]
    quality: Float[Array, "S A"]
    kernel: Kernel
    radius: Float[Array, "S A"]
    residual: float
    error_bound: float
    iterations: int
    converged: bool


def robust_plan(mdp: MDP, radius: Any) -> RobustPlan:
    """Robust planning for costs, every pair's kernel free in a KL ball around its nominal row.

    The fixed point of `Q(s, a) = c(s, a) + discount max { p V : KL(p || P(s, a)) <= radius }`, `V = min_a Q`.
    The maximum is found through its dual, `min_{t > 0} t radius + t log sum_b P(s, a, b) exp(V_b / t)`. A move
    of nominal probability 0 keeps it; a radius from `-log P(worst successors)` on puts all mass on those.

    Policy iteration of the adversary (Hoffman and Karp): the worst kernel at the values is held, and the values are
    those of the best policy against it, which never fall from turn to turn. Memory and time go with the lists.

    Args:
        mdp: the nominal model.
        radius: of the balls, in nats: one number or `[S, A]`; 0 is the nominal model, `inf` its worst successors.

    >>> import prudent as pr
    >>> coin = pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]])
    >>> mdp = pr.MDP(coin, cost=[[0.0], [1.0]], start=0, discount=0.5)
    >>> [round(float(pr.robust_plan(mdp, radius).values[0]), 3) for radius in (0.0, 0.1, 1.0)]
    [0.667, 0.837, 1.0]
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    support = mdp.kernel.support
    radii = np.broadcast_to(_checked_radius(radius, support.shape[:2]), support.shape[:2])
    # Successors first: NumPy's loops run along the last axes, and pairs are many.
    nominal = np.moveaxis(np.asarray(mdp.kernel.probability), 2, 0).copy()
    nominal /= nominal.sum(axis=0)
    index = np.moveaxis(support.index(), 2, 0)
    cost, discount = np.asarray(mdp.cost), float(mdp.discount)
    # Given back at the end: a constant cost changes no policy, and its rounding would hide what does.
    level = level_of(cost)
    cost, whole = cost - level, level / (1.0 - discount)
    values, iterations, models = cost.min(axis=1), 0, batch_of(mdp)
    while True:
        ahead = values[index]
        worst = worst_rows(nominal, ahead, radii)
        quality = cost + discount * (worst * ahead).sum(axis=0)
        residual, iterations = float(np.abs(quality.min(axis=1) - values).max()), iterations + 1
        largest = float(np.abs(quality).max())
        converged = residual <= TOLERANCE * largest
        if converged or iterations == MOST_IMPROVEMENTS:
            break
        allowed = max(EVALUATED * residual, 0.5 * TOLERANCE * largest)
        held = np.moveaxis(worst, 0, 2).reshape(*models.probability.shape)
        guess = quality.min(axis=1)[:, None]
        found = plan(models._replace(probability=held), cost[:, :, None], allowed / (1.0 - discount), guess)
        values = found.values[:, 0]
    best = quality <= quality.min(axis=1, keepdims=True) + TIE * np.abs(quality).max()
    return RobustPlan(
        policy=TabularPolicy.deterministic(best.argmax(axis=1), support.actions).named(support.labels),
        values=quality.min(axis=1) + whole,
        quality=quality + whole,
        kernel=Kernel(support, np.moveaxis(worst, 0, 2)),
        radius=np.array(radii),
        residual=residual,
        error_bound=residual * discount / (1.0 - discount),
        iterations=iterations,
        converged=converged,
    )


def _checked_radius(radius: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A radius, or one for each entry of `shape`; refused where it is negative or not a number."""
    array = np.asarray(as_float(radius, "radius"))
    if array.shape not in ((), shape):
        raise InputError(f"radius must be one number or have shape {shape}, got shape {array.shape}")
    bad = np.argwhere(~(array >= 0))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        place = f" at state {where[0]}, action {where[1]}" if where else ""
        raise InputError(f"radius of a KL ball must be >= 0, got {array[where]}{place}; 0 keeps the nominal kernel")
    return array
