"""The best policy against the worst kernel in a KL ball around a nominal one: planned, or learned from a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_kind, require_number, require_size
from ..engine import level_of, plan
from ..errors import InputError
from ..kernels import Kernel
from ..losses import batch_of
from ..models import MDP
from ..policies import TabularPolicy
from ..records import Record
from ..risks import worst_rows
from ..seeds import Seed, generator

# Planning ends at this residual as a share of the largest value, the costs' level taken off: some thousand times the
# rounding of a sweep.
TOLERANCE = 1e-12

# Actions whose qualities differ by less, as a share of the largest, are as good as one another: the first is taken. In
# wide balls most states have several, and rounding would choose among them.
TIE = 1e-10

# Ten turns are usual; a large model is planned against a held kernel until its residual is this much below the last.
MOST_IMPROVEMENTS = 1000
EVALUATED = 1e-2

# Levels are drawn up to here: the bias is that of an empirical kernel of 2^31 samples.
LARGEST_LEVEL = 30

# Samples of this many updates, and of this many iterations at most, are held at a time.
BLOCK_UPDATES, BLOCK_ITERATIONS = 2**16, 256


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


class RobustQLearning(Record):
    """What robust Q-learning has learned of G models in R independent runs each.

    >>> import prudent as pr
    >>> mdp = pr.envs.frozen_lake("SF\\nHG", discount=0.5).at((0.3, 0.5))
    >>> learned = pr.robust_q_learning(mdp, radius=0.1, iterations=200, replications=3)
    >>> learned.quality.shape, learned.policy(replication=2).probabilities.shape
    ((1, 3, 4, 4), (4, 4))

    Attributes:
        quality: `[G, R, S, A]` the last Q.
        values: `[G, R, S]` its least entry in each state.
        radius: `[G]` of the KL balls.
        samples: `[G]` next states simulated for a state-action pair in a run, on average.
        geometric: parameter of the random level.
        iterations: updates of every pair.
    """

    quality: Float[Array, "G R S A"]
    values: Float[Array, "G R S"]
    radius: Float[Array, " G"]
    samples: Float[Array, " G"]
    geometric: float
    iterations: int

    def policy(self, model: int = 0, replication: int = 0) -> TabularPolicy:
        """The greedy policy of one run."""
        quality = np.asarray(self.quality)[model, replication]
        return TabularPolicy.deterministic(quality.argmin(axis=1), quality.shape[1])


def robust_q_learning(
    mdp: MDP | Sequence[MDP],
    radius: Any,
    *,
    iterations: int,
    geometric: float = 0.6,
    replications: int = 1,
    seed: Seed = 0,
) -> RobustQLearning:
    """Synchronous "Distributionally Robust Q-Learning" for costs; its limit is the quality of `robust_plan`.

    Update t = 1, 2, ... of every pair is `Q <- (1 - step) Q + step (c + discount Z)`, `step = 1 / (1 + (1 -
    discount) t)`, from Q = 0 and without clipping. Z is an unbiased estimate of the worst-case expectation
    `W(P) = max { p V : KL(p || P) <= radius }` at V = min_a Q by multilevel Monte Carlo: a level N is drawn with
    `P(N = n) = geometric (1 - geometric)^n` and 2^(N+1) next states are simulated, of which the first is s', and

        Z = V(s') + [ W(all) - (W(even) + W(odd)) / 2 ] / P(N),

    W of samples being that of their empirical kernel. The bracket's mean square falls like 4^-N, so that the
    variance is finite for `geometric < 3/4`; the mean number of samples, the sum of `2 (2 - 2 geometric)^n`, is
    finite for `geometric > 1/2`. Here samples are drawn as counts of each successor, two multinomials a pair
    whatever their number, and values below 1/2 buy a smaller variance at no price but in simulated states.
    Levels are drawn given that they are at most 30, with the probabilities this gives.

    Args:
        mdp: the nominal model, or several on one support, learned side by side.
        radius: of the KL balls: one number, or one for each model (one model may be given several).
        iterations: updates of every pair.
        geometric: parameter of the level, in (0, 3/4).
        replications: independent runs of each model.
        seed: of the simulator, a whole number.

    >>> import prudent as pr
    >>> coin = pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]])
    >>> mdp = pr.MDP(coin, cost=[[0.0], [1.0]], start=0, discount=0.5)
    >>> learned = pr.robust_q_learning(mdp, radius=0.1, iterations=1000, replications=20)
    >>> bool(abs(learned.values[0, :, 0].mean() - pr.robust_plan(mdp, 0.1).values[0]) < 0.05)
    True
    """
    models, radii = _checked_models(mdp, radius)
    iterations = require_size("iterations", iterations)
    replications = require_size("replications", replications)
    reason = "from 3/4 on the variance is infinite, up to 1/2 the mean number of samples is"
    require_number("geometric", geometric, "(0, 0.75)", reason)
    random = generator(seed)
    support = models[0].kernel.support
    shape = (len(models), replications, *support.shape[:2])
    nominal = np.stack([np.asarray(model.kernel.probability) for model in models])[:, None]
    nominal = nominal / nominal.sum(axis=-1, keepdims=True)
    chance = float(geometric) * (1.0 - float(geometric)) ** np.arange(LARGEST_LEVEL + 1)
    chance /= chance.sum()
    discount = np.stack([np.asarray(model.discount) for model in models])[:, None, None, None]
    cost = np.stack([np.asarray(model.cost) for model in models])[:, None]
    index = np.moveaxis(support.index(), 2, 0)
    radius_of = np.broadcast_to(radii[:, None, None, None], shape)

    # The samples do not depend on Q: those of a block are drawn at once, and blocks are always whole, so that a
    # longer run begins with the shorter one.
    block = max(1, min(BLOCK_ITERATIONS, BLOCK_UPDATES // int(np.prod(shape))))
    quality, simulated = np.zeros(shape), np.zeros(len(models))
    for first in range(1, iterations + 1, block):
        level = np.searchsorted(np.cumsum(chance)[:-1], random.random((block, *shape)), side="right")
        even, odd = (random.multinomial(2**level, nominal) for _ in range(2))
        uniform = random.random((block, *shape))
        # Successors first: NumPy's loops run along the last axes, and pairs are many.
        even, odd = (np.ascontiguousarray(np.moveaxis(half, -1, 1), dtype=float) for half in (even, odd))
        for turn in range(min(block, iterations + 1 - first)):
            values = np.moveaxis(quality.min(axis=3)[:, :, index], 2, 0)
            estimate = _estimate(values, radius_of, even[turn], odd[turn], uniform[turn], chance[level[turn]])
            step = 1.0 / (1.0 + (1.0 - discount) * (first + turn))
            quality = (1.0 - step) * quality + step * (cost + discount * estimate)
            simulated += (2.0 ** (level[turn] + 1)).mean(axis=(1, 2, 3))
    return RobustQLearning(quality, quality.min(axis=3), radii, simulated, float(geometric), iterations)


def _checked_models(mdp: MDP | Sequence[MDP], radius: Any) -> tuple[list[MDP], np.ndarray]:
    """One model and one radius for each of the G runs."""
    given = [mdp] if isinstance(mdp, MDP) else mdp
    require_kind("mdp", given, list | tuple, "an MDP, such as family.at(theta), or a list of them")
    models = list(given)
    if not models:
        raise InputError("mdp is an empty list; give at least one MDP")
    for number, model in enumerate(models):
        require_kind(f"mdp {number}", model, MDP, "an MDP, such as family.at(theta)")
        ours, first = model.kernel.support, models[0].kernel.support
        if ours is not first and (ours.shape != first.shape or not np.array_equal(ours.index(), first.index())):
            raise InputError(f"mdp {number} has another support than mdp 0; build all of them from one Support")
    radii = np.atleast_1d(as_float(radius, "radius"))
    if radii.ndim != 1 or (len(models) > 1 and len(radii) not in (1, len(models))) or not len(radii):
        raise InputError(f"radius must be one number or one for each of {len(models)} models, got shape {radii.shape}")
    bad = np.flatnonzero(~(radii >= 0))
    if len(bad):
        raise InputError(f"radius of a KL ball must be >= 0, got {radii[bad[0]]} at position {bad[0]}")
    count = max(len(models), len(radii))
    return (models * count if len(models) == 1 else models), np.broadcast_to(radii, count).copy()


def _estimate(
    values: Float[np.ndarray, "B G R S A"],
    radius: Float[np.ndarray, "G R S A"],
    even: Float[np.ndarray, "B G R S A"],
    odd: Float[np.ndarray, "B G R S A"],
    uniform: Float[np.ndarray, "G R S A"],
    chance: Float[np.ndarray, "G R S A"],
) -> Float[np.ndarray, "G R S A"]:
    """The unbiased estimate Z from the counts of the two halves."""
    half, both = even.sum(axis=0), even + odd
    # Given their counts, any of the samples is equally likely to have come first.
    slot = (np.cumsum(both, axis=0) <= uniform * 2.0 * half).sum(axis=0)
    estimate = np.take_along_axis(values, slot[None], axis=0)[0]
    # Halves with equal counts cancel, in about half of all pairs.
    differ = (even != odd).any(axis=0)
    even, odd, both, half = even[:, differ], odd[:, differ], both[:, differ], half[differ]
    kernels = np.stack([both / (2.0 * half), even / half, odd / half], axis=1)
    repeated = np.broadcast_to(values[:, differ][:, None], kernels.shape)
    worst = (worst_rows(kernels, repeated, np.broadcast_to(radius[differ], kernels.shape[1:])) * repeated).sum(axis=0)
    estimate[differ] += (worst[0] - (worst[1] + worst[2]) / 2.0) / chance[differ]
    return estimate
