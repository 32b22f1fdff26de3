"""L-BFGS on the flat parameters: for networks, users' own parametrisations, and as a second opinion."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import as_whole, require_size
from ..parameter_sets import project_all
from ..records import Record, field, tree_map
from .descent import Iterates, Learned, Step, TrialPoints
from .space import Space, unflat

# A pair of changes teaches curvature only if it is clearly positive.
CURVED = 1e-10

# After a rejection the step is shortened to this share; below the shortest, what was learned is forgotten.
SHORTER, SHORTEST = 0.25, 1e-6


class Pairs(Record):
    """What K runs remember: their newest changes of parameters and gradients, newest last, and the step length."""

    steps: Float[np.ndarray, "K M D"]
    gradient_changes: Float[np.ndarray, "K M D"]
    known: Bool[np.ndarray, "K M"]
    reach: Float[np.ndarray, " K"]


class LBFGS(Step):
    """Limited-memory quasi-Newton steps with backtracking, projected onto the policy's set.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solver = pr.SampleAverage(samples=32, largest=32, starts=1, iterations=20, step=pr.LBFGS())
    >>> pr.solve(lake, lake.prior, policy=pr.Neural(np.eye(4), width=4), solver=solver).status.ok
    True

    Args:
        memory: pairs of changes that are remembered.
    """

    memory: int = field(static=True, converter=as_whole, default=10)

    def __check_init__(self) -> None:
        require_size("LBFGS memory", self.memory)

    @property
    def needs_table(self) -> bool:
        """No: it moves parameters of any kind."""
        return False

    def blank(self, space: Space, iterates: Iterates) -> Any:
        """Return a memory without pairs."""
        count, size = iterates.gradient.shape
        nothing = np.zeros((count, self.memory, size))
        return Pairs(nothing, nothing, np.zeros((count, self.memory), bool), np.ones(count))

    def remember(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return a memory with which the first step has length 1 or less."""
        norm = np.linalg.norm(iterates.gradient, axis=1)
        first = 1.0 / np.maximum(1.0, np.where(norm > 0, norm, 1.0))
        return dataclasses.replace(self.blank(space, iterates), reach=first), iterates.prices

    def propose(self, space: Space, iterates: Iterates) -> Any:
        """Return the quasi-Newton direction, shortened by what rejections have taught."""
        moves = -iterates.memory.reach[:, None] * newton_directions(iterates.memory, iterates.gradient)
        moved = _added(iterates.parameters, moves)
        return project_all(space.within, moved)

    def predicted_decrease(self, iterates: Iterates, moved: np.ndarray, points: np.ndarray) -> Float[np.ndarray, " K"]:
        """Return `-<gradient, change of the parameters>`."""
        return -(iterates.gradient * moved).sum(axis=1)

    def learn(self, space: Space, iterates: Iterates, trial: TrialPoints) -> Learned:
        """Return the memory with a new pair after an accepted step; a shorter step after a rejected one."""
        pairs: Pairs = iterates.memory
        moved, accept = trial.moved, trial.accept
        gradient_change = np.asarray(trial.gradient - iterates.gradient)
        product = (moved * gradient_change).sum(axis=1)
        lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(gradient_change, axis=1)
        good = accept & (product > CURVED * lengths)
        reach = np.where(accept, 1.0, pairs.reach * SHORTER)
        forget = reach < SHORTEST
        norm = np.linalg.norm(iterates.gradient, axis=1)
        reach = np.where(forget, 1.0 / np.maximum(1.0, norm), reach)

        def pushed(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            rows = np.concatenate([old[:, 1:], new[:, None]], axis=1)
            return np.where(good.reshape(-1, *[1] * (old.ndim - 1)), rows, old)

        known = pushed(pairs.known, np.ones(len(good), bool)) & ~forget[:, None]
        steps, changes = pushed(pairs.steps, moved), pushed(pairs.gradient_changes, gradient_change)
        return Pairs(steps, changes, known, reach), iterates.prices


def newton_directions(pairs: Pairs, gradient: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "K D"]:
    """Return the inverse Hessian that the pairs stand for, times the gradient (the two-loop recursion)."""
    steps, gradient_changes = np.asarray(pairs.steps), np.asarray(pairs.gradient_changes)
    known = np.asarray(pairs.known)
    product = (steps * gradient_changes).sum(axis=2)
    inverse = np.where(known, 1.0 / np.where(known, product, 1.0), 0.0)
    result, shares = np.array(gradient), np.zeros(known.shape)
    for m in range(known.shape[1] - 1, -1, -1):
        shares[:, m] = inverse[:, m] * (steps[:, m] * result).sum(axis=1)
        result = result - shares[:, m, None] * gradient_changes[:, m]
    square = (gradient_changes[:, -1] ** 2).sum(axis=1)
    result = (
        result * np.where(known[:, -1] & (square > 0), product[:, -1] / np.where(square > 0, square, 1.0), 1.0)[:, None]
    )
    for m in range(known.shape[1]):
        back = inverse[:, m] * (gradient_changes[:, m] * result).sum(axis=1)
        result = result + np.where(known[:, m], shares[:, m] - back, 0.0)[:, None] * steps[:, m]
    return result


def _added(parameters: Any, rows: Float[np.ndarray, "K D"]) -> Any:
    return tree_map(lambda leaf, change: leaf + change, parameters, unflat(rows, parameters))
