"""Gradients of a lake of 1,024 states: the band, the iteration, and SciPy's sparse LU with two solves each.

Also how many models are computed for so many that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

import prudent as pr
from prudent.objectives import slopes_on

from .measuring import ratio, report, side_by_side, verdict

SIDE, MODELS, DISCOUNT = 32, 32, 0.97


def run(rounds: int) -> None:
    lake = pr.envs.frozen_lake("\n".join(["S" + "F" * (SIDE - 1), *["F" * SIDE] * (SIDE - 2), "F" * (SIDE - 1) + "G"]))
    random = np.random.default_rng(0)
    thetas = lake.prior.sample(0, MODELS)
    # Rows near a vertex, as those of a search are.
    points = random.dirichlet(np.full(4, 0.05), size=(MODELS, SIDE**2))
    all_models = np.arange(MODELS)

    def gradients(solver: pr.Banded | pr.Krylov) -> Callable[[], object]:
        objective = lake.objective(occupancy=pr.Exact(solver))
        return lambda: slopes_on(objective, points, thetas, all_models, all_models)

    tables = [np.asarray(lake.at(theta).kernel.probability) for theta in thetas]
    contenders = {
        "sparse LU": lambda: [_factorised(lake.support, *pair) for pair in zip(tables, points, strict=True)],
        "band": gradients(pr.Banded.of(lake.support)),
        "iteration": gradients(pr.Krylov.of(lake.support)),
    }
    seconds = side_by_side(contenders, rounds)
    rows = []
    for name, values in seconds.items():
        part = ratio(values, seconds["sparse LU"])
        aim = verdict(part, 0.35) if name == "band" else ""
        rows.append((name, f"{1e3 * np.median(values) / MODELS:.2f} ms", f"{part:.2f}", aim))
    report(f"Gradients, {SIDE**2:,} states, {MODELS} models", ("by", "a model", "of sparse LU", "aim"), rows)


def _factorised(support: pr.Support, probability: np.ndarray, policy: np.ndarray) -> None:
    states = support.states
    weight = -DISCOUNT * (probability * policy[:, :, None]).reshape(states, -1)
    rows, columns = np.repeat(np.arange(states), weight.shape[1]), support.index().ravel()
    entries = np.concatenate([np.ones(states), weight.ravel()])
    places = np.concatenate([np.arange(states), rows]), np.concatenate([np.arange(states), columns])
    factors = splu(coo_matrix((entries, places), shape=(states, states)).tocsc())
    factors.solve(np.ones(states))
    factors.solve(np.ones(states), "T")
