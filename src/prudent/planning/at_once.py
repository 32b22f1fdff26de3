"""Modified policy iteration on one large model, all states at once in one compiled loop.

For models without successor lists, for discounts near 1, for which sweeps state after state are too many, and where
Numba is not installed. SciPy's matrices need no compilation, but take several times as long from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int

from ..arrays import Array
from ..deferred import jax, jnp, lax, when_called
from ..kernels import LONGEST_UNROLLED, sum_terms
from ..occupancies import bicgstab
from ..records import Record
from .in_order import EPSILON

# Sweeps of one policy between two improvements; an improvement costs about as much as A sweeps.
SWEEPS = 20

# If the sweeps shrink the residual less than this, mixing is slow and a Krylov method takes over.
SLOW = 0.7
KRYLOV_STEPS = 50

# Improvements without a new least residual, after which only plain sweeps are made: those cannot fail.
PATIENCE = 30

# Policy iteration ends after a handful; this many mean that rounding keeps it going.
MOST_IMPROVEMENTS = 100_000


class SweepKernel(Record):
    """The kernel laid out for sweeps: one long row of states for each action and successor."""

    successor: Int[Array, "A B S"] | None
    probability: Float[Array, "A B S"] | Float[Array, "A S B"]
    cost: Float[Array, "A S"]
    discount: Float[Array, ""]

    @staticmethod
    def of(successor: Array | None, probability: Array, cost: Array, discount: Array) -> SweepKernel:
        along = (1, 0, 2) if successor is None else (1, 2, 0)
        return SweepKernel(
            # Unsigned: JAX would otherwise look for negative indices at every gather.
            None if successor is None else jnp.transpose(successor, along).astype(jnp.uint32),
            jnp.transpose(probability, along),
            jnp.transpose(cost),
            jnp.asarray(discount),
        )

    def quality(self, action: int | Array, values: Float[Array, " S"]) -> Float[Array, " S"]:
        """`c(., a) + discount (P v)(., a)`."""
        probability, successor = self.probability, self.successor
        if successor is None:
            return self.cost[action] + self.discount * (probability[action] @ values)
        onward = sum_terms(
            probability.shape[1], lambda entry: probability[action, entry] * values[successor[action, entry]]
        )
        return self.cost[action] + self.discount * onward

    def improve(self, values: Float[Array, " S"]) -> tuple[Float[Array, " S"], Int[Array, " S"]]:
        """`min_a` of the quality and the first action that attains it."""

        def consider(action: int | Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
            least, chosen = best
            quality = self.quality(action, values)
            better = quality < least
            return jnp.where(better, quality, least), jnp.where(better, action, chosen)

        actions = self.cost.shape[0]
        best = self.quality(0, values), jnp.zeros(values.shape, jnp.int32)
        if self.successor is not None and actions * self.probability.shape[1] <= LONGEST_UNROLLED:
            for action in range(1, actions):
                best = consider(action, best)
            return best
        return lax.fori_loop(1, actions, consider, best)

    def chain(self, action: Int[Array, " S"]) -> tuple[Array, Callable[[Float[Array, " S"]], Float[Array, " S"]]]:
        """`c_pi` and `v -> discount P_pi v` for one deterministic policy, its rows picked out once."""
        if self.successor is None:
            states = jnp.arange(action.size)
            matrix = self.discount * self.probability[action, states]
            return self.cost[action, states], lambda values: matrix @ values
        cost = self._picked(action, self.cost[:, None])[0]
        successor = self._picked(action, self.successor)
        probability = self.discount * self._picked(action, self.probability)

        def move(values: Array) -> Array:
            return sum_terms(successor.shape[0], lambda entry: probability[entry] * values[successor[entry]])

        return cost, move

    def _picked(self, action: Int[Array, " S"], table: Array) -> Array:
        """`[A, B, S]` to `[B, S]`: each state's own action."""
        if table.shape[0] * table.shape[1] > LONGEST_UNROLLED:
            return jnp.take_along_axis(table, action[None, None], axis=0)[0]
        # Reading every action in order is faster than gathering one out of order.
        picked = table[0]
        for number in range(1, table.shape[0]):
            picked = jnp.where(action == number, table[number], picked)
        return picked


def _swept(
    successor: Array | None, probability: Array, cost: Array, discount: Array, tolerance: float, share: float
) -> tuple[Array, Array, Array, Array]:
    """Modified policy iteration: improve, remove the constant error, then sweep the new policy.

    It ends when no value is off by more than the tolerance, or than this share of the values' spread.
    """
    moves = SweepKernel.of(successor, probability, cost, discount)

    def unfinished(state: tuple) -> Array:
        return ~state[1] & (state[2] < MOST_IMPROVEMENTS)

    def improve(state: tuple) -> tuple:
        values, _, iteration, least, since = state
        better, action = moves.improve(values)
        gap = better - values
        middle, half = _middle(gap)
        # The error's constant part, and what is left of the residual without it.
        values, gap = values + middle / (1.0 - discount), gap - middle
        since = jnp.where(half < 0.9 * least, 0, since + 1)
        rounding = (since > 0) & (half <= 64.0 * EPSILON * jnp.abs(values).max())
        target = (1.0 - discount) * (tolerance + share * (values.max() - values.min()))
        done = (half <= target) | rounding
        values = lax.cond(
            done,
            lambda: values,
            lambda: _evaluate(*moves.chain(action), values + gap, half, discount, since < PATIENCE),
        )
        return values, done, iteration + 1, jnp.minimum(least, half), since

    start = jnp.zeros(cost.shape[0])
    values, _, iterations, _, _ = lax.while_loop(
        unfinished, improve, (start, jnp.asarray(False), jnp.asarray(0), jnp.asarray(jnp.inf), jnp.asarray(0))
    )
    better, action = moves.improve(values)
    return action, values, jnp.abs(better - values).max(), iterations


by_sweeps = when_called(lambda: jax.jit(_swept))


def _middle(values: Array) -> tuple[Array, Array]:
    """The centre of the values' range and half its length."""
    most, least = values.max(), values.min()
    return (most + least) / 2.0, (most - least) / 2.0


def _evaluate(
    cost: Array, move: Callable[[Array], Array], values: Array, half: Array, discount: Array, may_jump: Array
) -> Array:
    """Values of a policy, roughly: sweeps `v <- c_pi + discount P_pi v`, and a Krylov method where mixing is slow."""
    values = lax.fori_loop(0, SWEEPS - 1, lambda _, values: cost + move(values), values)
    swept = cost + move(values)
    middle, remaining = _middle(swept - values)
    return lax.cond(
        may_jump & (remaining > SLOW * half),
        lambda: bicgstab(
            lambda x: x - move(x),
            values + middle / (1.0 - discount),
            swept - values - middle,
            dot=jnp.dot,
            size=lambda residual: jnp.abs(residual).max(),
            limit=0.1 * half,
            sweeps=KRYLOV_STEPS,
        ),
        lambda: swept,
    )
