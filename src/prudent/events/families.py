"""Families in which theta moves the probabilities of events, and what an event does to a state is known."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from ..arrays import (
    Array,
    as_float,
    in_float64,
    is_concrete,
    namespace_of,
    require_finite,
    require_indices,
    require_number,
    require_size,
)
from ..conformance import explained
from ..engine import ModelBatch
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily, compiled_at, start_distribution
from ..records import AbstractVar, field


class AbstractEventFamily(AbstractFamily):
    """MDPs with `P(s' | s, a) = sum_e p_e(theta; class of (s, a)) [s' = next(s, a, e)]`.

    The successors `next` are one table of whole numbers that all models share, the family's support. Of a model only
    the probabilities of E events in each of C classes of pairs are kept, however many states there are.
    """

    classes: AbstractVar[Int[Array, "S A"] | None]
    """The class of each pair; None where its number tells: one class for all, one for each action or each pair."""

    @abc.abstractmethod
    def events(self, theta: Array) -> Float[Array, "C E"]:
        """Probabilities of the events in each class; rows sum to 1."""

    def probability(self, theta: Array) -> Float[Array, "S A E"]:
        """Along the successors, event by event."""
        events = self.events(theta)
        return namespace_of(events).asarray(events)[self.class_table(len(events))]

    @in_float64
    def models(self, thetas: ArrayLike) -> ModelBatch:
        """Return the models at N thetas, of which a class of pairs shares its probabilities."""
        thetas, cost = np.asarray(thetas), self.shared_cost()
        events = self.found_at("events", thetas)
        return ModelBatch(
            self.support.index(),
            np.ascontiguousarray(self.class_table(events.shape[1]), dtype=np.int32),
            np.moveaxis(events, 0, -1),
            np.moveaxis(self.found_at("cost", thetas), 0, -1) if cost is None else np.asarray(cost)[:, :, None],
            np.asarray(self.start),
            float(self.discount),
        )

    def found_at(self, method: str, thetas: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "N ..."]:
        """Return what a method finds at N thetas, compiled."""
        return compiled_at(self, (method,), thetas)[0]

    def shared_cost(self) -> Float[Array, "S A"] | None:
        """Return the costs where they are known to be the same at all thetas."""
        return None

    def class_table(self, count: int) -> Int[Array, "S A"]:
        """The class of each pair, of so many."""
        if self.classes is not None:
            return self.classes
        states, actions, _ = self.support.shape
        tables = {
            1: np.zeros((states, actions), np.int32),
            actions: np.broadcast_to(np.arange(actions, dtype=np.int32), (states, actions)),
            states * actions: np.arange(states * actions, dtype=np.int32).reshape(states, actions),
        }
        return tables[count]


class EventFamily(AbstractEventFamily):
    """A family from a table of successors and the probabilities of events.

    One table says where each event leads from each pair, once for all draws of theta; a draw has no more than the
    probabilities of its events. A queue, an inventory or a grid with a million states takes no more of theta than a
    small one.

    >>> import jax.numpy as jnp, numpy as np, prudent as pr
    >>> def move(length, fast, event):  # a queue of at most 9: nothing, an arrival, a service
    ...     return np.clip(length + (event == 1) - (event == 2), 0, 9)
    >>> def chance(theta):  # [action, event]: slow or fast service
    ...     arrive, serve = theta[0], jnp.stack([theta[1], 1.5 * theta[1]])
    ...     return jnp.stack([1 - arrive - serve, jnp.stack([arrive, arrive]), serve], axis=1)
    >>> cost = np.arange(10.0)[:, None] + np.array([0.0, 2.0])
    >>> queue = pr.EventFamily(move, chance, cost, start=0, discount=0.95, shape=(10, 2, 3))
    >>> queue.at([0.3, 0.3]).kernel.table()[4, 1].round(2).tolist()
    [0.0, 0.0, 0.0, 0.45, 0.25, 0.3, 0.0, 0.0, 0.0, 0.0]

    Args:
        successors: `[S, A, E]` the state that each event leads to; or a function `(state, action, event)` of NumPy
            arrays of whole numbers, `[S, 1, 1]`, `[1, A, 1]` and `[1, 1, E]`, which gives them.
        probability: `theta -> [E]` for all pairs alike, `[A, E]`, `[C, E]` with `classes`, or `[S, A, E]`; traceable by
            JAX. Or such an array if it is known.
        cost: `theta -> [S, A]`, or an array `[S, A]`; either may also be `[S, A, E]`, a cost for each event.
        start: a state number or a distribution `[S]`.
        discount: in [0, 1).
        classes: `[S]` or `[S, A]` whole numbers, the row of `probability` that belongs to each state or pair.
        shape: `(S, A, E)`, where `successors` is a function.
    """

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    classes: Int[Array, "S A"] | None
    probability_of: Any
    cost_of: Any
    class_count: int = field(static=True)

    def __init__(
        self,
        successors: Any,
        probability: Any,
        cost: Any,
        start: Any,
        discount: Any,
        *,
        classes: Any = None,
        shape: tuple[int, int, int] | None = None,
    ):
        self.support = Support.lists(_successors(successors, shape))
        states, actions, _ = self.support.shape
        self.classes = None if classes is None else _class_table(classes, states, actions)
        self.class_count = 0 if self.classes is None else int(self.classes.max()) + 1
        self.probability_of = probability if callable(probability) else as_float(probability, "probability")
        self.cost_of = cost if callable(cost) else as_float(cost, "cost")
        if is_concrete(self.cost_of):
            require_finite("cost", np.asarray(self.cost_of))
            self._require_cost(self.cost_of.shape)
        self.start = start_distribution(start, self.support)
        self.discount = require_number("discount", discount, "[0, 1)")
        if not callable(probability):
            check_events(np.asarray(self.events(np.zeros(0))), "probability")

    def events(self, theta: Array) -> Float[Array, "C E"]:
        """The user's probabilities, a row for each class."""
        given = self.probability_of
        value = namespace_of(theta).asarray(given(theta) if callable(given) else given)
        states, actions, events = self.support.shape
        if self.classes is None:
            known = {(events,), (1, events), (actions, events), (states, actions, events)}
            if value.shape not in known:
                raise InputError(
                    f"the probabilities of events have shape {value.shape}; without classes they are for all pairs, "
                    f"({events},), for each action, {(actions, events)}, or for each pair, {(states, actions, events)}"
                )
        elif value.ndim != 2 or value.shape[1] != events or len(value) < self.class_count:
            raise InputError(
                f"the probabilities of events have shape {value.shape}; {self.class_count} classes of {events} events "
                f"need {(self.class_count, events)}"
            )
        return value.reshape(-1, events)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """Expected immediate cost."""
        value = namespace_of(theta).asarray(self.cost_of(theta) if callable(self.cost_of) else self.cost_of)
        self._require_cost(value.shape)
        return value if value.ndim == 2 else (value * self.probability(theta)).sum(axis=2)

    def found_at(self, method: str, thetas: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "N ..."]:
        """Return what a method finds at N thetas; nothing is compiled where no function of theta is asked."""
        asked = [self.probability_of, self.cost_of] if method == "cost" else [self.probability_of]
        if any(map(callable, asked)):
            return super().found_at(method, thetas)
        found = np.asarray(getattr(self, method)(thetas[0]))
        return np.broadcast_to(found, (len(thetas), *found.shape))

    def shared_cost(self) -> Float[Array, "S A"] | None:
        """Return the costs where they are a table of pairs."""
        return None if callable(self.cost_of) or self.cost_of.ndim != 2 else self.cost_of

    def _require_cost(self, shape: tuple[int, ...]) -> None:
        if shape not in (self.support.shape, self.support.shape[:2]):
            raise InputError(
                f"cost must have shape {self.support.shape[:2]} (state, action) or {self.support.shape} (a cost for "
                f"each event), got {shape}"
            )


class RescaledEvents(AbstractEventFamily):
    """An event family whose costs are `(c - shift) / scale`."""

    support: Support
    start: Float[Array, " S"]
    discount: Float[Array, ""]
    classes: Int[Array, "S A"] | None
    family: AbstractEventFamily
    shift: Float[Array, ""]
    scale: Float[Array, ""]

    def models(self, thetas: ArrayLike) -> ModelBatch:
        """Return those of the family, with costs in units."""
        models = self.family.models(thetas)
        return models._replace(cost=(models.cost - self.shift) / self.scale)

    def tables(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the tables of the family, with costs in units."""
        found = self.family.tables(thetas)
        return None if found is None else (found[0], (found[1] - self.shift) / self.scale)

    def events(self, theta: Array) -> Float[Array, "C E"]:
        """As they are."""
        return self.family.events(theta)

    def cost(self, theta: Array) -> Float[Array, "S A"]:
        """In units."""
        return (self.family.cost(theta) - self.shift) / self.scale

    def shared_cost(self) -> Float[Array, "S A"] | None:
        """Return the family's shared costs in units."""
        cost = self.family.shared_cost()
        return None if cost is None else (cost - self.shift) / self.scale


def _successors(given: Any, shape: tuple[int, int, int] | None) -> np.ndarray:
    """The table `[S, A, E]`, or what a function makes of all states, actions and events."""
    if not callable(given):
        table = np.asarray(given)
        if table.ndim != 3:
            raise InputError(f"successors must be indexed [state, action, event], got shape {table.shape}")
        return table
    if shape is None or len(shape) != 3:
        raise InputError(f"shape=(states, actions, events) is needed where successors is a function, got {shape!r}")
    sizes = [
        require_size(f"the number of {name}", size)
        for name, size in zip(("states", "actions", "events"), shape, strict=True)
    ]
    grid = np.ogrid[tuple(slice(size) for size in sizes)]
    with explained(
        lambda error: (
            f"successors(state, action, event) failed on NumPy arrays: {error}; write it for arrays of all states, "
            "actions and events at once, as with np.clip and np.where"
        )
    ):
        table = np.asarray(given(*grid))
    try:
        return np.ascontiguousarray(np.broadcast_to(table, sizes))
    except ValueError:
        raise InputError(
            f"successors(state, action, event) gave shape {table.shape}, which is not {tuple(sizes)}"
        ) from None


def _class_table(classes: Any, states: int, actions: int) -> Int[np.ndarray, "S A"]:
    given = np.asarray(classes)
    if given.shape not in ((states,), (states, actions)):
        raise InputError(
            f"classes must have shape {(states,)} or {(states, actions)}, one number for each state or pair, got "
            f"{given.shape}"
        )
    table = require_indices("class", given, states * actions)
    return np.ascontiguousarray(np.broadcast_to(table.reshape(states, -1), (states, actions)))


def check_events(events: Float[np.ndarray, "C E"], where: str) -> None:
    """Refuse probabilities of events that are none."""
    require_finite(f"{where}: the probability of an event", events)
    off = np.abs(events.sum(axis=1) - 1.0)
    if np.any(events < 0) or np.any(off > 1e-8):
        row = int(np.argmax((events < 0).any(axis=1) | (off > 1e-8)))
        raise InputError(
            f"{where}: the probabilities of events in class {row} are {events[row].tolist()}, which sum to "
            f"{events[row].sum():.10g}; they must be at least 0 and sum to 1"
        )
