"""The gradient estimators against the exact gradient, and the zeroth-order error against its settings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent import CVaR, ExpectedCost, Imitation, NegativeEntropy
from prudent.arrays import Array, in_float64
from prudent.autodiff import jnp
from prudent.envs import FrozenLake, frozen_lake
from prudent.gradients import Adjoint, GradientEstimator, SampledRisk, ZerothOrder, directions
from prudent.losses import Loss
from prudent.records import Record, tree_map

MAP = "SFF\nHFG"
TRUTH = (0.3, 0.1)
DRAWS = 30
LEVEL = 0.5
DIRECTIONS = (10, 100, 1000)
HORIZONS = (20, 40, 80, 160, 320)
RADII = tuple(10.0**-power for power in range(13, -2, -1))


def library_losses(lake: FrozenLake) -> dict[str, Loss]:
    """Every kind of loss of the library, on a lake, with an expert to imitate."""
    mdp = lake.at(TRUTH)
    expert = 0.9 * np.asarray(pr.plan(mdp).policy.probabilities) + 0.1 / mdp.cost.shape[1]
    shares = (1.0 - float(mdp.discount)) * pr.occupancy(mdp, expert)
    penalties = np.random.default_rng(0).uniform(size=(20, *mdp.cost.shape))
    divergences = (
        pr.KullbackLeibler(),
        pr.ReverseKullbackLeibler(),
        pr.ChiSquare(),
        pr.TotalVariation(0.1),
        pr.JensenShannon(),
        pr.Hellinger(),
    )
    return {
        "expected cost": ExpectedCost(),
        **{f"{type(d).__name__} to an expert": Imitation(shares.sum(axis=1), d) for d in divergences},
        "KullbackLeibler, state-action": Imitation(shares),
        "negative entropy": NegativeEntropy(),
        "quadratic distance": pr.QuadraticDistance(shares),
        "constrained cost": pr.ConstrainedCost(penalties, multiplier=0.5, limit=5.0, risk=CVaR(0.8)),
        "cost + 20 entropy": ExpectedCost() + 20.0 * NegativeEntropy(),
        "a user's function": lambda occupancy, mdp: ((occupancy - 0.5) ** 2).sum() + jnp.exp(0.1 * occupancy).sum(),
    }


Problem = tuple[pr.Objective, pr.CVaR]
"""What is lost, and the risk of each group."""


class Agreement(NamedTuple):
    """How far the estimators are from the exact gradient of one loss, relative to its norm.

    Attributes:
        loss: its name.
        conformance: what `check_loss` found.
        variational: the largest error over the points.
        zeroth_order: root mean square error over the points, for each number of directions.
    """

    loss: str
    conformance: pr.Conformance
    variational: float
    zeroth_order: tuple[float, ...]


@in_float64
def agreement(seed: int = 0, points: int = 8) -> list[Agreement]:
    """Each kind of loss of the library, at random softmax policies."""
    lake = frozen_lake(MAP)
    setting = Setting.of(lake, points, seed)
    losses = library_losses(lake)
    rows = []
    for name, loss in losses.items():
        # All losses with the weights 0 and 1: one compilation an estimator serves every loss.
        weighted = [float(other == name) * pr.as_convex(each) for other, each in losses.items()]
        problem = setting.problem(sum(weighted[1:], weighted[0]))
        exact = setting.gradient(Adjoint(), problem)

        def error(estimator: GradientEstimator, problem: Problem = problem, exact: np.ndarray = exact) -> np.ndarray:
            return _relative(setting.gradient(estimator, problem), exact)

        rows.append(
            Agreement(
                loss=name,
                conformance=pr.check_loss(loss, lake.at(TRUTH)),
                variational=float(error(pr.Variational()).max()),
                zeroth_order=tuple(_root_mean_square(error(ZerothOrder(count))) for count in DIRECTIONS),
            )
        )
    return rows


class Sweep(NamedTuple):
    """An error against a setting.

    Attributes:
        setting: what is varied.
        values: its values.
        relative_errors: `[M, K]` of each replication at each value.
        law: what was found, beside what the bound says.
    """

    setting: str
    values: tuple[float, ...]
    relative_errors: Float[np.ndarray, "M K"]
    law: str

    @property
    def errors(self) -> list[float]:
        """Root mean square over the replications."""
        return [_root_mean_square(column) for column in np.asarray(self.relative_errors).T]


@in_float64
def sweeps(seed: int = 0, replications: int = 64) -> list[Sweep]:
    """The zeroth-order error against the number of directions m, the truncation K and the radius nu.

    The paper bounds the squared error by `O(1/m + eps_K^2/nu^2 + nu^2/m)`, `eps_K = gamma^K / (1 - gamma)`.
    The noise of the directions, the first term, hides the others; for K and nu it is taken out by comparing
    estimates along the same directions.
    """
    lake = frozen_lake(MAP)
    setting = Setting.of(lake, replications, seed, one_point=True)
    loss = library_losses(lake)["KullbackLeibler to an expert"]
    problem = setting.problem(loss)
    exact = setting.gradient(Adjoint(), problem)
    by_count = [_relative(setting.gradient(ZerothOrder(count), problem), exact) for count in DIRECTIONS]
    fixed = ZerothOrder(DIRECTIONS[0])
    untruncated = setting.gradient(fixed, problem)
    by_horizon = [
        _relative(setting.gradient(fixed, setting.problem(loss, pr.Truncated(horizon))), untruncated)
        for horizon in HORIZONS
    ]
    along = setting.along_directions(exact, fixed.directions)
    by_radius = [_relative(setting.gradient(ZerothOrder(DIRECTIONS[0], radius), problem), along) for radius in RADII]
    counted = np.polyfit(np.log(DIRECTIONS), 2 * np.log([_root_mean_square(errors) for errors in by_count]), 1)[0]
    cut = np.polyfit(HORIZONS[2:], np.log([_root_mean_square(errors) for errors in by_horizon[2:]]), 1)[0]
    best = RADII[int(np.argmin([_root_mean_square(errors) for errors in by_radius]))]
    gamma = float(lake.discount)
    return [
        Sweep(name, values, np.stack(errors, axis=1), law)
        for name, values, errors, law in (
            ("m, directions", DIRECTIONS, by_count, f"squared error ~ m^{counted:.2f}; the bound says m^-1"),
            (
                "K, truncation",
                HORIZONS,
                by_horizon,
                f"error ~ {np.exp(cut):.4f}^K; the bound says gamma^K, gamma = {gamma:g}",
            ),
            ("nu, radius", RADII, by_radius, f"least at nu = {best:.0e}: rounding below it, smoothing above"),
        )
    ]


class Setting(Record):
    """Random policies and posterior draws of a lake that all estimators are tried on."""

    lake: FrozenLake
    logits: Float[Array, "G S A"]
    thetas: Float[Array, "G R 2"]
    words: Array

    @staticmethod
    def of(lake: FrozenLake, groups: int, seed: int, one_point: bool = False) -> Setting:
        """G policies, or one policy G times; each with directions of its own."""
        random = np.random.default_rng(seed)
        belief = lake.prior.update(lake.trials(n=5, truth=TRUTH, seed=seed))
        different = 1 if one_point else groups
        repeat = groups // different
        logits = random.normal(size=(different, *lake.support.shape[:2]))
        thetas = belief.draw(random, different * DRAWS).reshape(different, DRAWS, -1)
        words = random.integers(2**32, size=(groups, 2), dtype=np.uint32)
        return Setting(lake, np.repeat(logits, repeat, axis=0), np.repeat(thetas, repeat, axis=0), words)

    def problem(self, loss: Loss, occupancy: pr.Truncated | None = None) -> Problem:
        """A loss, and its CVaR in every group."""
        risk = tree_map(lambda leaf: np.broadcast_to(leaf, (len(self.words), *np.shape(leaf))), CVaR(LEVEL))
        return self.lake.objective(loss=loss, occupancy=occupancy), risk

    def gradient(self, estimator: GradientEstimator, problem: Problem) -> Float[np.ndarray, "G S A"]:
        """The estimate of every group."""
        sampled = SampledRisk.on(*problem, np.asarray(self.thetas))
        return estimator(sampled, np.asarray(self.logits), np.asarray(self.words))[1]

    def along_directions(self, gradient: Array, count: int) -> Float[np.ndarray, "G S A"]:
        """What smoothing tends to as the radius vanishes: `1/m sum_j <g, u_j> u_j` along the same directions."""
        drawn = np.stack(list(directions(np.asarray(self.words), count, self.logits)))
        slopes = np.einsum("jgsa,gsa->jg", drawn, gradient)
        return np.einsum("jg,jgsa->gsa", slopes, drawn) / count


def _relative(estimate: np.ndarray, exact: np.ndarray) -> Float[np.ndarray, " G"]:
    return np.linalg.norm((estimate - exact).reshape(len(exact), -1), axis=1) / np.linalg.norm(
        exact.reshape(len(exact), -1), axis=1
    )


def _root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt((errors**2).mean()))
