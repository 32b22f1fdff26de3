"""Gradients of a lake of 1,024 states: the band, the iteration, and SciPy's sparse LU with two solves each.

Also how many models are computed for so many that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

import prudent as pr
from prudent.objectives import chunk_sizes, slopes_on

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
    filled()


def _factorised(support: pr.Support, probability: np.ndarray, policy: np.ndarray) -> None:
    states = support.states
    weight = -DISCOUNT * (probability * policy[:, :, None]).reshape(states, -1)
    rows, columns = np.repeat(np.arange(states), weight.shape[1]), support.index().ravel()
    entries = np.concatenate([np.ones(states), weight.ravel()])
    places = np.concatenate([np.arange(states), rows]), np.concatenate([np.arange(states), columns])
    factors = splu(coo_matrix((entries, places), shape=(states, states)).tocsc())
    factors.solve(np.ones(states))
    factors.solve(np.ones(states), "T")


def filled() -> None:
    """Models computed for each that is asked for."""
    rows = []
    for states in (4, 16, 25, 100, 1_000, 10_000, 100_000):
        support = pr.Support.lists(np.stack([np.arange(states)] * 3, axis=1).reshape(states, 1, 3))
        objective = pr.TabularFamily(support, np.zeros((states, 1)), start=0, discount=0.9).objective()
        parts = [sum(chunk_sizes(objective, draws)) / draws for draws in (8, 100, 129, 1000)]
        rows.append((f"{states:,} states", *(f"{part:.2f}" for part in parts), verdict(max(parts), 1.5)))
    report("Models computed / asked for", ("", "8 draws", "100", "129", "1000", "aim"), rows)
