"""Simulated models from short logs: a policy for the tail against the plug-in policy, in Gymnasium's environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from prudent import MCMC, CVaR, Expectation, Network, Point, SampleAverage, solve
from prudent.arrays import in_float64
from prudent.autodiff import jax
from prudent.plots import finish, pyplot

from .worlds import Setting, cart_pole, pendulum

LEVEL = 0.9
WIDTH, DEPTH = 8, 1

# Particles of a loss, posterior draws of a sample, iterations.
PARTICLES, SAMPLES, ITERATIONS = 32, 96, 100

# Worlds drawn from the belief, and episodes in each; all policies meet the same.
WORLDS, EPISODES = 1000, 10

SETTINGS: dict[str, Callable[[int], Setting]] = {"pendulum": pendulum, "cart-pole": cart_pole}


class Tried(NamedTuple):
    """One policy in all worlds.

    Attributes:
        name: how it was found.
        costs: `[W]` mean discounted cost of each world's episodes.
        fallen: share of all episodes in which the pendulum or the pole falls.
        stated: the risk that its solution stated, and its standard errors by draws and by particles; NaN for others.
    """

    name: str
    costs: Float[np.ndarray, " W"]
    fallen: float
    stated: tuple[float, float, float]

    @property
    def mean(self) -> float:
        """Over the worlds."""
        return float(self.costs.mean())

    @property
    def tail(self) -> float:
        """CVaR over the worlds."""
        return tail_of(self.costs)


class Result(NamedTuple):
    """What a study found.

    Attributes:
        setting: family and world.
        rows: of the log.
        belief: mean and standard deviation of each constant, and effective draws.
        thetas: `[W, D]` constants of the worlds.
        tried: the policies: for the tail, for the mean, at the posterior mean.
        walks: `[K, W, T]` what is pictured, of the costliest episode in each world.
    """

    setting: Setting
    rows: int
    belief: tuple[np.ndarray, np.ndarray, float]
    thetas: Float[np.ndarray, "W D"]
    tried: list[Tried]
    walks: Float[np.ndarray, "K W T"]


def tail_of(costs: np.ndarray) -> float:
    """CVaR of equally likely costs."""
    return float(CVaR(LEVEL)(costs).value)


def run(name: str, seed: int = 0, worlds: int = WORLDS, episodes: int = EPISODES) -> Result:
    """Log, learn, solve three ways, try out."""
    import numpyro.distributions as dist

    setting = SETTINGS[name](PARTICLES)
    log = setting.log(seed)
    prior = dist.LogNormal(np.log(setting.centre), setting.spread)
    belief = MCMC.run(setting.family, log, prior, seed=seed, target_acceptance=0.95)
    network = Network(width=WIDTH, depth=DEPTH, bounds=setting.bounds)
    solver = SampleAverage(samples=SAMPLES, largest=SAMPLES, starts=2, iterations=ITERATIONS, evaluation=200)
    # One theta takes as many walks as the draws of a sample together.
    alone = SETTINGS[name](PARTICLES * SAMPLES)
    found, start = [], None
    for label, one, about, risk in (
        ("plug-in", alone, Point(belief.mean()), Expectation()),
        ("mean of the belief", setting, belief, Expectation()),
        (f"CVaR {LEVEL:g}", setting, belief, CVaR(LEVEL)),
    ):
        solution = solve(
            one.family, about, risk=risk, policy=network, solver=solver, start=start, seed=seed, progress=False
        )
        stated = solution.evaluation
        errors = (stated.risk, stated.draw_standard_error, stated.particle_standard_error)
        found.insert(0, (label, solution.policy, errors))
        # Where every pendulum falls, a slope says little: each begins where the one before has ended.
        start = solution.parameters
    thetas = belief.sample(seed + 1, worlds)
    tried, walks = [], []
    for label, policy, errors in found:
        costs, fallen, seen = try_out(setting, policy, thetas, episodes, seed)
        tried.append(Tried(label, costs, fallen, errors))
        walks.append(seen)
    spread = np.asarray(belief.draws).std(axis=0)
    return Result(setting, len(log), (belief.mean(), spread, belief.behind), thetas, tried, np.stack(walks))


@in_float64
def try_out(
    setting: Setting, policy: Any, thetas: np.ndarray, episodes: int, seed: int
) -> tuple[Float[np.ndarray, " W"], float, Float[np.ndarray, "W T"]]:
    """Mean costs in each world, the share of falls, and what is pictured of a world's costliest episode.

    All episodes step together.
    """
    family = setting.family
    length, discount = family.horizon + 1, float(family.discount)
    noise = np.random.default_rng(seed).normal(size=(length, episodes, family.noise))
    worlds = [setting.world(theta) for theta in thetas]
    states = np.array([[world.reset(seed * 10_000 + e) for e in range(episodes)] for world in worlds])
    assert family.observe is not None
    observe = jax.jit(jax.vmap(jax.vmap(family.observe)))
    charge = jax.jit(jax.vmap(jax.vmap(partial(family.cost, None))))
    costs, seen = np.zeros(states.shape[:2]), np.zeros((*states.shape[:2], length))
    for t in range(length):
        actions = policy.mean(np.asarray(observe(states)))
        costs += discount**t * np.asarray(charge(states, actions))
        seen[:, :, t] = states[:, :, setting.pictured]
        states = np.array(
            [
                [world.step(state, float(action[0]), push) for state, action, push in zip(*here, noise[t], strict=True)]
                for world, *here in zip(worlds, states, actions, strict=True)
            ]
        )
    fallen = float((np.abs(seen).max(axis=2) > setting.fallen).mean())
    return costs.mean(axis=1), fallen, seen[np.arange(len(seen)), costs.argmax(axis=1)]


def difference(
    ours: np.ndarray, theirs: np.ndarray, of: Callable[[np.ndarray], float], seed: int = 0
) -> tuple[float, float]:
    """The costs of one policy less those of another, by some measure over the worlds; with a bootstrapped error."""
    random = np.random.default_rng(seed)
    rows = random.integers(len(ours), size=(1000, len(ours)))
    again = [of(ours[row]) - of(theirs[row]) for row in rows]
    return of(ours) - of(theirs), float(np.std(again, ddof=1))


def draw(result: Result, path: Any) -> None:
    """The picture: what happens in each world under two of the policies, and the costs of all worlds in their order."""
    setting, tried = result.setting, result.tried
    shown = [0, len(tried) - 1]
    figure, axes = pyplot().subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    colours = ("tab:blue", "tab:green", "tab:orange")
    # What has fallen goes on far beyond what is worth showing.
    high = np.quantile(np.abs(result.walks[shown]).max(axis=2), 0.95)
    for panel, k in zip(axes[:2], shown, strict=True):
        worst = tried[k].costs >= np.quantile(tried[k].costs, LEVEL)
        panel.plot(result.walks[k][~worst].T, color=colours[k], alpha=0.12, linewidth=0.8)
        panel.plot(result.walks[k][worst].T, color="tab:red", alpha=0.35, linewidth=0.8)
        panel.set(
            title=f"{tried[k].name}: the costliest episode in each world",
            xlabel="step",
            ylabel=f"{setting.unit}, radians",
        )
        panel.set_ylim(-1.05 * high, 1.05 * high)
    levels = (np.arange(len(result.thetas)) + 0.5) / len(result.thetas)
    for k, one in enumerate(tried):
        label = f"{one.name}: mean {one.mean:.2f}, worst tenth {one.tail:.2f}"
        axes[2].plot(levels, np.sort(one.costs), color=colours[k], label=label)
    axes[2].axvline(LEVEL, color="grey", linewidth=0.8, linestyle=":")
    axes[2].set(
        title=f"Costs in {len(levels)} worlds of the belief",
        xlabel="share of worlds",
        ylabel="discounted cost",
        yscale="log",
    )
    axes[2].legend(fontsize=8)
    finish(figure, path)
