"""How long an episode should be, on how many draws and with which step, by the paper's finite-episode error bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prudent import BRPG, Adjoint, EpisodeStart, Expectation, InputError, Objective, Posterior, RandomIterate, Risk
from prudent.arrays import Array, as_float, as_whole, in_float64, is_concrete, require_size
from prudent.gradients import RiskOfLosses, SampledRisk
from prudent.records import Record, field, tree_map
from prudent.seeds import Stream, generator
from prudent.solvers import flat, unflat

# Length of the step along which the gradient's change is measured.
PROBE = 1e-3


class Scales(NamedTuple):
    """What the bound of an episode is made of, estimated at its first policy from a posterior sample.

    The paper takes suprema over all policies and the distance to the truth; here the truth is a posterior
    draw and the policy the one the episode starts from.

    >>> from prudent_studies.theorem import Scales
    >>> Scales(loss_gap=2.0, gradient_gap=3.0, smoothness=0.5, noise=4.0).loss_gap
    2.0

    Attributes:
        loss_gap: D, the mean of `|G(alpha) - C(alpha, theta)|`.
        gradient_gap: E, the mean of `||grad G(alpha) - grad C(alpha, theta)||`.
        smoothness: L, how fast `grad G` changes along itself.
        noise: sigma, the variance of `xi*(theta) grad C(alpha, theta)`, summed over the parameters; NaN where the
            thetas compared with are not the draws.
    """

    loss_gap: float
    gradient_gap: float
    smoothness: float
    noise: float


class ByTheorem(Record):
    """Choose the solver of each episode by the finite-episode error bound, for a mean gradient norm of epsilon.

    Its proof needs, in episode i, `t = Theta(L_i (E_{i-1} + D_i) / epsilon^2)` iterations of step `1 / (2 L_i)` on `r =
    12 sigma / epsilon^2` fresh draws each, and an output drawn from all iterates. All four are set; L and r are rounded
    up to powers of two, which the proof allows, so that episodes share compiled code. What stays open: the constant of
    t, which holds numbers that cannot be computed (`factor`), and that D, E, L and sigma are estimated at the episode's
    first policy, where the theorem has suprema over all policies. Where `most` or `most_draws` cuts an answer short,
    the theorem says nothing.

    >>> from prudent_studies.theorem import ByTheorem, Scales
    >>> rule = ByTheorem(epsilon=0.5, most=200)
    >>> now, before = Scales(2.0, 3.0, 0.5, noise=1.0), Scales(4.0, 5.0, 0.5, noise=1.0)
    >>> rule.iterations(now, before), rule.draws(now), rule.step(now)
    (14, 64, 1.0)

    Args:
        epsilon: the mean gradient norm wanted.
        factor: the constant the theorem leaves open.
        least, most: bounds on the iterations.
        samples: posterior draws the scales are estimated from.
        most_draws: bound on r.
        solver: whose other settings each episode has.
    """

    epsilon: Float[Array, ""] = field(converter=as_float)
    factor: Float[Array, ""] = field(converter=as_float, default=1.0)
    least: int = field(static=True, converter=as_whole, default=1)
    most: int = field(static=True, converter=as_whole, default=1000)
    samples: int = field(static=True, converter=as_whole, default=64)
    most_draws: int = field(static=True, converter=as_whole, default=1024)
    solver: BRPG = field(static=True, default=BRPG())

    def __check_init__(self) -> None:
        for name in ("epsilon", "factor"):
            value = getattr(self, name)
            if is_concrete(value) and not (value.shape == () and 0 < value < np.inf):
                raise InputError(f"ByTheorem {name} must be one number > 0, got {value}")
        for name in ("least", "most", "samples", "most_draws"):
            require_size(f"ByTheorem {name}", getattr(self, name))
        if self.least > self.most:
            raise InputError(f"ByTheorem needs least <= most, got {self.least} and {self.most}")

    def __call__(self, start: EpisodeStart) -> BRPG:
        """Return the solver of an episode, as `solver=` of `run_episodes`; D, E, L and sigma are estimated here."""
        now = self._scales(start, start.parameters, start.belief, 0)
        if not start.episodes:
            return self.settings(now, now)
        earlier, last = start.episodes[:-1], start.episodes[-1]
        first = earlier[-1].solution.parameters if earlier else start.objective.initial()
        return self.settings(now, self._scales(start, first, last.belief, 1))

    def _scales(self, start: EpisodeStart, parameters: Any, belief: Posterior, number: int) -> Scales:
        thetas = belief.draw(generator(start.seed, Stream.SCALES, number), self.samples)
        return estimate_scales(start.objective, start.risk, [parameters], np.asarray(thetas)[None])[0]

    def settings(self, now: Scales, before: Scales) -> BRPG:
        """Return BR-PG with the theorem's iterations, draws, step and output."""
        changes = {"iterations": self.iterations(now, before), "samples": self.draws(now), "step": self.step(now)}
        return dataclasses.replace(self.solver, output=RandomIterate(), **changes)

    def iterations(self, now: Scales, before: Scales) -> int:
        """t_i, within its bounds; the first episode has no episode before it and uses its own E."""
        wanted = self.factor * _power_above(now.smoothness) * (before.gradient_gap + now.loss_gap) / self.epsilon**2
        if not np.isfinite(wanted):
            raise InputError(f"the scales of the error bound are not numbers: {now}; check the loss")
        return int(np.clip(np.ceil(wanted), self.least, self.most))

    def draws(self, now: Scales) -> int:
        """r, the draws of an iteration, up to its bound."""
        wanted = 12.0 * now.noise / self.epsilon**2
        return int(min(_power_above(max(float(wanted), 1.0)), self.most_draws))

    def step(self, now: Scales) -> float:
        """`1 / (2 L)`; 1 where the gradient does not change at all."""
        return 0.5 / _power_above(now.smoothness) if now.smoothness > 0 else 1.0


def _power_above(number: float) -> float:
    """The least power of two that is no less; 0 of 0."""
    return float(2.0 ** np.ceil(np.log2(number))) if number > 0 else 0.0


@in_float64
def estimate_scales(
    objective: Objective,
    risk: Risk,
    parameters: Sequence[Any],
    thetas: Float[np.ndarray, "G M ..."],
    against: Float[np.ndarray, "G K ..."] | None = None,
) -> list[Scales]:
    """D, E, L and sigma at G policies, each from M posterior draws of its own.

    Args:
        objective: what is lost.
        risk: that is minimised, without a leading axis.
        parameters: of each policy.
        thetas: the draws that make up `G(alpha)`.
        against: the thetas whose `C(alpha, theta)` it is compared with, such as the truth; the draws when left out.
    """
    groups, draws = thetas.shape[:2]
    against = thetas if against is None else against
    repeated = tree_map(lambda leaf: np.broadcast_to(leaf, (groups, *np.shape(leaf))), risk)
    stacked = tree_map(lambda *leaves: np.stack([as_float(leaf) for leaf in leaves]), *parameters)
    sampled = SampledRisk(objective, repeated, thetas, np.full((groups, draws), 1.0 / draws))
    result, gradient = _gradients(sampled, stacked)
    # Every theta compared with is a group of its own: its risk is its one loss.
    others = against.shape[1]
    alone = SampledRisk(
        objective, Expectation(), against.reshape(-1, 1, *against.shape[2:]), np.ones((groups * others, 1))
    )
    single, slopes = _gradients(alone, tree_map(lambda leaf: np.repeat(leaf, others, axis=0), stacked))
    off = single.value.reshape(groups, others) - result.value[:, None]
    each = slopes.reshape(groups, others, -1)
    length = np.linalg.norm(gradient, axis=1, keepdims=True)
    ahead = flat(stacked) + PROBE * gradient / np.where(length > 0, length, 1.0)
    _, moved = _gradients(sampled, unflat(ahead, stacked))
    noise = np.full(groups, np.nan)
    if against is thetas:
        weighted = result.weights[:, :, None] * each - gradient[:, None]
        noise = (weighted**2).sum(axis=(1, 2)) / max(others - 1, 1)
    columns = (
        np.abs(off).mean(axis=1),
        np.linalg.norm(each - gradient[:, None], axis=2).mean(axis=1),
        np.linalg.norm(moved - gradient, axis=1) / PROBE,
        noise,
    )
    return [Scales(*row) for row in np.stack(columns, axis=1).tolist()]


def _gradients(sampled: SampledRisk, parameters: Any) -> tuple[RiskOfLosses, Float[np.ndarray, "G D"]]:
    result, gradient = Adjoint()(sampled, parameters)
    return result, flat(gradient)
