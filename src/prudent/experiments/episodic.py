"""Episodic BR-PG on the lake: the same iterations in few or many episodes (the paper's episodic case)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Stream, as_key, key_words, stream
from ..baselines import plan
from ..envs import FrozenLake, frozen_lake
from ..episodes import Episodes, run_episodes_many
from ..episodes.adaptive import estimate_scales
from ..evaluation import loss_at
from ..gradients import Problem
from ..losses import ExpectedCost
from ..occupancies import Exact
from ..policies import Softmax
from ..risks import CVaR
from ..solvers import BRPG

TRUTH = (0.3, 0.02)
LEVELS = (0.0, 0.5, 0.9)

# Episodes and iterations of each.
PLANS = ((5, 20), (10, 10), (20, 5))

# Few enough that the first posteriors are wide: the paper's smallest data sets have 5 trials a coordinate.
STEPS = 10

# Posterior draws behind D and E.
SCALE_DRAWS = 200


class EpisodicRow(NamedTuple):
    """One plan at one level, after one episode; means over replications, each with its standard error.

    Attributes:
        episodes, iterations: of the plan.
        level: of the CVaR.
        episode: after which; 0 is the policy the first one deploys.
        observations: trials seen so far.
        loss, loss_error: loss under the truth.
        gap: loss above the true optimum.
        loss_gap, loss_gap_error: D, `|G(alpha) - C(alpha, theta*)|` at the policy the episode ended with.
        gradient_gap, gradient_gap_error: E, the same of the gradients.
    """

    episodes: int
    iterations: int
    level: float
    episode: int
    observations: float
    loss: float
    loss_error: float
    gap: float
    loss_gap: float
    loss_gap_error: float
    gradient_gap: float
    gradient_gap_error: float


def episodic(replications: int = 50, seed: int | jax.Array = 0, steps: int = STEPS) -> list[EpisodicRow]:
    """Every plan at every level, after every episode.

    Args:
        replications: independent worlds of each plan and level.
        seed: whole number or `jax.random.key`.
        steps: of the walk that is logged in an episode, the same in every plan.
    """
    lake = frozen_lake()
    truth = lake.at(TRUTH)
    best = float(truth.start @ plan(truth).values)
    worlds = [lake.world(TRUTH, steps=steps)] * replications
    rows = []
    for episodes, iterations in PLANS:
        for level in LEVELS:
            results = run_episodes_many(
                lake,
                lake.prior,
                worlds,
                episodes=episodes,
                risk=CVaR(level),
                # Nothing here reads the solver's own evaluation.
                solver=BRPG(iterations=iterations, evaluation=30),
                seed=seed,
            )
            rows += _rows(lake, results, iterations, level, best, seed)
    return rows


def last_rows(rows: Sequence[EpisodicRow]) -> list[EpisodicRow]:
    """Only what each plan ended with."""
    return [row for row in rows if row.episode == row.episodes]


def _rows(
    lake: FrozenLake, results: list[Episodes], iterations: int, level: float, best: float, seed: int | jax.Array
) -> list[EpisodicRow]:
    episodes = len(results[0])
    problem = Problem(lake, ExpectedCost(), CVaR(level), Softmax(), Exact().resolve(lake.support))
    initial = Softmax().initial(*lake.support.shape[:2])
    rows = []
    for number in range(episodes + 1):
        beliefs: list[Any] = [lake.prior] * len(results)
        policies, parameters = [result.episodes[0].deployed for result in results], [initial] * len(results)
        if number > 0:
            ended = [result.episodes[number - 1] for result in results]
            beliefs = [episode.belief for episode in ended]
            policies = [episode.solution.policy for episode in ended]
            parameters = [episode.solution.parameters for episode in ended]
        # The same uniform numbers at every level and plan make their differences sharper.
        words = key_words(as_key(seed))
        thetas = np.stack([b.draw(stream(words, Stream.SCALES, k), SCALE_DRAWS) for k, b in enumerate(beliefs)])
        against = np.broadcast_to(np.asarray(TRUTH), (len(results), 1, 2))
        scales = np.array(estimate_scales(problem, parameters, thetas, against))
        loss, loss_error = _mean(loss_at(policies, lake, TRUTH))
        gaps, errors = zip(*(_mean(scales[:, column]) for column in (0, 1)), strict=True)
        rows.append(
            EpisodicRow(
                episodes=episodes,
                iterations=iterations,
                level=level,
                episode=number,
                observations=float(np.mean([b.counts.sum() for b in beliefs])),
                loss=loss,
                loss_error=loss_error,
                gap=loss - best,
                loss_gap=gaps[0],
                loss_gap_error=errors[0],
                gradient_gap=gaps[1],
                gradient_gap_error=errors[1],
            )
        )
    return rows


def _mean(values: Float[np.ndarray, " I"]) -> tuple[float, float]:
    """Mean over replications and its standard error."""
    spread = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return float(values.mean()), spread / float(np.sqrt(values.size))
