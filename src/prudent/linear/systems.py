"""Linear systems with quadratic costs, and families of them indexed by theta = [A B] or [A B noise]."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import (
    Array,
    as_float,
    is_concrete,
    namespace_of,
    require_finite,
    require_kind,
    require_number,
    require_size,
)
from ..errors import InputError
from ..records import Record
from ..seeds import generator
from ..vector_log import VectorLog
from .policies import LinearGaussianPolicy

# Eigenvalues of a matrix that should have none below 0 may round below it by this share of the largest.
ROUNDING = 1e-10


class LinearSystem(Record):
    """One system `s' = A s + B a + w`, `w ~ N(0, noise)`, with cost `(z - target)' weight (z - target)`, `z = (s, a)`.

    >>> import prudent as pr
    >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
    >>> round(family.at([[1.1, 0.5]]).radius(pr.LinearGaussianPolicy([[-1.0]])), 6)
    0.6

    Attributes:
        state_matrix, action_matrix: A `[n, n]` and B `[n, m]`.
        noise: `[n, n]` covariance of w.
        weight, target: `[n + m, n + m]` and `[n + m]` of the cost.
        start_mean, start_covariance: of the first state.
        action_noise: `[m, m]` covariance of what is added to every action.
        discount: gamma in the paper.
    """

    state_matrix: Float[Array, "n n"]
    action_matrix: Float[Array, "n m"]
    noise: Float[Array, "n n"]
    weight: Float[Array, "z z"]
    target: Float[Array, " z"]
    start_mean: Float[Array, " n"]
    start_covariance: Float[Array, "n n"]
    action_noise: Float[Array, "m m"]
    discount: Float[Array, ""]

    @property
    def states(self) -> int:
        """Dimension of the state."""
        return self.action_matrix.shape[0]

    @property
    def actions(self) -> int:
        """Dimension of the action."""
        return self.action_matrix.shape[1]

    def augmented(self) -> tuple[Array, Array]:
        """Dynamics of `x = (1, s)`: `x' = G x + H a + (0, w)`."""
        n, xp = self.states, namespace_of(self.state_matrix)
        above = np.eye(1, n + 1), np.zeros((1, self.actions))
        moved = xp.concatenate([np.zeros((n, 1)), self.state_matrix], axis=1)
        return xp.concatenate([above[0], moved]), xp.concatenate([above[1], self.action_matrix])

    def start_moments(self) -> Float[Array, "x x"]:
        """`E[x x']` of the first `x = (1, s)`."""
        xp = namespace_of(self.start_mean)
        first = xp.concatenate([np.ones(1), self.start_mean])
        return xp.outer(first, first) + xp.pad(self.start_covariance, (1, 0))

    def cost_matrix(self) -> Float[Array, "y y"]:
        """The cost as a quadratic form of `(1, s, a)`."""
        shifted = namespace_of(self.target).concatenate([-self.target[:, None], np.eye(len(self.target))], axis=1)
        return shifted.T @ self.weight @ shifted

    def noise_moments(self) -> Float[Array, "x x"]:
        """What chance adds to `E[x x']` in a step: the noise of the state, and that of the action through B."""
        noise = self.noise + self.action_matrix @ self.action_noise @ self.action_matrix.T
        return namespace_of(noise).pad(noise, (1, 0))

    def radius(self, policy: LinearGaussianPolicy) -> float:
        """Spectral radius of the closed loop `A + B K`."""
        loop = np.asarray(self.state_matrix) + np.asarray(self.action_matrix) @ np.asarray(policy.gain)
        return float(np.abs(np.linalg.eigvals(loop)).max())


class LinearFamily(Record):
    """Linear systems that differ by theta, `[A B]`, or `[A B noise]` where the noise is not known either.

    >>> import numpy as np, prudent as pr
    >>> family = pr.LinearFamily(state_cost=np.eye(2), action_cost=[[0.1]], noise=np.eye(2), discount=0.95)
    >>> truth = family.theta([[1.0, 0.2], [0.0, 0.9]], [[0.0], [1.0]])
    >>> log = family.simulate(truth, pr.LinearGaussianPolicy([[-0.5, -0.5]], covariance=[[4.0]]), steps=60, seed=0)
    >>> belief = pr.CutOff(family.prior(spread=3.0).update(log), credible=0.9)
    >>> solution = pr.solve(family, belief, risk=pr.CVaR(0.9))
    >>> solution.policy.gain.shape, solution.status.ok
    ((1, 2), True)

    Args:
        state_cost, action_cost: `[n, n]` and `[m, m]`; the whole cost is convex, that of actions strictly.
        cross_cost: `[n, m]` N in `s' Q s + 2 s' N a + a' R a`; 0 when left out.
        state_target, action_target: what costs are measured from; 0 when left out.
        start_mean, start_covariance: of the first state; 0 when left out.
        discount: in [0, 1).
        noise: `[n, n]` covariance of what is added to each next state; None where it is part of theta.
        action_noise: `[m, m]` covariance of what is added to every action, whatever the policy; 0 when left out.
    """

    weight: Float[Array, "z z"]
    target: Float[Array, " z"]
    start_mean: Float[Array, " n"]
    start_covariance: Float[Array, "n n"]
    action_noise: Float[Array, "m m"]
    discount: Float[Array, ""]
    noise: Float[Array, "n n"] | None

    def __init__(
        self,
        state_cost: Any,
        action_cost: Any,
        *,
        discount: Any,
        noise: Any = None,
        cross_cost: Any = None,
        state_target: Any = None,
        action_target: Any = None,
        start_mean: Any = None,
        start_covariance: Any = None,
        action_noise: Any = None,
    ):
        of_states, of_actions = square("state_cost", state_cost), square("action_cost", action_cost)
        n, m = len(of_states), len(of_actions)
        cross = _shaped("cross_cost", cross_cost, (n, m))
        self.weight = np.block([[of_states, cross], [cross.T, of_actions]])
        require_definite("the cost [[state_cost, cross_cost], [cross_cost', action_cost]]", self.weight, CONVEX)
        if np.linalg.eigvalsh(of_actions)[0] <= ROUNDING * max(1.0, np.abs(self.weight).max()):
            raise InputError("action_cost must be positive definite; an action that costs nothing has no best size")
        self.target = np.concatenate(
            [_shaped("state_target", state_target, (n,)), _shaped("action_target", action_target, (m,))]
        )
        self.start_mean = _shaped("start_mean", start_mean, (n,))
        self.start_covariance = covariance("start_covariance", start_covariance, n)
        self.action_noise = covariance("action_noise", action_noise, m)
        self.noise = None if noise is None else covariance("noise", noise, n)
        self.discount = require_number("discount", discount, "[0, 1)")

    @property
    def states(self) -> int:
        """Dimension of the state."""
        return self.start_mean.shape[0]

    @property
    def actions(self) -> int:
        """Dimension of the action."""
        return self.action_noise.shape[0]

    @property
    def theta_shape(self) -> tuple[int, int]:
        """`[n, n + m]`, or `[n, 2 n + m]` with the noise."""
        return self.states, self.states + self.actions + (self.states if self.noise is None else 0)

    def theta(self, state_matrix: Any, action_matrix: Any, noise: Any = None) -> Float[np.ndarray, "n p"]:
        """Theta of a system; with its noise where that is not known."""
        parts = [
            _shaped("state_matrix", state_matrix, (self.states, self.states)),
            _shaped("action_matrix", action_matrix, (self.states, self.actions)),
        ]
        if (noise is None) != (self.noise is not None):
            raise InputError("noise is part of theta where the family was given none, and only there")
        return np.concatenate(parts if noise is None else [*parts, covariance("noise", noise, self.states)], axis=1)

    def system(self, theta: Float[Array, "n p"]) -> LinearSystem:
        """The system at theta, as it is; traced."""
        n, m = self.states, self.actions
        return LinearSystem(
            theta[:, :n],
            theta[:, n : n + m],
            theta[:, n + m :] if self.noise is None else self.noise,
            self.weight,
            self.target,
            self.start_mean,
            self.start_covariance,
            self.action_noise,
            self.discount,
        )

    def at(self, theta: Any) -> LinearSystem:
        """The one system at a known theta, checked."""
        known = _shaped("theta", theta, self.theta_shape)
        if self.noise is None:
            size = self.states + self.actions
            noise = covariance("the noise in theta", known[:, size:], self.states)
            known = np.concatenate([known[:, :size], noise], axis=1)
        return self.system(known)

    def objective(self, loss: Any = None, policy: Any = None, occupancy: Any = None) -> Any:
        """What is minimised over gains: a loss of these systems' occupancies, expected cost when left out.

        >>> import prudent as pr
        >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
        >>> family.objective(occupancy=pr.Truncated(130)).truncation > 0
        True
        """
        # Made of the family, so it comes later; a family is what knows its own.
        from .objective import LinearObjective

        return LinearObjective(self, loss, policy, occupancy)

    def prior(self, spread: float, mean: Any = None, noise: Any = None, degrees: float | None = None) -> Any:
        """A conjugate prior: entries of [A B] with this standard deviation, in units of the noise's, about a mean.

        >>> import prudent as pr
        >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], discount=0.9)
        >>> type(family.prior(spread=10.0, noise=[[1.0]])).__name__
        'MatrixNormalInverseWishart'

        Args:
            spread: of each entry, times the standard deviation of the noise in its row.
            mean: `[n, n + m]`; 0 when left out.
            noise: where it is not known, the mean of its inverse-Wishart prior.
            degrees: of freedom of that prior, above `n + 1`; `n + 2` when left out.
        """
        from .beliefs import MatrixNormal, MatrixNormalInverseWishart

        n, size = self.states, self.states + self.actions
        require_number("spread", spread, "(0, inf)")
        centre, precision = _shaped("mean", mean, (n, size)), np.eye(size) / float(spread) ** 2
        if self.noise is not None:
            if noise is not None or degrees is not None:
                raise InputError("the family knows its noise; leave noise= and degrees= out")
            return MatrixNormal(centre, precision, self.noise)
        if noise is None:
            raise InputError("noise= is the mean of the prior of the noise, which this family does not know")
        freedom = float(n + 2 if degrees is None else require_number("degrees", degrees, f"({n + 1}, inf)"))
        scale = (freedom - n - 1.0) * covariance("noise", noise, n)
        return MatrixNormalInverseWishart(centre, precision, scale, freedom)

    def check_log(self, log: Any) -> None:
        """Refuse a log of another system."""
        require_log(log, self.states, self.actions, "read_vector_log(...)")
        if self.noise is not None and np.linalg.eigvalsh(np.asarray(self.noise))[0] <= 0:
            raise InputError("noise must be positive definite for a likelihood; a state without any is known exactly")

    def log_likelihood(self, theta: Float[Array, "n p"], log: VectorLog) -> Any:
        """`sum_k log N(s'_k; A s_k + B a_k, noise)`, traced, so that `MCMC.run(family, log, prior)` takes any prior.

        >>> import numpy as np, prudent as pr
        >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
        >>> log = pr.VectorLog([[1.0]], [[0.0]], [[1.0]])
        >>> round(float(family.log_likelihood(np.array([[1.0, 1.0]]), log)), 4)  # -log(2 pi) / 2
        -0.9189
        """
        system = self.system(theta)
        off = log.next_state - log.state @ system.state_matrix.T - log.action @ system.action_matrix.T
        xp = namespace_of(off)
        root = xp.linalg.cholesky(system.noise)
        scaled = xp.linalg.solve(root, off.T)
        level = xp.log(xp.diagonal(root)).sum() + 0.5 * self.states * np.log(2.0 * np.pi)
        return -0.5 * (scaled**2).sum() - len(off) * level

    def simulate(
        self, theta: Any, policy: LinearGaussianPolicy, steps: int = 100, rollouts: int = 1, seed: Any = 0
    ) -> VectorLog:
        """A log of `rollouts` walks of `steps` steps at a known theta; the policy's own covariance explores.

        >>> import prudent as pr
        >>> family = pr.LinearFamily(state_cost=[[1.0]], action_cost=[[1.0]], noise=[[1.0]], discount=0.9)
        >>> len(family.simulate([[0.9, 1.0]], pr.LinearGaussianPolicy([[-0.5]]), steps=5, rollouts=2))
        10
        """
        system, random = self.at(theta), generator(seed)
        require_size("steps", steps)
        require_size("rollouts", rollouts)
        start, noise, jitter = (
            root(np.asarray(part))
            for part in (system.start_covariance, system.noise, policy.covariance + system.action_noise)
        )
        n, m = self.states, self.actions
        state = np.asarray(self.start_mean) + random.normal(size=(rollouts, n)) @ start.T
        rows = []
        for _ in range(steps):
            action = policy.mean(state) + random.normal(size=(rollouts, m)) @ jitter.T
            after = state @ np.asarray(system.state_matrix).T + action @ np.asarray(system.action_matrix).T
            after = after + random.normal(size=(rollouts, n)) @ noise.T
            rows.append((state, action, after))
            state = after
        # One walk after the other.
        return VectorLog(*(np.stack(part, axis=1).reshape(steps * rollouts, -1) for part in zip(*rows, strict=True)))


CONVEX = "; costs that are not convex have no least"


def square(name: str, value: Any) -> np.ndarray:
    """A finite symmetric matrix."""
    matrix = np.asarray(as_float(value, name))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise InputError(f"{name} must be a square matrix, got shape {matrix.shape}")
    require_finite(name, matrix)
    if np.abs(matrix - matrix.T).max() > ROUNDING * max(1.0, np.abs(matrix).max()):
        i, j = (int(k) for k in np.argwhere(np.abs(matrix - matrix.T) == np.abs(matrix - matrix.T).max())[0])
        raise InputError(
            f"{name} must be symmetric, got {matrix[i, j]} and {matrix[j, i]} at {(i, j)} and {(j, i)}; take half the "
            "sum of the matrix and its transpose"
        )
    return (matrix + matrix.T) / 2.0


def require_definite(name: str, matrix: np.ndarray, why: str = "") -> None:
    """Refuse a symmetric matrix with a negative eigenvalue."""
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -ROUNDING * max(1.0, np.abs(matrix).max()):
        raise InputError(f"{name} must have no negative eigenvalue, its lowest is {lowest:.4g}{why}")


def covariance(name: str, value: Any, size: int) -> np.ndarray:
    """A covariance matrix of a given size; 0 where there is none."""
    matrix = np.zeros((size, size)) if value is None else square(name, value)
    if matrix.shape != (size, size):
        raise InputError(f"{name} must have shape {(size, size)}, got {matrix.shape}")
    require_definite(name, matrix)
    return matrix


def _shaped(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.zeros(shape) if value is None else np.asarray(as_float(value, name))
    if array.shape != shape:
        raise InputError(f"{name} must have shape {shape}, got {array.shape}")
    if is_concrete(array):
        require_finite(name, array)
    return array


def root(matrix: Float[Array, "n n"]) -> Any:
    """A square root of a covariance matrix, which may be singular."""
    xp: Any = matrix.__array_namespace__()
    values, vectors = xp.linalg.eigh(matrix)
    return vectors * xp.sqrt(xp.maximum(values, 0.0))


def require_log(log: Any, states: int, actions: int, example: str) -> None:
    """Refuse a log of another system than one with so many states and actions."""
    require_kind("log", log, VectorLog, f"a VectorLog, such as {example}")
    sizes = log.state.shape[1], log.action.shape[1]
    if sizes != (states, actions):
        raise InputError(f"the log has {sizes[0]} states and {sizes[1]} actions, the family {states} and {actions}")
