"""The frozen lake of the paper's experiments, on our reconstruction of its map: what all of them share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent.arrays import in_float64
from prudent.envs import FrozenLake, frozen_lake
from prudent.losses import Loss
from prudent.policies import action_tables
from prudent.seeds import child

SLIP = 0.3
LEVELS = (0.0, 0.5, 0.9)
ROBUST_RADII = (0.05, 1.0, 20.0)
TRUNCATION = pr.Truncated(horizon=130)
PAPER = pr.BRPG(samples=30, iterations=100, step=1.0)

# Data sets a fanned-out unit plans for. Part of the config: random numbers are drawn by block.
BLOCK = 10


class Setting(NamedTuple):
    """One table's column: the true escape probability and the size of its data sets.

    Attributes:
        number: of the random stream its data sets come from.
        table: which table of the paper.
        escape: the true escape probability.
        n: trials of each coordinate.
    """

    number: int
    table: str
    escape: float
    n: int

    @property
    def name(self) -> str:
        """For records and titles."""
        return f"escape-{self.escape:g}-n-{self.n}"

    @property
    def truth(self) -> tuple[float, float]:
        """The true theta."""
        return SLIP, self.escape


SETTINGS = (
    Setting(0, "table1", 0.02, 5),
    Setting(1, "table1", 0.02, 50),
    Setting(2, "table2", 0.7, 5),
    Setting(3, "table3", 0.7, 50),
)


class DataSets(NamedTuple):
    """The lake, the posterior of each data set of a setting, and the seed of what is solved with them."""

    lake: FrozenLake
    beliefs: list[pr.Beta]
    solve_seed: int

    def maximum_likelihood(self) -> Float[np.ndarray, "I 2"]:
        """Of every data set."""
        return np.stack([np.asarray(belief.maximum_likelihood()) for belief in self.beliefs])

    def points(self) -> list[pr.Point]:
        """All belief in the maximum-likelihood theta, for every data set."""
        return [pr.Point(theta) for theta in self.maximum_likelihood()]

    def solved(
        self, beliefs: Sequence[pr.Posterior], risks: Sequence[pr.Risk], solver: pr.BRPG, loss: Loss | None = None
    ) -> list[list[pr.Solution]]:
        """Belief i under risk j, in one compiled call."""
        return pr.solve_many(
            self.lake, beliefs, risks, loss=loss, solver=solver, seed=self.solve_seed, progress=False, certify=False
        )


def data_sets(setting: Setting, replications: int, seed: int) -> DataSets:
    """Data set i of a setting depends on the seed and on i alone, so that all methods see the same."""
    lake = frozen_lake()
    own = child(seed, setting.number)
    data_seed, solve_seed = child(own, 0), child(own, 1)
    logs = [lake.trials(setting.n, setting.truth, child(data_seed, i)) for i in range(replications)]
    return DataSets(lake, [lake.prior.update(log) for log in logs], solve_seed)


def truth_losses(
    policies: Sequence[pr.TabularPolicy], setting: Setting, loss: Loss | None = None
) -> Float[np.ndarray, " I"]:
    """The loss of each policy under the truth, as the paper's tables have it.

    The occupancy is cut after the paper's horizon for the expected cost only: what is cut off, 1.8 % of its mass,
    would make a divergence from a distribution negative.
    """
    method = TRUNCATION if loss is None else pr.Exact()
    return pr.loss_at(list(policies), frozen_lake(), setting.truth, loss=loss, occupancy=method)


def planned_losses(actions: Any, setting: Setting) -> Float[np.ndarray, ...]:
    """The losses under the truth of deterministic policies `[..., S]`, in one compiled call."""
    table = np.asarray(actions)
    policies = [pr.TabularPolicy.deterministic(row, 4) for row in table.reshape(-1, table.shape[-1])]
    return truth_losses(policies, setting).reshape(table.shape[:-1])


def actions_of(policy: pr.TabularPolicy) -> list[int]:
    """The action of each state of a deterministic policy."""
    return np.asarray(policy.probabilities).argmax(axis=1).tolist()


def at_one_theta(settings: pr.BRPG) -> pr.BRPG:
    """Draws of a point are alike: one an iteration, and two to report on."""
    return pr.BRPG(samples=1, iterations=settings.iterations, step=settings.step, evaluation=2)


@in_float64
def truth_curves(
    parameters: Float[np.ndarray, "I T S A"], setting: Setting, loss: Loss | None = None
) -> Float[np.ndarray, "I T"]:
    """The loss under the truth of every iterate of I runs of softmax policies."""
    replications, iterations, *shape = parameters.shape
    tables = np.asarray(action_tables(pr.Softmax(), parameters.reshape(-1, *shape)))
    policies = [pr.TabularPolicy(table) for table in tables]
    return truth_losses(policies, setting, loss).reshape(replications, iterations)


def published() -> dict[str, Any]:
    """The figures of the paper's tables, by table, data size and method."""
    text = resources.files("prudent_studies").joinpath("published.json").read_text(encoding="utf-8")
    return json.loads(text)


def config() -> dict[str, Any]:
    """What the results depend on beside the seed and the number of replications."""
    return {
        "map": "/".join(frozen_lake().tiles),
        "slip": SLIP,
        "discount": float(frozen_lake().discount),
        "levels": list(LEVELS),
        "radii": list(ROBUST_RADII),
        "truncation": TRUNCATION.horizon,
        "samples": PAPER.samples,
        "iterations": PAPER.iterations,
        "step": float(PAPER.step),  # pyright: ignore[reportArgumentType]
    }
