"""The paper's three frozen-lake tables: every method on the same data sets, beside the published figures.

And what the paper leaves open, tried on the same data sets: the length of the steps, the learner's updates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from prudent import CVaR, Expectation, plan, robust_plan
from prudent.seeds import child

from .lake import (
    BLOCK,
    LEVELS,
    PAPER,
    ROBUST_RADII,
    SETTINGS,
    DataSets,
    Setting,
    actions_of,
    at_one_theta,
    data_sets,
    planned_losses,
    published,
    truth_losses,
)
from .q_learning import robust_q_learning
from .work import RunFolder, Unit

# Updates of every pair. The paper gives no number; the variants try fewer.
Q_ITERATIONS = 1000

# The variants.
STEPS = (0.5,)
PLUG_IN_STEPS = (0.03, 0.1, 0.5)
UPDATES = (30, 100, 300)


def table_settings(table: str) -> list[Setting]:
    """The columns of a table."""
    return [setting for setting in SETTINGS if setting.table == table]


def setting_units(setting: Setting, replications: int, seed: int) -> list[Unit]:
    """All methods on the data sets of a setting."""
    common = {"setting": setting, "replications": replications, "seed": seed}
    units = [
        Unit(f"{setting.name}/brpg", brpg_losses, common, compiled=True, cost=0.1 * replications + 5),
        Unit(f"{setting.name}/plug-in-steps", plug_in_step_losses, common, compiled=True, cost=0.02 * replications + 3),
        Unit(f"{setting.name}/plug-in", plug_in_actions, common, compiled=False, cost=0.003 * replications + 1),
    ]
    for radius in ROBUST_RADII:
        arguments = {**common, "radius": radius}
        units.append(
            Unit(f"{setting.name}/robust-{radius:g}", robust_actions, arguments, False, cost=0.03 * replications + 1)
        )
        units += [
            Unit(
                f"{setting.name}/q-learning-{radius:g}-{first}",
                q_learning_actions,
                {**arguments, "first": first},
                compiled=False,
                cost=0.25 * min(BLOCK, replications - first),
            )
            for first in range(0, replications, BLOCK)
        ]
    return units


def variant_units(replications: int, seed: int) -> list[Unit]:
    """Each variant in every setting, on the data sets of the tables."""
    units = []
    for setting in SETTINGS:
        common = {"setting": setting, "replications": replications, "seed": seed}
        for name, function, key, values, compiled, cost in (
            ("brpg-step", brpg_losses, "step", STEPS, True, lambda step: 0.1 * replications + 2),
            ("plug-in-step", plug_in_step_losses, "step", PLUG_IN_STEPS, True, lambda step: 2.0),
            ("q-learning", q_learning_by_updates, "updates", UPDATES, False, lambda n: 7.5e-5 * n * replications),
        ):
            units += [
                Unit(
                    f"variants/{setting.name}/{name}-{value:g}", function, {**common, key: value}, compiled, cost(value)
                )
                for value in values
            ]
    return units


def brpg_losses(setting: Setting, replications: int, seed: int, step: Any = PAPER.step) -> dict[str, Any]:
    """BR-PG's loss under the truth, by level: all data sets at all levels in one compiled call."""
    sets = data_sets(setting, replications, seed)
    solver = dataclasses.replace(PAPER, step=step, evaluation=2)
    grid = sets.solved(sets.beliefs, [CVaR(level) for level in LEVELS], solver)
    losses = truth_losses([solution.policy for row in grid for solution in row], setting)
    return {"losses": losses.reshape(replications, len(LEVELS)).T.tolist()}


def plug_in_step_losses(setting: Setting, replications: int, seed: int, step: Any = PAPER.step) -> dict[str, Any]:
    """As many gradient steps at the maximum-likelihood theta as BR-PG makes."""
    sets = data_sets(setting, replications, seed)
    grid = sets.solved(sets.points(), [Expectation()], at_one_theta(dataclasses.replace(PAPER, step=step)))
    return {"losses": truth_losses([row[0].policy for row in grid], setting).tolist()}


def plug_in_actions(setting: Setting, replications: int, seed: int) -> dict[str, Any]:
    """The exact plan at the maximum-likelihood theta of every data set."""
    sets = data_sets(setting, replications, seed)
    return {"actions": [actions_of(plan(sets.lake.at(theta)).policy) for theta in sets.maximum_likelihood()]}


def robust_actions(setting: Setting, replications: int, seed: int, radius: float) -> dict[str, Any]:
    """The exact KL-robust plan around the maximum-likelihood kernel of every data set."""
    sets = data_sets(setting, replications, seed)
    plans = [robust_plan(sets.lake.at(theta), radius) for theta in sets.maximum_likelihood()]
    return {"actions": [actions_of(best.policy) for best in plans], "converged": all(best.converged for best in plans)}


def q_learning_actions(setting: Setting, replications: int, seed: int, radius: float, first: int) -> dict[str, Any]:
    """The same by robust Q-learning, for a block of data sets."""
    sets = data_sets(setting, replications, seed)
    block = sets.maximum_likelihood()[first : first + BLOCK]
    return {"actions": _learned(sets, block, radius, Q_ITERATIONS, (ROBUST_RADII.index(radius), first))}


def q_learning_by_updates(setting: Setting, replications: int, seed: int, updates: int) -> dict[str, Any]:
    """The policies, by radius, of a learner with fewer updates."""
    sets = data_sets(setting, replications, seed)
    thetas = sets.maximum_likelihood()
    return {
        "actions": [
            _learned(sets, thetas, radius, updates, (100 + number, updates))
            for number, radius in enumerate(ROBUST_RADII)
        ]
    }


def _learned(sets: DataSets, thetas: np.ndarray, radius: float, updates: int, path: tuple[int, int]) -> list[list[int]]:
    """The actions learned around each theta, on the stream that the path names."""
    own = child(child(sets.solve_seed, path[0]), path[1])
    models = [sets.lake.at(theta) for theta in thetas]
    learned = robust_q_learning(models, [radius] * len(models), iterations=updates, seed=own)
    return [actions_of(learned.policy(i)) for i in range(len(models))]


def method_losses(setting: Setting, replications: int, folder: RunFolder) -> list[dict[str, Any]]:
    """Every method's losses under the truth, `[I]`, on the same data sets: `method`, `beta` or `radius`, `losses`."""

    def values(unit: str) -> dict[str, Any]:
        return folder.values(f"{setting.name}/{unit}")

    rows = [
        {"method": "BR-PG", "beta": level, "radius": None, "losses": np.array(losses)}
        for level, losses in zip(LEVELS, values("brpg")["losses"], strict=True)
    ]
    steps = np.array(values("plug-in-steps")["losses"])
    rows.append({"method": "plug-in, 100 steps", "beta": None, "radius": None, "losses": steps})
    # What was planned is evaluated together: one compiled call for all methods.
    planned: list[tuple[str, float | None, Any]] = [("plug-in, exact", None, values("plug-in")["actions"])]
    for radius in ROBUST_RADII:
        blocks = [values(f"q-learning-{radius:g}-{first}")["actions"] for first in range(0, replications, BLOCK)]
        planned.append(("DRQL", radius, [row for block in blocks for row in block]))
        planned.append(("KL-robust, exact", radius, values(f"robust-{radius:g}")["actions"]))
    losses = planned_losses([actions for _, _, actions in planned], setting)
    rows += [
        {"method": method, "beta": None, "radius": radius, "losses": row}
        for (method, radius, _), row in zip(planned, losses, strict=True)
    ]
    best = plan(data_sets(setting, 1, 0).lake.at(setting.truth)).policy
    rows.append({"method": "optimum", "beta": None, "radius": None, "losses": truth_losses([best], setting)})
    return rows


def table_records(table: str, replications: int, folder: RunFolder) -> list[dict[str, Any]]:
    """The rows of a table, each beside the published figure that it stands for."""
    return [
        table_row(setting, row)
        for setting in table_settings(table)
        for row in method_losses(setting, replications, folder)
    ]


def variant_records(folder: RunFolder) -> list[dict[str, Any]]:
    """Rows as in the tables; `variant` says what was varied."""
    rows = []
    for setting in SETTINGS:

        def values(unit: str, setting: Setting = setting) -> dict[str, Any]:
            return folder.values(f"variants/{setting.name}/{unit}")

        def add(
            variant: str, losses: Any, method: str, beta: float | None = None, radius: float | None = None,
            setting: Setting = setting,
        ) -> None:  # fmt: skip
            row = {"method": method, "beta": beta, "radius": radius, "losses": np.asarray(losses)}
            rows.append({"variant": variant, **table_row(setting, row)})

        for step in STEPS:
            for level, losses in zip(LEVELS, values(f"brpg-step-{step:g}")["losses"], strict=True):
                add(f"step {step:g}", losses, "BR-PG", beta=level)
        for step in PLUG_IN_STEPS:
            add(f"step {step:g}", values(f"plug-in-step-{step:g}")["losses"], "plug-in, 100 steps")
        for updates in UPDATES:
            learned = planned_losses(values(f"q-learning-{updates}")["actions"], setting)
            for radius, losses in zip(ROBUST_RADII, learned, strict=True):
                add(f"{updates} updates", losses, "DRQL", radius=radius)
    return rows


def variants_config() -> dict[str, Any]:
    """What the variants depend on."""
    return {"steps": list(STEPS), "plug_in_steps": list(PLUG_IN_STEPS), "updates": [*UPDATES, Q_ITERATIONS]}


def published_figure(setting: Setting, row: dict[str, Any]) -> list[float | None]:
    """Mean, standard error and positive-sided variance of the paper; None where it gives none.

    Its empirical method and its robust Q-learning each stand beside two of ours: how they were planned is not told.
    """
    figures = published()["tables"][f"{setting.table}_escape_{setting.escape:g}"][f"N={setting.n}"]
    name = {
        "BR-PG": f"BR-PG beta={row['beta'] or 0:g}",
        "DRQL": f"DRQL radius={row['radius'] or 0:g}",
        "KL-robust, exact": f"DRQL radius={row['radius'] or 0:g}",
        "optimum": "Optimal under true model",
    }.get(row["method"], "Empirical")
    return figures.get(name, [None, None, None])


def table_row(setting: Setting, row: dict[str, Any]) -> dict[str, Any]:
    """Our mean, standard error and positive-sided variance of `losses` beside the published ones."""
    mean, error, positive = moments(row["losses"])
    theirs, their_error, their_positive = published_figure(setting, row)
    joint = None if their_error is None or error is None else float(np.hypot(error, their_error))
    return {
        "table": setting.table,
        "escape": setting.escape,
        "n": setting.n,
        "method": row["method"],
        "beta": row["beta"],
        "radius": row["radius"],
        "mean": mean,
        "se": error,
        "psv": positive,
        "published": theirs,
        "published_se": their_error,
        "published_psv": their_positive,
        "deviation": None if theirs is None else mean / theirs - 1.0,
        "z": None if theirs is None or not joint else (mean - theirs) / joint,
    }


def moments(losses: Float[np.ndarray, " I"]) -> tuple[float, float | None, float | None]:
    """Mean, its standard error and the positive-sided variance `E[((C - E C)^+)^2]`; of one loss only the mean."""
    mean = float(losses.mean())
    if losses.size == 1:
        return mean, None, None
    return (
        mean,
        float(losses.std(ddof=1) / np.sqrt(losses.size)),
        float((np.clip(losses - mean, 0.0, None) ** 2).mean()),
    )


def brpg_cells(replications: int = 50, seed: int = 0) -> list[dict[str, Any]]:
    """The twelve BR-PG cells alone, as rows of the tables."""
    rows = []
    for setting in SETTINGS:
        for level, losses in zip(LEVELS, brpg_losses(setting, replications, seed)["losses"], strict=True):
            row = {"method": "BR-PG", "beta": level, "radius": None, "losses": np.array(losses)}
            rows.append(table_row(setting, row))
    return rows
