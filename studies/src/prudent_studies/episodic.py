"""Episodic BR-PG on the lake: the same iterations in few or many episodes (the paper's episodic case)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent.arrays import Array
from prudent.envs import FrozenLake, frozen_lake
from prudent.seeds import Stream, generator

from .curves import curve_rows
from .lake import BLOCK, LEVELS, PAPER, ROBUST_RADII, Setting, actions_of, planned_losses, truth_curves, truth_losses
from .theorem import estimate_scales
from .work import RunFolder, Unit

SETTING = Setting(20, "episodic", 0.02, 0)

# Episodes and iterations of each.
PLANS = ((5, 20), (10, 10), (20, 5))

# Steps of the walk that is logged in an episode: few enough that the first posteriors are wide, as the paper's
# smallest data sets have 5 trials a coordinate. The paper does not say how much an episode logs.
STEPS = 10

# Posterior draws behind D and E.
SCALE_DRAWS = 200


class MaximumLikelihood(pr.Posterior):
    """All belief in the observed frequencies; in the prior mean of a coordinate as long as nothing is observed."""

    posterior: pr.Beta

    def update(self, log: pr.Trials) -> MaximumLikelihood:
        """Learn as the posterior does."""
        return MaximumLikelihood(self.posterior.update(log))

    def theta(self) -> Float[np.ndarray, " D"]:
        """The estimate."""
        counts = np.asarray(self.posterior.counts)
        seen = counts.sum(axis=-1)
        return np.where(seen > 0, counts[:, 0] / np.maximum(seen, 1.0), np.asarray(self.posterior.mean()))

    def draw(self, generator: np.random.Generator, n: int) -> Float[np.ndarray, "N D"]:
        """The estimate, `n` times."""
        del generator
        return np.tile(self.theta(), (n, 1))


def episodic_units(replications: int, seed: int) -> list[Unit]:
    """Every plan by every method; the planners, which do not compile, in blocks of worlds."""
    units = []
    for episodes, iterations in PLANS:
        common = {"episodes": episodes, "iterations": iterations, "seed": seed}
        name = f"episodic/{episodes}x{iterations}"
        units += [
            Unit(
                f"{name}/brpg-{level:g}",
                episodic_brpg,
                {**common, "replications": replications, "level": level},
                compiled=True,
                cost=0.15 * replications + 4,
            )
            for level in LEVELS
        ]
        steps = {**common, "replications": replications}
        cost = 0.05 * replications + 3
        units.append(Unit(f"{name}/plug-in-steps", episodic_plug_in_steps, steps, compiled=True, cost=cost))
        for radius in (None, *ROBUST_RADII):
            units += [
                Unit(
                    f"{name}/{_planner(radius)}-{first}",
                    episodic_planner,
                    {**common, "radius": radius, "first": first, "last": min(first + BLOCK, replications)},
                    compiled=False,
                    cost=(0.004 if radius is None else 0.03) * episodes * BLOCK,
                )
                for first in range(0, replications, BLOCK)
            ]
    return units


def _planner(radius: float | None) -> str:
    return "plug-in" if radius is None else f"robust-{radius:g}"


def episodic_brpg(episodes: int, iterations: int, seed: int, replications: int, level: float) -> dict[str, Any]:
    """Loss under the truth of every iterate; and, after each episode, the trials seen, D and E."""
    results = _run(pr.CVaR(level), frozen_lake().prior, PAPER.samples, episodes, iterations, seed, replications)
    beliefs = [[frozen_lake().prior, *(episode.belief for episode in result.episodes)] for result in results]
    scales = _scales(results, beliefs, level, seed)
    return {
        "curves": _curves(results).tolist(),
        "trials": [[float(np.asarray(belief.counts).sum()) for belief in row] for row in beliefs],
        "loss_gap": scales[..., 0].tolist(),
        "gradient_gap": scales[..., 1].tolist(),
    }


def episodic_plug_in_steps(episodes: int, iterations: int, seed: int, replications: int) -> dict[str, Any]:
    """Gradient steps at the maximum-likelihood theta of what has been seen."""
    prior = MaximumLikelihood(frozen_lake().prior)
    return {"curves": _curves(_run(pr.Expectation(), prior, 1, episodes, iterations, seed, replications)).tolist()}


def _run(
    risk: pr.Risk, prior: pr.Posterior, samples: int, episodes: int, iterations: int, seed: int, replications: int
) -> list[pr.Episodes]:
    lake = frozen_lake()
    return pr.run_episodes_many(
        lake,
        prior,
        [lake.world(SETTING.truth, steps=STEPS)] * replications,
        episodes=episodes,
        risk=risk,
        # Nothing here reads the solver's own evaluation.
        solver=pr.BRPG(samples=samples, iterations=iterations, step=PAPER.step, evaluation=2, keep_iterates=True),
        seed=seed,
    )


def _curves(results: list[pr.Episodes]) -> Float[np.ndarray, "I T"]:
    """Every iterate of all episodes and the last one; an episode begins with the last iterate of the one before."""
    parameters = [
        np.concatenate(
            [np.asarray(episode.solution.iterates) for episode in result.episodes]
            + [np.asarray(result.episodes[-1].solution.parameters)[None]]
        )
        for result in results
    ]
    return truth_curves(np.stack(parameters), SETTING)


def _scales(results: list[pr.Episodes], beliefs: list[list[Any]], level: float, seed: int) -> np.ndarray:
    """`[replication, episode, 3]` D, E and L against the truth: at the start, and at the end of every episode."""
    lake = frozen_lake()
    objective = lake.objective()
    initial = objective.initial()
    columns = []
    for number in range(len(beliefs[0])):
        parameters = [result.episodes[number - 1].solution.parameters if number else initial for result in results]
        # The same uniform numbers at every level and plan make their differences sharper.
        thetas = np.stack(
            [row[number].draw(generator(seed, Stream.SCALES, k), SCALE_DRAWS) for k, row in enumerate(beliefs)]
        )
        against = np.broadcast_to(np.asarray(SETTING.truth), (len(results), 1, 2))
        columns.append(np.array(estimate_scales(objective, pr.CVaR(level), parameters, thetas, against)))
    return np.stack(columns, axis=1)


def episodic_planner(
    episodes: int, iterations: int, seed: int, radius: float | None, first: int, last: int
) -> dict[str, Any]:
    """An exact plan after every episode, at the maximum-likelihood theta or robust around it, in a block of worlds.

    `actions` holds the plan of each episode; what is deployed first is the uniform policy that BR-PG starts from.
    """
    lake = frozen_lake()
    world = lake.world(SETTING.truth, steps=STEPS)
    actions = []
    for replication in range(first, last):
        belief, row = MaximumLikelihood(lake.prior), []
        policy = pr.TabularPolicy(np.full(lake.support.shape[:2], 0.25))
        for number in range(episodes):
            log = world.deploy(policy, generator(seed, Stream.WORLD, number, replication))
            belief = belief.update(log)
            policy = _plan(lake, belief.theta(), radius)
            row.append(actions_of(policy))
        actions.append(row)
    return {"actions": actions}


def _plan(lake: FrozenLake, theta: Array, radius: float | None) -> pr.TabularPolicy:
    return pr.plan(lake.at(theta)).policy if radius is None else pr.robust_plan(lake.at(theta), radius).policy


def episodic_records(replications: int, folder: RunFolder) -> list[dict[str, Any]]:
    """One row a plan, method and iteration; BR-PG's rows at the end of an episode also have trials, D and E."""
    lake = frozen_lake()
    best, uniform = truth_losses(
        [pr.plan(lake.at(SETTING.truth)).policy, pr.TabularPolicy(np.full(lake.support.shape[:2], 0.25))], SETTING
    ).tolist()

    def values(unit: str) -> dict[str, Any]:
        return folder.values(f"episodic/{unit}")

    rows = []
    for episodes, iterations in PLANS:
        name = f"{episodes}x{iterations}"
        about = {"escape": SETTING.escape, "episodes": episodes, "iterations": iterations}
        for level in LEVELS:
            found = values(f"{name}/brpg-{level:g}")
            ends = {key: np.array(found[key]).mean(axis=0).tolist() for key in ("trials", "loss_gap", "gradient_gap")}
            for row in curve_rows(
                {**about, "method": "BR-PG", "beta": level, "radius": None}, np.array(found["curves"])
            ):
                episode, inside = divmod(row["iteration"], iterations)
                row |= {key: None if inside else column[episode] for key, column in ends.items()}
                rows.append(row)
        rows += curve_rows(
            {**about, "method": "plug-in, 100 steps", "beta": None, "radius": None},
            np.array(values(f"{name}/plug-in-steps")["curves"]),
        )
        for radius in (None, *ROBUST_RADII):
            blocks = [values(f"{name}/{_planner(radius)}-{k}")["actions"] for k in range(0, replications, BLOCK)]
            losses = planned_losses([row for block in blocks for row in block], SETTING)
            curves = np.concatenate([np.full((replications, 1), uniform), losses.repeat(iterations, axis=1)], axis=1)
            method = "plug-in, exact" if radius is None else "KL-robust, exact"
            rows += curve_rows({**about, "method": method, "beta": None, "radius": radius}, curves)
    return [
        {
            **row,
            "trials": row.get("trials"),
            "loss_gap": row.get("loss_gap"),
            "gradient_gap": row.get("gradient_gap"),
            "above_optimum": row["mean"] - best,
        }
        for row in rows
    ]
