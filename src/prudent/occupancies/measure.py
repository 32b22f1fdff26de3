"""Occupancy measures and their derivative: one factorisation, a forward and an adjoint solve.

With `M = I - discount P_pi` (equation 1 of the paper, summed in closed form):

    M^T mu = start,   lambda(s, a) = mu(s) pi(a | s)

and, for a loss with gradient `z = dF/dlambda`, the adjoint

    M V = z_pi,   Q(s, a) = z(s, a) + discount (P V)(s, a),   dC/dpi(a | s) = mu(s) Q(s, a).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_whole, in_float64, require_kind, require_size
from ..deferred import eqx, jax, jitted, jnp, lax, when_called
from ..errors import InputError
from ..kernels import Support, pull_batch
from ..models import MDP
from ..policies import action_probabilities
from ..records import Record, field
from .banded import LARGEST_SMALL, Banded, has_loops
from .elimination import Elimination
from .krylov import Krylov, LinearSolver

# Up to here elimination takes less time than loading Numba and its loops.
LARGEST_ELIMINATION = 16

# Up to here, and where moves lead no farther than this in some order of the states, a factorisation within the band
# takes about half the time of an iterative solve; its work grows with the square of the band.
LARGEST_BANDED, WIDEST_BAND = 4096, 48

# Up to here the occupancy of a single policy is found by NumPy, which needs no compilation.
LARGEST_ON_HOST = 1500

# Matrices of a batch of direct solves on the host.
SOLVE_BYTES = 32 * 2**20


class Exact(Record):
    """The occupancy over the infinite horizon, by a solver picked by size.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> policy = pr.plan(lake.at((0.3, 0.02))).policy
    >>> iterative = pr.Exact(pr.Krylov.of(lake.support))
    >>> exact, close = (pr.loss_at(policy, lake, (0.3, 0.02), occupancy=how) for how in (pr.Exact(), iterative))
    >>> bool(abs(exact - close) < 1e-8)
    True

    Args:
        solver: `Elimination.of(support)`, `Banded.of(support)` or `Krylov(...)` to overrule the choice.
    """

    solver: LinearSolver | None = None
    horizon: ClassVar[None] = None

    def resolve(self, support: Support) -> Exact:
        """The same method with its solver chosen; done once, outside any compiled function."""
        if self.solver is None:
            return Exact(_chosen(support))
        if not self.solver.fits(support):
            kind = type(self.solver).__name__
            raise InputError(f"this {kind} was made for another support; use {kind}.of(support)")
        return self

    def solver_for(self, support: Support) -> LinearSolver:
        """The solver chosen."""
        del support
        assert self.solver is not None, "resolve the method first"
        return self.solver

    def error_bound(self, discount: float) -> float:
        """Mass left out: none."""
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

    def resolve(self, support: Support) -> Truncated:
        """Itself: there is nothing to choose."""
        return self

    def solver_for(self, support: Support) -> LinearSolver:
        """The one whose chain is followed term by term."""
        return Krylov.of(support)

    def error_bound(self, discount: float) -> float:
        """Mass left out, `discount^(horizon + 1) / (1 - discount)`."""
        return float(discount) ** (self.horizon + 1) / (1.0 - float(discount))


Method = Exact | Truncated


def _chosen(support: Support) -> LinearSolver:
    """The solver that suits a support's size and structure."""
    if support.states <= LARGEST_SMALL:
        # Without loops the unrolled elimination beats an iterative solve and still compiles in seconds.
        looped = support.states > LARGEST_ELIMINATION and has_loops()
        return Banded.of(support) if looped else Elimination.of(support)
    if support.states <= LARGEST_BANDED and not support.is_dense:
        banded = Banded.of(support)
        if banded.band <= WIDEST_BAND:
            return banded
    return Krylov.of(support)


def batch_axis(method: Method, support: Support) -> int:
    """Where a batch of models keeps its batch axis: last, or first for large dense kernels."""
    return method.solver_for(support).axis()


def measure(
    method: Method, support: Support, probability: Array, policy: Array, start: Float[Array, " S"], discount: Array
) -> Array:
    """Occupancies of a batch of models that share a support; differentiable in all four arrays.

    Args:
        method: exact or truncated, already resolved.
        support: shared by the batch.
        probability: `[S, A, B, N]`, or `[N, S, A, B]` when `batch_axis` is 0.
        policy: `[S, A, N]`, or `[N, S, A]`.
        start: `[S]` the initial distribution, tau in the paper.
        discount: scalar.

    Returns:
        lambda, `[S, A, N]` or `[N, S, A]`; each model's sums to `1 / (1 - discount)`.
    """
    variables = (probability, policy, start, discount)
    if method.horizon is not None:
        return _truncated(support, method.horizon, *variables)
    return _exact(variables, support, method.solver_for(support))


def _exact_parts(variables: tuple, support: Support, solver: LinearSolver) -> tuple[Array, Array, Any]:
    probability, policy, start, discount = variables
    axis = solver.axis()
    factors = solver.prepare(support, probability, policy, discount)
    visits = solver.forward(factors, _for_each(start, policy, axis))
    return _spread(visits, axis) * policy, visits, factors


def _for_each(start: Array, policy: Array, axis: int) -> Array:
    """The start of every model, `[S, N]` or `[N, S]`."""
    states, batch = start.shape[0], policy.shape[axis]
    return jnp.broadcast_to(start[:, None], (states, batch)) if axis else jnp.broadcast_to(start, (batch, states))


def _spread(by_state: Array, axis: int) -> Array:
    """`[S, N]` to `[S, 1, N]`, or `[N, S]` to `[N, S, 1]`."""
    return by_state[:, None] if axis else by_state[:, :, None]


def _exact_measure(variables: tuple, support: Support, solver: LinearSolver) -> Array:
    return _exact_parts(variables, support, solver)[0]


def _exact_forward(perturbed: Any, variables: tuple, support: Support, solver: LinearSolver) -> tuple[Array, tuple]:
    measure, visits, factors = _exact_parts(variables, support, solver)
    return measure, (measure, visits, factors)


def _exact_backward(
    residuals: tuple, gradient: Array, perturbed: Any, variables: tuple, support: Support, solver: LinearSolver
) -> tuple:
    measure, visits, factors = residuals
    probability, policy, _, discount = variables
    axis = solver.axis()
    actions, models = (1, -1) if axis else (2, 0)
    values = solver.adjoint(factors, (policy * gradient).sum(axis=actions))
    onward = pull_batch(support, probability, values) if axis else _pull_dense(probability, values)
    need_probability, _, need_start, need_discount = perturbed
    return (
        _kernel_gradient(support, discount * measure, values, axis) if need_probability else None,
        _spread(visits, axis) * (gradient + discount * onward),
        values.sum(axis=models) if need_start else None,
        (measure * onward).sum() if need_discount else None,
    )


@when_called
def _exact() -> Any:
    function = eqx.filter_custom_vjp(_exact_measure)
    function.def_fwd(_exact_forward)
    function.def_bwd(_exact_backward)
    return function


def _pull_dense(probability: Float[Array, "N S A B"], values: Float[Array, "N B"]) -> Float[Array, "N S A"]:
    """`pull` for dense kernels with the batch first, as matrix times vector: much faster than a 4-d `einsum`."""
    rows = probability.reshape(probability.shape[0], -1, probability.shape[-1])
    return jnp.einsum("nkb,nb->nk", rows, values).reshape(probability.shape[:-1])


def _kernel_gradient(support: Support, flow: Array, values: Array, axis: int) -> Array:
    """`discount lambda(s, a) V(successor(s, a, b))`, the derivative by the kernel's entries."""
    if axis == 0:
        return flow[..., None] * values[:, None, None]
    arrivals = values[None, None] if support.successor is None else values[support.successor]
    return flow[:, :, None] * arrivals


def _truncated(
    support: Support, horizon: int, probability: Array, policy: Array, start: Array, discount: Array
) -> Array:
    solver = Krylov.of(support)
    axis = solver.axis()
    chain = solver.prepare(support, probability, policy, discount)
    now = _for_each(start, policy, axis)

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        total, now = carry
        now = discount * chain.push(now)
        return (total + now, now), None

    # Plain reverse mode is right here: the sum has a fixed number of terms, there is no solver to skip.
    (visits, _), _ = lax.scan(step, (now, now), None, length=horizon)
    return _spread(visits, axis) * policy


def chains(weights: Float[np.ndarray, "M S K"], index: Int[np.ndarray, "*M S K"]) -> Float[np.ndarray, "M S S"]:
    """Transition matrices on the host: from each state, weights of moves to the states of an index."""
    models, states = weights.shape[:2]
    cell = np.arange(models * states).reshape(models, states, 1) * states + index
    return np.bincount(cell.ravel(), weights.ravel(), minlength=models * states**2).reshape(models, states, states)


def occupancies_on_host(
    support: Support,
    probability: Float[np.ndarray, "M S A B"],
    start: Float[np.ndarray, " S"],
    discount: float,
    policy: Float[np.ndarray, "S A"],
) -> Float[np.ndarray, "M S A"]:
    """Occupancies of one policy in many models, by direct solves in NumPy: nothing is compiled."""
    states, actions, successors = support.shape
    found = np.empty((len(probability), states, actions))
    size = max(1, SOLVE_BYTES // (8 * states * max(states, actions * successors)))
    for begin in range(0, len(probability), size):
        moves = policy[:, :, None] * probability[begin : begin + size]
        if support.is_dense:
            chain = moves.sum(axis=2)
        else:
            chain = chains(moves.reshape(len(moves), states, -1), support.index().reshape(states, -1))
        system = np.eye(states) - discount * chain.swapaxes(1, 2)
        visits = np.linalg.solve(system, np.broadcast_to(start[:, None], (len(moves), states, 1)))
        # Rounding may leave a state that is hardly visited below zero.
        found[begin : begin + size] = np.maximum(visits, 0.0) * policy
    return found


_measure_one = jitted(measure)


@in_float64
def occupancy(mdp: MDP, policy: Any, method: Method | None = None) -> np.ndarray:
    """The discounted state-action occupancy `[S, A]` of a policy, equation (1) of the paper.

    Args:
        mdp: the model.
        policy: `[S, A]` action probabilities, or a `TabularPolicy`.
        method: `Exact()` or `Truncated(horizon)`; exact when left out, of small models without compiling anything.

    >>> import numpy as np, prudent as pr
    >>> chain = pr.MDP(pr.Kernel.dense([[[0.5, 0.5]], [[0.0, 1.0]]]), cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> pr.occupancy(chain, np.ones((2, 1))).sum().round(12)
    np.float64(10.0)
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    support = mdp.kernel.support
    if method is not None:
        require_kind("method", method, Method, "Exact() or Truncated(horizon)")
    probabilities = action_probabilities(policy, support.states, support.actions)
    probability = np.asarray(mdp.kernel.probability)
    if method is None and support.states <= LARGEST_ON_HOST:
        start, discount = np.asarray(mdp.start), float(mdp.discount)
        return occupancies_on_host(support, probability[None], start, discount, probabilities)[0]
    method = (Exact() if method is None else method).resolve(support)
    axis = batch_axis(method, support)
    batched = _measure_one(
        method,
        support,
        np.expand_dims(probability, axis),
        np.expand_dims(probabilities, axis),
        mdp.start,
        mdp.discount,
    )
    return np.asarray(jax.device_get(batched)).squeeze(axis)
