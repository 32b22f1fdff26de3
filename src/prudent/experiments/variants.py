"""What the paper leaves open, tried: the length of the steps, the plug-in's planner, the learner's updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..baselines import robust_q_learning
from ..policies import TabularPolicy
from ..posteriors import Point
from ..risks import CVaR, Expectation
from ..solvers import solve_many
from .folder import RunFolder
from .lake_settings import LEVELS, PAPER, ROBUST_RADII, SETTINGS, Setting, data_sets, truth_losses
from .tables import Q_ITERATIONS, actions_of, at_one_theta, table_row
from .work import Unit

STEPS = (0.5,)
PLUG_IN_STEPS = (0.03, 0.1, 0.5)
UPDATES = (30, 100, 300)


def variant_units(replications: int, seed: int) -> list[Unit]:
    """Each variant in every setting, on the data sets of the tables."""
    units = []
    for setting in SETTINGS:
        common = {"setting": setting, "replications": replications, "seed": seed}
        name = f"variants/{setting.name}"
        for step in STEPS:
            arguments = {**common, "step": step}
            units.append(Unit(f"{name}/brpg-step-{step:g}", brpg_by_step, arguments, True, 0.1 * replications + 2))
        for step in PLUG_IN_STEPS:
            arguments = {**common, "step": step}
            units.append(Unit(f"{name}/plug-in-step-{step:g}", plug_in_by_step, arguments, True, 2.0))
        for updates in UPDATES:
            arguments = {**common, "updates": updates}
            cost = 7.5e-5 * updates * replications
            units.append(Unit(f"{name}/q-learning-{updates}", q_learning_by_updates, arguments, False, cost))
    return units


def brpg_by_step(setting: Setting, replications: int, seed: int, step: float) -> dict[str, Any]:
    """The losses of BR-PG at another step."""
    sets = data_sets(setting, replications, seed)
    risks = [CVaR(level) for level in LEVELS]
    solver = dataclasses.replace(PAPER, step=step, evaluation=2)
    grid = solve_many(sets.lake, sets.beliefs, risks, solver=solver, seed=sets.solve_key, progress=False, certify=False)
    losses = truth_losses([solution.policy for row in grid for solution in row], setting)
    return {"losses": losses.reshape(replications, len(LEVELS)).T.tolist()}


def plug_in_by_step(setting: Setting, replications: int, seed: int, step: float) -> dict[str, Any]:
    """The losses of the plug-in's gradient steps at another length."""
    sets = data_sets(setting, replications, seed)
    beliefs = [Point(theta) for theta in sets.maximum_likelihood()]
    solver = at_one_theta(dataclasses.replace(PAPER, step=step))
    grid = solve_many(
        sets.lake, beliefs, [Expectation()], solver=solver, seed=sets.solve_key, progress=False, certify=False
    )
    return {"losses": truth_losses([row[0].policy for row in grid], setting).tolist()}


def q_learning_by_updates(setting: Setting, replications: int, seed: int, updates: int) -> dict[str, Any]:
    """The policies, by radius, of a learner with fewer updates."""
    sets = data_sets(setting, replications, seed)
    models = [sets.lake.at(theta) for theta in sets.maximum_likelihood()]
    actions = []
    for number, radius in enumerate(ROBUST_RADII):
        key = jax.random.fold_in(jax.random.fold_in(sets.solve_key, 100 + number), updates)
        learned = robust_q_learning(models, [radius] * len(models), iterations=updates, seed=key)
        actions.append([actions_of(learned.policy(i)) for i in range(len(models))])
    return {"actions": actions}


def variant_records(folder: RunFolder) -> list[dict[str, Any]]:
    """Rows as in the tables; `variant` says what was varied."""
    rows = []
    for setting in SETTINGS:
        for step in STEPS:
            losses = folder.values(f"variants/{setting.name}/brpg-step-{step:g}")["losses"]
            rows += [
                _row(setting, "BR-PG", f"step {step:g}", np.array(column), beta=level)
                for level, column in zip(LEVELS, losses, strict=True)
            ]
        for step in PLUG_IN_STEPS:
            losses = folder.values(f"variants/{setting.name}/plug-in-step-{step:g}")["losses"]
            rows.append(_row(setting, "plug-in, 100 steps", f"step {step:g}", np.array(losses)))
        for updates in UPDATES:
            actions = np.array(folder.values(f"variants/{setting.name}/q-learning-{updates}")["actions"])
            policies = [TabularPolicy.deterministic(row, 4) for row in actions.reshape(-1, actions.shape[-1])]
            losses = truth_losses(policies, setting).reshape(len(ROBUST_RADII), -1)
            rows += [
                _row(setting, "DRQL", f"{updates} updates", column, radius=radius)
                for radius, column in zip(ROBUST_RADII, losses, strict=True)
            ]
    return rows


def _row(
    setting: Setting,
    method: str,
    variant: str,
    losses: np.ndarray,
    beta: float | None = None,
    radius: float | None = None,
) -> dict[str, Any]:
    row = table_row(setting, {"method": method, "beta": beta, "radius": radius, "losses": losses})
    return {"variant": variant, **row}


def settings_record() -> dict[str, Any]:
    """What these depend on."""
    return {"steps": list(STEPS), "plug_in_steps": list(PLUG_IN_STEPS), "updates": [*UPDATES, Q_ITERATIONS]}
