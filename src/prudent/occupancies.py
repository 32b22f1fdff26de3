"""The discounted occupancy measure of a policy, exact or cut after a horizon."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .arrays import as_whole, require_kind, require_size
from .engine import Method, ModelBatch, TruncatedSum, choose_method, table_rows
from .errors import InputError
from .kernels import Support
from .models import MDP
from .policies import action_probabilities
from .records import Record, field


class Exact(Record):
    """The occupancy over the infinite horizon, by a method chosen by size and structure.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> policy = pr.plan(lake.at((0.3, 0.02))).policy
    >>> iterative = pr.Exact(pr.Krylov.of(lake.support))
    >>> exact, close = (pr.loss_at(policy, lake, (0.3, 0.02), occupancy=how) for how in (pr.Exact(), iterative))
    >>> bool(abs(exact - close) < 1e-8)
    True

    Args:
        solver: `Elimination.of(support)`, `Banded.of(support)` or `Krylov.of(support)` to overrule the choice.
    """

    solver: Method | None = None
    horizon: ClassVar[None] = None

    def __check_init__(self) -> None:
        if self.solver is not None:
            require_kind("solver", self.solver, Method, "a method such as Banded.of(support)")

    def method_for(self, support: Support) -> Method:
        """Return the method that evaluates policies in models along a support."""
        if self.solver is None:
            return choose_method(support)
        if not self.solver.fits(support.index()):
            kind = type(self.solver).__name__
            raise InputError(f"this {kind} was made for another support; use {kind}.of(support)")
        return self.solver

    def error_bound(self, discount: float) -> float:
        """Return the mass left out: none."""
        del discount
        return 0.0


class Truncated(Record):
    """The occupancy cut after the terms `t = 0..horizon`, as in the paper's experiments.

    >>> import prudent as pr
    >>> round(pr.Truncated(horizon=130).error_bound(discount=0.97), 4)
    0.6166
    """

    horizon: int = field(static=True, converter=as_whole)

    def __check_init__(self) -> None:
        require_size("horizon", self.horizon, least=0)

    def method_for(self, support: Support) -> Method:
        """Return the method that evaluates policies in models along a support."""
        return TruncatedSum.of(support, self.horizon)

    def error_bound(self, discount: float) -> float:
        """Return the mass left out, `discount^(horizon + 1) / (1 - discount)`."""
        return float(discount) ** (self.horizon + 1) / (1.0 - float(discount))


Horizon = Exact | Truncated


def occupancy(mdp: MDP, policy: Any, method: Horizon | None = None) -> np.ndarray:
    """Return the discounted state-action occupancy `[S, A]` of a policy, equation (1) of the paper.

    Args:
        mdp: the model.
        policy: `[S, A]` action probabilities, or a `TabularPolicy`.
        method: `Exact()` or `Truncated(horizon)`; exact when left out.

    >>> import numpy as np, prudent as pr
    >>> chain = pr.MDP(pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]]), cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> pr.occupancy(chain, np.ones((2, 1))).sum().round(12)
    np.float64(10.0)
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    if method is not None:
        require_kind("method", method, Exact | Truncated, "Exact() or Truncated(horizon)")
    support = mdp.kernel.support
    table = action_probabilities(policy, support.states, support.actions)
    visits = state_visits(mdp, table, Exact() if method is None else method)
    return visits[:, None] * table


def state_visits(mdp: MDP, table: np.ndarray, method: Horizon) -> np.ndarray:
    """Return how often a table of action probabilities visits each state of one model."""
    support = mdp.kernel.support
    states, actions, successors = support.shape
    rows = np.asarray(mdp.kernel.probability).reshape(states * actions, successors, 1)
    models = ModelBatch(
        support.index(),
        table_rows(states, actions),
        rows,
        np.asarray(mdp.cost)[:, :, None],
        np.asarray(mdp.start),
        float(mdp.discount),
    )
    return method.method_for(support).factor(models, np.asarray(table)[:, :, None]).state_visits()[:, 0]
