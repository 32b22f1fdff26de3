"""The global optimum of a convex loss over the occupancies of one known model, with a certificate.

The occupancies are a polytope, `lambda >= 0` and `sum_a lambda(s, a) - discount (P^T lambda)(s) = start(s)`, so
"the best policy under the true model" is a convex program. At any of its points, with `z = grad F(lambda)`,

    F(lambda) - gap <= F* <= F(lambda),      gap = <z, lambda> - min_lambda' <z, lambda'>

and the minimum is exact planning with the cost z; the same holds for any average of such cuts. Three methods propose
occupancies: an interior-point method (Newton steps on the whole program) where its matrix is affordable; cutting
planes for losses with kinks, where Newton's steps stall; and mirror descent on the policy, which needs no matrix, for
larger models. None is trusted: only the certificate is.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator

import equinox as eqx
from jaxtyping import Float

from ..arrays import Array, in_float64, require_kind, require_size
from ..errors import InputError
from ..losses import Loss, check_loss_at
from ..models import MDP
from ..policies import TabularPolicy
from .exact import require_tolerance
from .incumbent import ConvexSearch, row_policy
from .proposals import LARGEST_CUTS, cutting_planes, mirror, newton

# Certificates within which the gap has to halve: of mirror descent, before cutting planes are tried; of cutting planes
# on models large enough that their linear programs take seconds; and of these on small ones.
MIRROR_PATIENCE, LARGE_PATIENCE, SMALL_PATIENCE = 5, 10, 30


class ConvexStatus(enum.Enum):
    """How `plan_convex` ended; the value says what it means and what to do.

    >>> import prudent as pr
    >>> pr.ConvexStatus.OPTIMAL.ok, pr.ConvexStatus.ITERATION_LIMIT.ok
    (True, False)
    """

    OPTIMAL = "the certified gap is within the tolerance"
    ITERATION_LIMIT = "all iterations were used before the gap fell to the tolerance; raise iterations= or tolerance="
    STALLED = (
        "no step improves the policy and the gap is above the tolerance; check that the loss is convex in the "
        "occupancy (and, past 5000 state-action pairs, smooth), or raise tolerance="
    )

    @property
    def ok(self) -> bool:
        """Whether the policy is optimal within the tolerance."""
        return self is ConvexStatus.OPTIMAL


class ConvexPlan(eqx.Module):
    """The best policy for a convex loss under one known model, and a proof of how good it is.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.envs.frozen_lake().at((0.3, 0.02))
    >>> best = pr.plan_convex(mdp, pr.ExpectedCost())
    >>> bool(abs(best.value - mdp.start @ pr.plan(mdp).values) < 1e-6), best.lower_bound <= best.value
    (True, True)

    Attributes:
        policy: its rows are the occupancy's, normalised; uniform where a state is never visited.
        occupancy: `[S, A]` of the policy.
        value: the loss at the occupancy, an upper bound of the optimum.
        lower_bound: of the optimum, by convexity; true at any time, converged or not.
        gap: `value - lower_bound`.
        status: how the search ended; `status.ok` only if the gap is within the tolerance.
        iterations: steps made, Newton's and mirror descent's, and linear programs solved.
        seconds: wall time.
    """

    policy: TabularPolicy
    occupancy: Float[Array, "S A"]
    value: float
    lower_bound: float
    gap: float
    status: ConvexStatus
    iterations: int
    seconds: float


@in_float64
def plan_convex(mdp: MDP, loss: Loss, *, tolerance: float | None = None, iterations: int = 2000) -> ConvexPlan:
    """The global optimum of a convex loss `F(lambda, P)` over the occupancies of one known model.

    The loss may have kinks; its gradient there is any subgradient. Where it has many, on models of hundreds of pairs or
    more, the gap may stop above the tolerance, and the status says so.

    Args:
        mdp: the known model.
        loss: `(occupancy, mdp) -> number`, traceable by JAX and convex in the occupancy.
        tolerance: the largest gap between the loss and its lower bound, > 0, in the unit of the loss. Left out, it is
            1e-7 of the loss's spread (that among the uniform policy and the best and worst plans for the gradient
            there), or what rounding leaves of it.
        iterations: most steps; small models need a few dozen, models past 1500 state-action pairs more.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 2, 2), 0.5)), cost=np.zeros((2, 2)), start=[0.5, 0.5], discount=0.9)
    >>> best = pr.plan_convex(mdp, pr.NegativeEntropy())
    >>> best.status.ok, best.policy.probabilities.round(3).tolist()
    (True, [[0.5, 0.5], [0.5, 0.5]])
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    if not callable(loss):
        raise InputError(f"loss must be callable as loss(occupancy, mdp), such as ExpectedCost(); got {loss!r}")
    tolerance = require_tolerance(tolerance, "the largest gap to the optimum")
    iterations = require_size("iterations", iterations)
    clock = time.perf_counter()
    search = ConvexSearch(mdp, loss, tolerance)
    check_loss_at(loss, search.occupancy, mdp)
    return searched(search, iterations, clock)


def searched(search: ConvexSearch, iterations: int, clock: float) -> ConvexPlan:
    """The search carried on to its end; its loss has been checked."""
    steps, methods = 0, _methods(search)
    for effort in methods:
        steps += effort
        if search.finished or steps >= iterations:
            break
    if search.finished:
        status = ConvexStatus.OPTIMAL
    else:
        status = ConvexStatus.ITERATION_LIMIT if steps >= iterations else ConvexStatus.STALLED
    # Rounding can put the bound a hair above the value it bounds.
    bound = min(search.lower_bound, search.value)
    return ConvexPlan(
        policy=TabularPolicy(row_policy(search.occupancy)),
        occupancy=search.occupancy,
        value=search.value,
        lower_bound=bound,
        gap=search.value - bound,
        status=status,
        iterations=min(steps, iterations),
        seconds=time.perf_counter() - clock,
    )


def _methods(search: ConvexSearch) -> Iterator[int]:
    """Steps that improve the search, method by method, and what each counts for."""
    dual = search.begin()
    yield 0
    small = search.flow is not None
    yield from newton(search, dual) if small else _while_halving(search, mirror(search), MIRROR_PATIENCE)
    if search.mdp.cost.size <= LARGEST_CUTS:
        yield from _while_halving(search, cutting_planes(search), SMALL_PATIENCE if small else LARGE_PATIENCE)
    yield from mirror(search)


def _while_halving(search: ConvexSearch, steps: Iterator[int], patience: int) -> Iterator[int]:
    """The steps, as long as the gap halves within this many of them."""
    gaps = [search.gap]
    for effort in steps:
        yield effort
        gaps.append(search.gap)
        if len(gaps) > patience and not gaps[-1] <= 0.5 * gaps[-1 - patience]:
            return
