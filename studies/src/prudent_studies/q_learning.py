"""Robust Q-learning: the worst kernel of a KL ball, learned from a simulator of the nominal one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from prudent import MDP, InputError, TabularPolicy
from prudent.arrays import Array, as_float, require_kind, require_number, require_size
from prudent.records import Record
from prudent.risks import worst_rows
from prudent.seeds import Seed, generator

# Levels are drawn up to here: the bias is that of an empirical kernel of 2^31 samples.
LARGEST_LEVEL = 30

# Samples of this many updates, and of this many iterations at most, are held at a time.
BLOCK_UPDATES, BLOCK_ITERATIONS = 2**16, 256


class RobustQLearning(Record):
    """What robust Q-learning has learned of G models in R independent runs each.

    >>> import prudent as pr
    >>> from prudent_studies.q_learning import robust_q_learning
    >>> mdp = pr.envs.frozen_lake("SF\\nHG", discount=0.5).at((0.3, 0.5))
    >>> learned = robust_q_learning(mdp, radius=0.1, iterations=200, replications=3)
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
    >>> from prudent_studies.q_learning import robust_q_learning
    >>> coin = pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]])
    >>> mdp = pr.MDP(coin, cost=[[0.0], [1.0]], start=0, discount=0.5)
    >>> learned = robust_q_learning(mdp, radius=0.1, iterations=1000, replications=20)
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
