"""Occupancy measures and their derivative: one factorisation, a forward and an adjoint solve.

With `M = I - discount P_pi` (equation 1 of the paper, summed in closed form):

    M^T mu = start,   lambda(s, a) = mu(s) pi(a | s)

and, for a loss with gradient `z = dF/dlambda`, the adjoint

    M V = z_pi,   Q(s, a) = z(s, a) + discount (P V)(s, a),   dC/dpi(a | s) = mu(s) Q(s, a).
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float

from ..arrays import Array
from ..deferred import eqx, jnp, lax, when_called
from ..kernels import Support, pull_batch
from .banded import LARGEST_SMALL, XlaBanded, has_loops
from .elimination import XlaElimination
from .krylov import LinearSolver, XlaKrylov

# Up to here elimination takes less time than loading Numba and its loops.
LARGEST_ELIMINATION = 16

# Up to here, and where moves lead no farther than this in some order of the states, a factorisation within the band
# takes about half the time of an iterative solve; its work grows with the square of the band.
LARGEST_BANDED, WIDEST_BAND = 4096, 48


def _chosen(support: Support) -> LinearSolver:
    """The solver that suits a support's size and structure."""
    if support.states <= LARGEST_SMALL:
        # Without loops the unrolled elimination beats an iterative solve and still compiles in seconds.
        looped = support.states > LARGEST_ELIMINATION and has_loops()
        return XlaBanded.of(support) if looped else XlaElimination.of(support)
    if support.states <= LARGEST_BANDED and not support.is_dense:
        banded = XlaBanded.of(support)
        if banded.band <= WIDEST_BAND:
            return banded
    return XlaKrylov.of(support)


def traced_solver(horizon: int | None, support: Support) -> LinearSolver:
    """Return the solver of traced models."""
    return _chosen(support) if horizon is None else XlaKrylov.of(support)


def measure(
    solver: LinearSolver,
    horizon: int | None,
    support: Support,
    probability: Array,
    policy: Array,
    start: Float[Array, " S"],
    discount: Array,
) -> Array:
    """Return occupancies of a batch of traced models, with the batch along `solver.axis()`."""
    variables = (probability, policy, start, discount)
    if horizon is not None:
        return _truncated(support, horizon, *variables)
    return _exact(variables, support, solver)


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
    solver = XlaKrylov.of(support)
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
