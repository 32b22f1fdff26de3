"""Iterative solver for larger MDPs: BiCGSTAB on successor lists or on dense chains, never a factor.

The batch of models is solved together, each with its own step lengths, until every residual is below
the tolerance. BiCGSTAB can stall; the plain fixed point `x <- b + discount P x` cannot, because it
contracts by the discount. So whatever BiCGSTAB leaves unfinished is handed to the fixed point, whose
loop does not run at all in the usual case.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float

from ..arrays import Array
from ..deferred import jnp, lax
from ..errors import InputError
from ..kernels import Graph, Support, on_graph, sum_terms
from ..records import Record, field

# BiCGSTAB is begun again so often before the fixed point takes over.
RESTARTS = 5

# Room for rounding between the recursive and the true residual, both squared.
CLOSE = 4.0


class LinearSolver(Record):
    """Solves with `M = I - discount P_pi` and its transpose, for a batch of models that share a support."""

    @abc.abstractmethod
    def axis(self) -> int:
        """Where arrays keep the batch of models: last (-1) or first (0)."""

    @abc.abstractmethod
    def fits(self, support: Support) -> bool:
        """Whether it was made for a support like this one."""

    @property
    def direct(self) -> bool:
        """Whether it factorises, in the processor's cache; else it iterates."""
        return False

    def width(self, support: Support) -> int:
        """How many numbers for each state it keeps of a model, beside its kernel."""
        return 1

    @abc.abstractmethod
    def prepare(self, support: Support, probability: Array, policy: Array, discount: Array) -> Any:
        """What both solves share: a factorisation, or the chain `P_pi` itself."""

    @abc.abstractmethod
    def forward(self, prepared: Any, start: Array) -> Array:
        """Solve `M^T mu = start`."""

    @abc.abstractmethod
    def adjoint(self, prepared: Any, values: Array) -> Array:
        """Solve `M V = values`."""


class SparseChain(NamedTuple):
    """`P_pi` of N models along the state graph, applied without ever being formed; vectors are `[S, N]`.

    The barriers tie the kernel to the vector it meets: XLA would otherwise move everything that does not
    change out of the solver's loop, and keep several rearranged copies of the kernel for it.
    """

    graph: Graph
    probability: Float[Array, "S E F N"]
    policy: Float[Array, "S E N"]
    discount: Array

    def pull(self, values: Float[Array, "S N"]) -> Float[Array, "S N"]:
        states, actions, width = self.graph.successor.shape
        policy, kernel, values = lax.optimization_barrier((self.policy, self.probability, values))
        successor = self.graph.successor.reshape(states, -1)
        probability = kernel.reshape(states, actions * width, -1)

        def term(entry: int | Array) -> Array:
            return policy[:, entry // width] * probability[:, entry] * values[successor[:, entry]]

        return sum_terms(actions * width, term)

    def push(self, mass: Float[Array, "S N"]) -> Float[Array, "S N"]:
        policy, kernel, mass = lax.optimization_barrier((self.policy, self.probability, mass))
        leaving = policy * mass[:, None]
        incoming = self.graph.incoming
        if incoming is None:
            return jnp.zeros_like(mass).at[self.graph.successor].add(kernel * leaving[:, :, None])
        entries, width = self.graph.successor.size, self.graph.successor.shape[2]
        probability = kernel.reshape(entries, -1)
        leaving = leaving.reshape(entries // width, -1)

        def term(entry: int | Array) -> Array:
            index = incoming[:, entry]
            inside = jnp.minimum(index, entries - 1)
            share = probability[inside] * leaving[inside // width]
            return jnp.where((index < entries)[:, None], share, 0.0)

        return sum_terms(incoming.shape[1], term)


class DenseChain(NamedTuple):
    """`P_pi` of N models as full matrices; vectors are `[N, S]`."""

    matrix: Float[Array, "N S S"]
    discount: Array

    def pull(self, values: Float[Array, "N S"]) -> Float[Array, "N S"]:
        return jnp.einsum("nij,nj->ni", self.matrix, values)

    def push(self, mass: Float[Array, "N S"]) -> Float[Array, "N S"]:
        return jnp.einsum("nij,ni->nj", self.matrix, mass)


class XlaKrylov(LinearSolver):
    """BiCGSTAB with a fixed-point safety net.

    Args:
        dense: whether the support is dense, which decides the place of the batch axis.
        residual: stop when `|b - M x| <= residual |b|` in every model.
        sweeps: BiCGSTAB iterations before the fixed point takes over.
    """

    dense: bool = field(static=True)
    residual: float = field(static=True, default=1e-10)
    sweeps: int = field(static=True, default=500)

    def __check_init__(self) -> None:
        if not (0.0 < self.residual < 1.0 and self.sweeps >= 0):
            raise InputError(f"XlaKrylov needs 0 < residual < 1 and sweeps >= 0, got {self.residual} and {self.sweeps}")

    def axis(self) -> int:
        """First for dense chains, whose rows are long; last along successor lists."""
        return 0 if self.dense else -1

    def fits(self, support: Support) -> bool:
        """Dense chains for dense supports."""
        return self.dense == support.is_dense

    @staticmethod
    def of(support: Support) -> XlaKrylov:
        return XlaKrylov(dense=support.is_dense)

    def prepare(self, support: Support, probability: Array, policy: Array, discount: Array) -> SparseChain | DenseChain:
        """The chain of every model: batch axis first when dense, last along successor lists."""
        if self.dense:
            # A running sum over actions reads the kernel once at memory speed; `einsum` is 5 times slower.
            matrix = policy[:, :, 0, None] * probability[:, :, 0]
            for action in range(1, support.actions):
                matrix = matrix + policy[:, :, action, None] * probability[:, :, action]
            return DenseChain(matrix, discount)
        assert support.graph is not None
        return SparseChain(support.graph, *on_graph(support, probability, policy), discount)

    def forward(self, prepared: SparseChain | DenseChain, start: Array) -> Array:
        """Solve `(I - discount P_pi)^T mu = start`."""
        return self._solve(prepared.push, prepared.discount, start)

    def adjoint(self, prepared: SparseChain | DenseChain, values: Array) -> Array:
        """Solve `(I - discount P_pi) V = values`."""
        return self._solve(prepared.pull, prepared.discount, values)

    def _solve(self, move: Callable[[Array], Array], discount: Array, right: Array) -> Array:
        along = -1 if self.dense else 0

        def dot(left: Array, other: Array) -> Array:
            return (left * other).sum(axis=along, keepdims=True)

        def apply(x: Array) -> Array:
            return x - discount * move(x)

        limit = self.residual**2 * dot(right, right)
        size = lambda residual: dot(residual, residual)  # noqa: E731
        x = _restarted(apply, right, dot=dot, size=size, limit=limit, sweeps=self.sweeps)
        return _fixed_point(apply, dot, x, right, limit, discount, self.residual)


def _ratio(top: Array, bottom: Array) -> Array:
    """`top / bottom`, and 0 where BiCGSTAB has broken down or is done (`bottom == 0`)."""
    return jnp.where(bottom == 0, 0.0, top / jnp.where(bottom == 0, 1.0, bottom))


def bicgstab(
    apply: Callable[[Array], Array],
    x: Array,
    residual: Array,
    *,
    dot: Callable[[Array, Array], Array],
    size: Callable[[Array], Array],
    limit: Array,
    sweeps: int,
) -> Array:
    """BiCGSTAB on `apply(x) = b`, from an x with the residual `b - apply(x)`; all systems of a batch side by side.

    It ends when no system's `size` of the residual is above its limit. The returned iterate is each system's best, so
    a late breakdown loses nothing.
    """
    shadow, nothing, one = residual, jnp.zeros_like(x), jnp.ones_like(limit)
    initial = (0, x, residual, nothing, nothing, one, one, one, x, size(residual))

    def unfinished(state: tuple) -> Array:
        return (state[0] < sweeps) & jnp.any(state[-1] > limit)

    def sweep(state: tuple) -> tuple:
        count, x, residual, direction, image, rho, alpha, omega, best, least = state
        rho_next = dot(shadow, residual)
        beta = _ratio(rho_next, rho) * _ratio(alpha, omega)
        direction = residual + beta * (direction - omega * image)
        image = apply(direction)
        alpha = _ratio(rho_next, dot(shadow, image))
        half = residual - alpha * image
        turn = apply(half)
        omega = _ratio(dot(turn, half), dot(turn, turn))
        x = x + alpha * direction + omega * half
        residual = half - omega * turn
        now = size(residual)
        better = now < least
        best, least = jnp.where(better, x, best), jnp.where(better, now, least)
        return count + 1, x, residual, direction, image, rho_next, alpha, omega, best, least

    return lax.while_loop(unfinished, sweep, initial)[-2]


def _restarted(
    apply: Callable[[Array], Array], right: Array, *, limit: Array, size: Callable, **settings: Any
) -> Array:
    """BiCGSTAB from where it got to, with a new shadow, until the true residual is met; in the usual case once.

    Its recursive residual can part from the true one by any amount, as on chains that nearly go round in a ring. So an
    iterate is taken only if its true residual is smaller: nothing is ever worse than the right-hand side itself.
    """
    residual = right - apply(right)

    def unfinished(state: tuple) -> Array:
        count, _, _, now = state
        return (count < RESTARTS) & jnp.any(now > CLOSE * limit)

    def again(state: tuple) -> tuple:
        count, x, residual, now = state
        tried = bicgstab(apply, x, residual, size=size, limit=limit, **settings)
        left = right - apply(tried)
        then = size(left)
        better = then < now
        return count + 1, *(jnp.where(better, *each) for each in ((tried, x), (left, residual), (then, now)))

    return lax.while_loop(unfinished, again, (0, right, residual, size(residual)))[1]


def _fixed_point(
    apply: Callable, dot: Callable, x: Array, right: Array, limit: Array, discount: Array, tolerance: float
) -> Array:
    """`x <- x + (b - M x)` until the true residual is met; contracts by `discount` a sweep."""
    residual = right - apply(x)
    # Twice the sweeps the rate needs: they pay for the constant of the norm, so the bound is not reached first.
    most = jnp.ceil(2.0 * jnp.log(tolerance) / jnp.log(jnp.clip(discount, 1e-3, 1.0 - 1e-12))).astype(jnp.int32)

    def unfinished(state: tuple) -> Array:
        count, _, residual = state
        return (count < most) & jnp.any(dot(residual, residual) > CLOSE * limit)

    def sweep(state: tuple) -> tuple:
        count, x, residual = state
        x = x + residual
        return count + 1, x, right - apply(x)

    return lax.while_loop(unfinished, sweep, (0, x, residual))[1]
