"""Gymnasium's own slippery lake, solved from rollouts of the uniform policy, and tested in the environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import optax

from prudent import BRPG, CVaR, TabularPolicy, evaluate, loss_at, plan, solve
from prudent.envs import from_gymnasium
from prudent.seeds import child, generator

NAME = "FrozenLake-v1"
DISCOUNT = 0.99
LEVEL = 0.9

# A step into the goal is rewarded once in about seventy uniform walks: plain steps would hardly move at first.
SOLVER = BRPG(step=optax.adam(0.1), iterations=400)


class GymnasiumRow(NamedTuple):
    """One policy of the comparison.

    Attributes:
        name: how it was found.
        success: share of the test episodes that reached the goal, within the environment's own time limit.
        standard_error: of `success`.
        steps: mean length of a test episode.
        risk: CVaR at `LEVEL` over the posterior of minus the discounted reward.
        truth_loss: minus the discounted reward under the environment's own table.
    """

    name: str
    success: float
    standard_error: float
    steps: float
    risk: float
    truth_loss: float


class GymnasiumResult(NamedTuple):
    """The comparison and the data behind it.

    Attributes:
        rows: CVaR, the two plug-in plans, the plan that knows the environment's table, and the uniform policy.
        rollouts: logged walks of the uniform policy.
        transitions: steps of those walks.
        episodes: test episodes of each policy.
    """

    rows: list[GymnasiumRow]
    rollouts: int
    transitions: int
    episodes: int


def run_gymnasium(seed: int = 0, rollouts: int = 100, episodes: int = 2000) -> GymnasiumResult:
    """Log uniform walks, learn the table on the reachable successors, solve at CVaR 0.9, and test.

    The environment slips to each of three sides with probability 1/3, which is just what the symmetric prior
    expects: the plan at the posterior mean is helped by that, the plan at maximum likelihood is not.

    Args:
        seed: of the walks, the draws and the tests.
        rollouts: walks of the uniform policy that are logged.
        episodes: test episodes of each policy; all policies meet the same seeds of the environment.
    """
    problem = from_gymnasium(NAME, DISCOUNT, rollouts=rollouts)
    family = problem.family
    uniform = TabularPolicy(np.full(family.support.shape[:2], 1.0 / family.support.actions))
    log = problem.world.deploy(uniform, generator(child(seed, 0)))
    assert log is not None
    belief = problem.prior.update(log)
    found = [
        (f"BR-PG, CVaR {LEVEL:g}", solve(family, belief, risk=CVaR(LEVEL), solver=SOLVER, seed=seed).policy),
        ("plan at the posterior mean", plan(family.at(belief.mean())).policy),
        ("plan at maximum likelihood", plan(family.at(belief.maximum_likelihood(unseen=belief.mean()))).policy),
        ("plan that knows the table", plan(family.at(problem.truth)).policy),
        ("uniform policy", uniform),
    ]
    rows = []
    for name, policy in found:
        reached, steps = try_out(problem.world.environment, policy, episodes, generator(child(seed, 1)))
        success = float(reached.mean())
        rows.append(
            GymnasiumRow(
                name=name,
                success=success,
                standard_error=float(np.sqrt(success * (1.0 - success) / episodes)),
                steps=float(steps.mean()),
                risk=evaluate(policy, family, belief, risk=CVaR(LEVEL)).risk,
                truth_loss=float(loss_at(policy, family, problem.truth)),
            )
        )
    return GymnasiumResult(rows, rollouts, len(log), episodes)


def try_out(
    environment: Any, policy: TabularPolicy, episodes: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each episode ended with a reward, and its length."""
    choose = np.cumsum(np.asarray(policy.probabilities), axis=1)
    reached, steps = np.zeros(episodes, dtype=bool), np.zeros(episodes, dtype=int)
    for episode in range(episodes):
        # The episode's own seed decides on both the ice and the actions: no policy shifts another's luck.
        own = int(random.integers(2**31))
        actions = np.random.default_rng(own)
        state, _ = environment.reset(seed=own)
        over = False
        while not over:
            row = choose[state]
            action = int(np.searchsorted(row, actions.random() * row[-1], side="right"))
            state, reward, terminated, truncated, _ = environment.step(action)
            steps[episode] += 1
            over = terminated or truncated
            reached[episode] = reward > 0
    return reached, steps
