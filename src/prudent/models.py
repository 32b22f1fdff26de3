"""MDPs, and families of MDPs indexed by an unknown parameter theta."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from .arrays import (
    Array,
    as_float,
    filled_blocks,
    in_float64,
    is_concrete,
    namespace_of,
    require_distribution,
    require_finite,
    require_kind,
    require_number,
)
from .engine import ModelBatch, largest_visited, plan, table_rows
from .errors import InputError, hinted
from .kernels import Kernel, Support
from .records import AbstractVar, Record, field


def start_distribution(value: Any, support: Support) -> Any:
    """A start state's name or number, or a distribution, as a distribution `[S]`."""
    states = support.states
    if isinstance(value, str):
        value = support.names.number("state", value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 0 <= value < states:
            raise InputError(f"start state {value} is unknown: there are {states} states, numbered 0 to {states - 1}")
        return np.where(np.arange(states) == value, 1.0, 0.0)
    start = as_float(value, "start")
    if is_concrete(start):
        if start.shape != (states,):
            raise InputError(
                f"start must be a state number or a distribution over {states} states, got shape {start.shape}"
            )
        require_finite("start", np.asarray(start))
        require_distribution("start distribution", np.asarray(start))
    return start


@hinted
class MDP(Record):
    """A finite Markov decision process with costs (lower is better).

    To change the cost or the discount, use `dataclasses.replace(mdp, cost=...)`: the kernel, already
    checked, is shared and not looked at again.

    >>> import dataclasses, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[0.0, 1.0]], [[0.0, 1.0]]]), cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> dataclasses.replace(mdp, discount=0.5).kernel is mdp.kernel
    True

    Attributes:
        kernel: transition kernel.
        cost: `[S, A]` expected immediate cost.
        start: `[S]` distribution of the first state (a state number is accepted), tau in the paper.
        discount: in [0, 1), gamma in the paper.
    """

    kernel: Kernel
    cost: Float[Array, "S A"]
    start: Float[Array, " S"]
    discount: Float[Array, ""]

    def __init__(self, kernel: Kernel, cost: ArrayLike, start: str | int | ArrayLike, discount: Any):
        require_kind("kernel", kernel, Kernel, "a Kernel, such as Kernel.dense(table)")
        states, actions, _ = kernel.support.shape
        self.kernel = kernel
        self.cost = as_float(cost)
        if is_concrete(self.cost):
            if self.cost.shape != (states, actions):
                raise InputError(
                    f"cost must be indexed [state, action] with shape {(states, actions)}, got {self.cost.shape}"
                )
            require_finite("cost", np.asarray(self.cost))
        self.start = start_distribution(start, kernel.support)
        self.discount = require_number("discount", discount, "[0, 1)")


class AbstractFamily(Record):
    """MDPs that share states, actions and support, and differ by an unknown parameter theta.

    A concrete family has the fields below and the two methods, both traceable by JAX; one with `tables` needs no JAX.
    """

    support: AbstractVar[Support]
    start: AbstractVar[Array]
    discount: AbstractVar[Array]

    @abc.abstractmethod
    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """Transition probabilities along the support."""

    @abc.abstractmethod
    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Expected immediate cost."""

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """Kernels and costs of N thetas where NumPy finds them; None where JAX compiles the family's functions."""
        del thetas
        return None

    @in_float64
    def models(self, thetas: ArrayLike) -> ModelBatch:
        """Return the models at N thetas, for the engine; a shared cost table is kept once.

        >>> import prudent as pr
        >>> pr.envs.frozen_lake().models([(0.3, 0.02), (0.1, 0.1)]).size
        2
        """
        probability, cost = tables_at(self, np.asarray(thetas))
        shared = cost.strides[0] == 0 or len(cost) == 1
        states, actions, successors = self.support.shape
        return ModelBatch(
            self.support.index(),
            table_rows(states, actions),
            np.moveaxis(probability.reshape(-1, states * actions, successors), 0, -1),
            np.moveaxis(cost[:1] if shared else cost, 0, -1),
            np.asarray(self.start),
            float(self.discount),
        )

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """What an entry of a theta of this shape is called; a family whose unknowns have names says them here.

        >>> import prudent as pr
        >>> pr.envs.frozen_lake().name_of((1,), (2,))
        'escape'
        """
        del shape
        return f"theta{list(place)}"

    def objective(self, loss: Any = None, policy: Any = None, occupancy: Any = None) -> Any:
        """What is minimised over policies: a loss of these models' occupancies, expected cost when left out.

        >>> import prudent as pr
        >>> pr.envs.frozen_lake("SF\\nHG").objective(occupancy=pr.Truncated(130)).truncation > 0
        True
        """
        # Objectives are built of models, so they come later; a family is what knows its own.
        from .tabular import TabularObjective

        return TabularObjective(self, loss, policy, occupancy)

    @in_float64
    def at(self, theta: Any) -> MDP:
        """The one MDP at a known theta, checked.

        >>> import prudent as pr
        >>> pr.envs.frozen_lake().at((0.3, 0.02)).cost.shape
        (25, 4)
        """
        theta = np.array(as_float(theta))
        require_finite("theta", theta)
        probability, cost = (part[0] for part in tables_at(self, theta[None]))
        return MDP(Kernel(self.support, probability), cost, self.start, self.discount)


@hinted
class Family(AbstractFamily):
    """A family from the user's own functions or arrays.

    >>> import jax.numpy as jnp, prudent as pr
    >>> def move(theta):  # [state, action, successor]: forward with probability theta, else stay
    ...     return jnp.broadcast_to(jnp.stack([1 - theta[0], theta[0]]), (2, 1, 2))
    >>> line = pr.Family(support=pr.Support.lists([[[0, 1]], [[1, 1]]]), probability=move,
    ...                  cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> line.at([0.25]).kernel.probability[0, 0].tolist()
    [0.75, 0.25]

    Args:
        support: where each pair can lead.
        probability: `theta -> [S, A, B]`, traceable by JAX; or an array if the kernel is known.
        cost: `theta -> [S, A]`, or an array `[S, A]`; either may also be `[S, A, B]`, a cost for
            each transition, which is averaged over the kernel.
        start: a state's name or number, or a distribution `[S]`.
        discount: in [0, 1).
        unknowns: what the entries of theta are called, where it is a vector; numbers when left out.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    probability_of: Any
    cost_of: Any
    unknowns: tuple[str, ...] | None = field(static=True)

    def __init__(
        self,
        support: Support,
        probability: Callable[[Any], Any] | ArrayLike,
        cost: Callable[[Any], Any] | ArrayLike,
        start: str | int | ArrayLike,
        discount: Any,
        unknowns: Sequence[str] | None = None,
    ):
        require_kind("support", support, Support, "a Support, such as Support.lists(...)")
        self.support = support
        self.probability_of = probability if callable(probability) else Kernel(support, probability).probability
        self.cost_of = cost if callable(cost) else _checked_cost(cost, support)
        self.start = start_distribution(start, support)
        self.discount = require_number("discount", discount, "[0, 1)")
        self.unknowns = None if unknowns is None else tuple(map(str, unknowns))

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """By the names of the unknowns."""
        if self.unknowns is None or len(place) != 1 or len(self.unknowns) <= place[0]:
            return super().name_of(place, shape)
        return self.unknowns[place[0]]

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """The arrays given, where both are."""
        if callable(self.probability_of) or callable(self.cost_of):
            return None
        found = self.probability(thetas[0]), self.cost(thetas[0])
        probability, cost = (np.broadcast_to(part, (len(thetas), *part.shape)) for part in found)
        return probability, cost

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """Transition probabilities along the support."""
        value = namespace_of(theta).asarray(_at(self.probability_of, theta))
        if value.shape != self.support.shape:
            raise InputError(f"the probability function returned shape {value.shape}, expected {self.support.shape}")
        return value

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Expected immediate cost."""
        value = namespace_of(theta).asarray(_at(self.cost_of, theta))
        _require_cost_shape(value.shape, self.support)
        return value if value.ndim == 2 else (value * self.probability(theta)).sum(axis=2)


def _at(part: Any, theta: Array) -> Any:
    """A part of a family at theta: a function's value, or the array it is."""
    return part(theta) if callable(part) else part


def _checked_cost(cost: Any, support: Support) -> Any:
    array = as_float(cost)
    if is_concrete(array):
        require_finite("cost", array)
    _require_cost_shape(array.shape, support)
    return array


def _require_cost_shape(shape: tuple[int, ...], support: Support) -> None:
    if shape not in (support.shape, support.shape[:2]):
        raise InputError(
            f"cost must have shape {support.shape[:2]} (state, action) or {support.shape} (a cost for each "
            f"transition along the support), got {shape}"
        )


@hinted
class TabularFamily(AbstractFamily):
    """Nothing is known of the kernel but its support: theta *is* the table `[S, A, B]`.

    The family that goes with a `Dirichlet` posterior.

    >>> import prudent as pr
    >>> family = pr.TabularFamily(pr.Support.dense(2, 1), cost=[[1.0], [0.0]], start=0, discount=0.9)
    >>> family.at([[[0.5, 0.5]], [[0.0, 1.0]]]).kernel.probability.shape
    (2, 1, 2)

    Args:
        support: the successors each pair may have.
        cost: `[S, A]`, or `[S, A, B]` for a cost on each transition. None where costs are not known either: theta then
            has them behind its probabilities, `[S, A, B + 1]` or `[S, A, 2 B]`, as a `WithCosts` posterior does.
        start: a state's name or number, or a distribution `[S]`.
        discount: in [0, 1).
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    costs: Float[Array, ...] | None

    def __init__(self, support: Support, cost: ArrayLike | None, start: str | int | ArrayLike, discount: Any):
        require_kind("support", support, Support, "a Support, such as Support.lists(...)")
        self.support = support
        self.costs = None if cost is None else _checked_cost(cost, support)
        self.start = start_distribution(start, support)
        self.discount = require_number("discount", discount, "[0, 1)")

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """The move that a probability belongs to, such as `worn, run → broken`, or whose cost it is."""
        state, action, slot = place
        names, width = self.support.names, self.support.successors
        pair, index = f"{names.name('state', state)}, {names.name('action', action)}", self.support.index()
        if slot >= width and shape[2] == width + 1:
            return f"cost of {pair}"
        move = f"{pair} → {names.name('state', index[state, action, slot % width])}"
        return move if slot < width else f"cost of {move}"

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """The thetas' probabilities, and the costs that the family or they have."""
        *pairs, width = self.support.shape
        widths = (width,) if self.costs is not None else (width + 1, 2 * width)
        if thetas.shape[1:] not in [(*pairs, wide) for wide in widths]:
            return None
        return np.asarray(self.probability(thetas)), np.broadcast_to(self.cost(thetas), (len(thetas), *pairs))

    def probability(self, theta: Array) -> Float[Array, "*N S A B"]:
        """Theta itself, or its first entries."""
        return theta if self.costs is not None else theta[..., : self.support.successors]

    def cost(self, theta: Array) -> Float[Array, "*N S A"]:
        """Expected immediate cost; averaged over theta when costs are given per transition."""
        costs = theta[..., self.support.successors :] if self.costs is None else self.costs
        if costs.ndim == 2:
            return costs
        if costs.shape[-1] == 1:
            return costs[..., 0]
        _require_cost_shape(costs.shape[-3:], self.support)
        return (costs * self.probability(theta)).sum(axis=-1)


NO_TABLE = (
    "a TriedFamily has no table of probabilities: where the unseen share of a row leads depends on the policy; use a "
    "TabularFamily with a Dirichlet belief where a table is needed"
)


@hinted
class TriedFamily(AbstractFamily):
    """Nothing is known of the kernel but what a log has shown: theta has a row's probabilities and its unseen share.

    The family that goes with a `TriedRows` belief. Theta is `[S, A, B + 1]`: probabilities along the support, and the
    share that is unseen behind them. For each theta and policy that share leads, from all pairs, to the dearest state
    that the log visits: the one from which the loss of this policy is largest. Losses are linear in the occupancy.

    A cost of arriving in a state is given as `arrival`; an unseen step pays it, too, where it arrives.

    >>> import numpy as np, prudent as pr
    >>> log = pr.Transitions.from_records([(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 0, 0)], states=2, actions=2)
    >>> belief = pr.TriedRows.of(log, concentration=1.0)
    >>> family = pr.TriedFamily(belief.support, cost=[[0.0, 0.0], [1.0, 1.0]], start=0, discount=0.5)
    >>> stay = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> float(pr.loss_at(stay, family, belief.maximum_likelihood()))
    0.0
    >>> round(float(pr.loss_at(stay, family, belief.mean())), 3)  # half a row, and a third of one, lead to state 1
    0.462

    Args:
        support: of the belief: what the log has shown of each pair.
        cost: `[S, A]`.
        start: a state's name or number, or a distribution `[S]`.
        discount: in [0, 1).
        arrival: `[S]` what is paid besides on arriving in each state; nothing when left out.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    costs: Float[Array, "S A"]

    def __init__(
        self,
        support: Support,
        cost: ArrayLike,
        start: str | int | ArrayLike,
        discount: Any,
        arrival: ArrayLike | None = None,
    ):
        require_kind("support", support, Support, "the support of TriedRows.of(log)")
        self.support = support
        costs = np.asarray(as_float(cost, "cost"))
        if costs.shape != support.shape[:2]:
            raise InputError(
                f"cost of a TriedFamily must have shape {support.shape[:2]} (state, action), got {costs.shape}; what "
                "is paid on arriving in a state is given as arrival="
            )
        require_finite("cost", costs)
        self.start = start_distribution(start, support)
        self.discount = require_number("discount", discount, "[0, 1)")
        if arrival is not None:
            costs = costs + self._paid_on_leaving(arrival)
        self.costs = costs

    def _paid_on_leaving(self, arrival: ArrayLike) -> Float[np.ndarray, "S 1"]:
        """Return costs of leaving a state that come to the same, from the start, as costs of arriving in it.

        Of leaving it costs `arrival / discount`, because it is a step later; and nobody arrives in the first state.
        """
        paid, discount = np.asarray(as_float(arrival, "arrival")), float(self.discount)
        if paid.shape != (self.support.states,):
            raise InputError(f"arrival must have shape {(self.support.states,)} (state), got {paid.shape}")
        require_finite("arrival", paid)
        if discount == 0.0:
            raise InputError("at a discount of 0 nothing is paid on arriving; leave arrival= out")
        first = float(np.asarray(self.start) @ paid)
        return ((paid - (1.0 - discount) * first) / discount)[:, None]

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """The move that a probability belongs to, such as `worn, run → broken`, or the pair of an unseen share."""
        del shape
        (state, action, slot), names = place, self.support.names
        pair = f"{names.name('state', state)}, {names.name('action', action)}"
        if slot == self.support.successors:
            return f"what {pair} has not shown"
        return f"{pair} → {names.name('state', self.support.index()[state, action, slot])}"

    def check(self, thetas: Float[np.ndarray, "N ..."]) -> None:
        """Refuse thetas that are none of this family's."""
        states, actions, width = self.support.shape
        if thetas.shape[1:] != (states, actions, width + 1):
            raise InputError(
                f"a theta of this TriedFamily has the shape {(states, actions, width + 1)}, got {thetas.shape[1:]}; "
                "the belief must be a TriedRows whose support the family was made with"
            )
        require_distribution("a row with its unseen share", thetas, ("draw", "state", "action"))
        stray = np.argwhere(~self.support.allowed() & np.any(thetas[..., :-1] > 0, axis=0))
        if len(stray):
            s, a, _ = (int(i) for i in stray[0])
            raise InputError(f"theta has weight on a successor that state {s}, action {a} has not shown")

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """Refuse: a row has no table until a policy says where its unseen share leads."""
        del thetas
        raise InputError(NO_TABLE)

    def probability(self, theta: Array) -> Float[Array, "S A B"]:
        """Refuse, as `tables` does."""
        del theta
        raise InputError(NO_TABLE)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Return the cost table, which is the same for every theta."""
        del theta
        return self.costs

    def models(self, thetas: ArrayLike) -> ModelBatch:
        """Return the models at N thetas, with the unseen shares of their rows."""
        states, actions, successors = self.support.shape
        theta = np.moveaxis(np.asarray(thetas), 0, -1)
        return ModelBatch(
            self.support.index(),
            table_rows(states, actions),
            theta[:, :, :successors].reshape(states * actions, successors, -1),
            np.asarray(self.costs)[:, :, None],
            np.asarray(self.start),
            float(self.discount),
            theta[:, :, successors],
            self.support.visited(),
        )

    def at(self, theta: Any) -> MDP:
        """The MDP at theta whose unseen shares lead to the state that is dearest for the best policy against them."""
        theta = np.asarray(as_float(theta))
        self.check(theta[None])
        models = self.models(theta[None])
        target = int(largest_visited(models, plan(models).values)[0])
        states, actions, width = self.support.shape
        last = np.full((states, actions, 1), target, np.int32)
        successor = np.concatenate([self.support.index(), last], axis=2)
        listed = np.concatenate([self.support.allowed(), np.ones((states, actions, 1), bool)], axis=2)
        support = Support(successor, listed, states, actions, width + 1, labels=self.support.labels)
        return MDP(Kernel(support, theta), self.costs, self.start, self.discount)


def tables_at(family: AbstractFamily, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray]:
    """Kernels `[N, S, A, B]` and costs `[N, S, A]` of many thetas."""
    found = family.tables(thetas)
    if found is None:
        found = compiled_at(family, ("probability", "cost"), thetas)
    return np.asarray(found[0]), np.asarray(found[1])


def compiled_at(
    family: AbstractFamily, methods: tuple[str, ...], thetas: Float[np.ndarray, "N ..."]
) -> list[np.ndarray]:
    """What methods of a family find at many thetas, compiled for batches of a few sizes."""
    from .autodiff import each  # imports JAX

    parts = [[part[:few] for part in each(family, methods, thetas[block])] for block, few in filled_blocks(len(thetas))]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]
