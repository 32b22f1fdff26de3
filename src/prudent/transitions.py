"""The log of what has been observed: transitions with counts, or trials of single probabilities, and its likelihood."""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int

from .arrays import (
    Array,
    as_float,
    filled_blocks,
    in_float64,
    is_concrete,
    namespace_of,
    require_finite,
    require_indices,
    require_kind,
    require_size,
)
from .errors import InputError
from .kernels import Support
from .models import AbstractFamily, compiled_at
from .records import Record, field, tree_leaves
from .tables import KINDS, LogCounts, LogForm, Names, count_log

# What has a likelihood, for messages.
FAMILY = "a family of MDPs, made by Family(...) or TabularFamily(...), a LinearFamily or a SimulatedFamily"


class Transitions(Record):
    """Observed transitions, each `(state, action, next_state)` with a count.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 1, 2), (0, 1, 2), (2, 0, 0)], states=3, actions=2)
    >>> len(log)
    3

    Attributes:
        state, action, next_state: `[K]` whole numbers.
        count: `[K]` how often each was seen.
        states, actions: the sizes the indices were checked against.
    """

    state: Int[Array, " K"]
    action: Int[Array, " K"]
    next_state: Int[Array, " K"]
    count: Float[Array, " K"]
    states: int = field(static=True)
    actions: int = field(static=True)

    def __init__(self, state: Any, action: Any, next_state: Any, count: Any, states: int, actions: int):
        require_size("states", states)
        require_size("actions", actions)
        self.state = require_indices("state", state, states)
        self.action = require_indices("action", action, actions)
        self.next_state = require_indices("next_state", next_state, states)
        self.count = np.asarray(as_float(count, "count"))
        self.states, self.actions = states, actions
        shapes = {column.shape for column in (self.state, self.action, self.next_state, self.count)}
        if len(shapes) != 1 or self.state.ndim != 1:
            raise InputError(
                f"state, action, next_state and count must be lists of one length, got shapes {sorted(shapes)}"
            )
        require_finite("count", self.count)
        problems = (self.count < 0, "is negative"), (self.count != np.floor(self.count), "is not a whole number")
        for bad, reason in problems:
            if np.any(bad):
                row = int(np.argmax(bad))
                raise InputError(f"count {self.count[row]} at row {row} {reason}")

    @staticmethod
    def from_records(records: Any, states: int, actions: int, count: Any = None) -> Transitions:
        """From rows `(state, action, next_state)`; refuses unknown, negative and fractional indices by row."""
        try:
            rows = np.asarray(records)
            if rows.dtype.kind not in "iuf":
                rows = np.asarray(records, dtype=object)
        except ValueError:
            raise InputError("each row must be (state, action, next_state), got rows of several lengths") from None
        if rows.size == 0:
            raise InputError("the log has no row; observe at least one transition, or keep the prior as it is")
        if rows.ndim != 2 or rows.shape[1] != 3:
            raise InputError(f"each row must be (state, action, next_state), got an array of shape {rows.shape}")
        counts = np.ones(len(rows)) if count is None else np.asarray(as_float(count, "count"))
        if counts.shape != (len(rows),):
            raise InputError(f"count must have one entry for each of the {len(rows)} rows, got shape {counts.shape}")
        return Transitions(rows[:, 0], rows[:, 1], rows[:, 2], counts, states, actions)

    def __len__(self) -> int:
        return int(np.asarray(self.count).sum())


class Trials(Record):
    """Coin-like trials of each unknown probability: `[D, 2]` counts of (success, failure).

    >>> import prudent as pr
    >>> pr.Trials([[2, 3], [0, 5]]).counts.sum(axis=1).tolist()
    [5.0, 5.0]
    """

    counts: Float[Array, "D 2"]

    def __init__(self, counts: Any):
        self.counts = np.asarray(as_float(counts, "trials (success, failure)"))
        if self.counts.ndim != 2 or self.counts.shape[1] != 2:
            raise InputError(f"trials are counts of (success, failure) a coordinate, got shape {self.counts.shape}")
        require_finite("trial count", self.counts)
        bad = np.argwhere((self.counts < 0) | (self.counts != np.floor(self.counts)))
        if bad.size:
            row = int(bad[0, 0])
            raise InputError(f"trial counts must be whole numbers >= 0, got {self.counts[row]} for coordinate {row}")


def merge(*logs: Transitions) -> Transitions:
    """One log with the counts of all of them, a row for each transition seen, in order."""
    sizes = {(log.states, log.actions) for log in logs}
    if len(sizes) > 1:
        raise InputError(f"logs to be merged must be for the same numbers of (states, actions), got {sorted(sizes)}")
    states, actions = sizes.pop()
    code, place = np.unique(np.concatenate([codes(log) for log in logs]), return_inverse=True)
    count = np.bincount(place, np.concatenate([np.asarray(log.count) for log in logs]), minlength=len(code))
    return Transitions(code // states // actions, code // states % actions, code % states, count, states, actions)


def codes(log: Transitions) -> Int[np.ndarray, " K"]:
    """One number for each (state, action, next_state)."""
    return (np.asarray(log.state, np.int64) * log.actions + log.action) * log.states + log.next_state


class Log(NamedTuple):
    """A log read from somewhere: the transitions in numbers, and the names behind the numbers.

    >>> import prudent as pr, pyarrow as pa
    >>> frame = pa.table({"state": ["new", "new"], "action": ["run", "run"], "next_state": ["worn", "new"]})
    >>> log = pr.read_log(frame)
    >>> log.states, len(log.transitions)
    (('new', 'worn'), 2)

    Attributes:
        transitions: each transition seen, with its count.
        states, actions: names by number.
        cost: `[S, A]` mean of the column `cost`, NaN for a pair without rows; None without such a column.
        rows: how many rows were read.
    """

    transitions: Transitions
    states: tuple[str, ...]
    actions: tuple[str, ...]
    cost: Float[np.ndarray, "S A"] | None
    rows: int

    def support(self) -> Support:
        """Any state may follow any pair, by the names of the log; families and beliefs made along it have them, too.

        >>> import prudent as pr, pyarrow as pa
        >>> frame = {"state": ["new", "worn"], "action": ["run", "fix"], "next_state": ["worn", "new"], "cost": [0, 2]}
        >>> log = pr.read_log(pa.table(frame))
        >>> support = log.support()
        >>> machine = pr.TabularFamily(support, cost=[[0, 2], [1, 2]], start="new", discount=0.9)
        >>> belief, few = pr.Dirichlet.symmetric(support).update(log), pr.SampleAverage(samples=32, largest=32)
        >>> pr.solve(machine, belief, solver=few).policy.act("worn", seed=0) in log.actions
        True
        """
        return Support.dense(len(self.states), len(self.actions)).named(self.states, self.actions)


def transitions_of(log: Any, support: Support) -> Any:
    """The transitions of a `Log`, refused where its names are others than the support's; another log as it is."""
    if not isinstance(log, Log):
        return log
    for kind, ours in zip(KINDS, (log.states, log.actions), strict=True):
        theirs = ours if support.labels is None else support.labels.all(kind)
        if ours != theirs:
            raise InputError(
                f"the log has the {kind}s {', '.join(ours[:6])}, the model {', '.join(theirs[:6])}; read it with "
                f"read_log(source, {kind}s=...) so that names and order are the same"
            )
    return log.transitions


def read_log(
    source: Any,
    states: Sequence[str] | int | None = None,
    actions: Sequence[str] | int | None = None,
    *,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    trajectories: bool = False,
) -> Log:
    """Read and count a log with the columns `state`, `action`, `next_state`, and `count` and `cost` if it has them.

    Files are read in batches, so that memory grows with the distinct transitions and not with the rows.

    Args:
        source: a path to a CSV, TSV, Parquet or JSON-lines file; a frame of pandas, polars or pyarrow; or a
            list of any of these.
        states: the names in their order, or how many there are if they are numbers; a name that is not among
            them is refused. When left out, the names are those in the log: numbers in their order, others in the
            order of their first row.
        actions: the same for actions.
        columns: what columns are called, where that is something else: `{"state": "s", "reward": "r"}`. A reward is a
            negative cost. Several columns make up a state: `{"state": ["row", "column"]}`. Its names are then in the
            order of the levels of the first column, then of the second, and so on.
        trajectories: rows are consecutive steps without `next_state`, which is the state of the row behind, in the same
            `episode` if there is such a column.

    >>> import pandas as pd, prudent as pr
    >>> frame = pd.DataFrame({"state": [0, 0, 1], "action": ["run", "run", "fix"], "next_state": [0, 1, 0]})
    >>> log = pr.read_log(frame, states=2, actions=["run", "fix"])
    >>> log.transitions.count.tolist()
    [1.0, 1.0, 1.0]
    """
    sources = source if isinstance(source, list | tuple) else [source]
    met = Names("state", states), Names("action", actions)
    counts = count_log(sources, *met, form=LogForm(dict(columns or {}), trajectories))
    (known_states, state_places), (known_actions, action_places) = (names.settled() for names in met)
    return log_of(counts.renumbered(state_places, action_places), known_states, known_actions)


def log_of(counts: LogCounts, states: Names, actions: Names) -> Log:
    """The log that counts make."""
    shape = (len(states), len(actions))
    cost = None
    if np.any(counts.cost_count > 0):
        total, paid = np.zeros(shape), np.zeros(shape)
        np.add.at(total, (counts.state, counts.action), counts.cost_total)
        np.add.at(paid, (counts.state, counts.action), counts.cost_count)
        cost = np.where(paid > 0, total / np.where(paid > 0, paid, 1.0), np.nan)
    transitions = Transitions(counts.state, counts.action, counts.next_state, counts.count, *shape)
    return Log(transitions, states.all(), actions.all(), cost, counts.rows)


class SupportCounts(Record):
    """A log laid out along a support: which entries of the kernel make each transition that was seen.

    Attributes:
        entry: `[E]` entries of the flattened `[S, A, B]` table.
        row: `[E]` the transition each entry belongs to; several where a list repeats a successor.
        count: `[K]` how often each transition was seen.
    """

    entry: Int[Array, " E"]
    row: Int[Array, " E"]
    count: Float[Array, " K"]

    @staticmethod
    def of(support: Support, log: Transitions | Log, learner: str = "model") -> SupportCounts:
        """Merge the rows of a log, and refuse those that the support cannot make; `learner` has them, for messages."""
        log = cast(Transitions, transitions_of(log, support))
        require_kind("log", log, Transitions, "a log of Transitions, such as Transitions.from_records(...)")
        if (log.states, log.actions) != support.shape[:2]:
            raise InputError(
                f"the log is for {log.states} states and {log.actions} actions, "
                f"the {learner} for {support.states} and {support.actions}"
            )
        code, first, place = np.unique(codes(log), return_index=True, return_inverse=True)
        count = np.bincount(place, np.asarray(log.count), minlength=len(code))
        pair, next_state = code // log.states, code % log.states
        if support.is_dense:
            return SupportCounts(pair * support.successors + next_state, np.arange(len(code)), count)
        width = support.successors
        match = support.index().reshape(-1, width)[pair] == next_state[:, None]
        match &= support.allowed().reshape(-1, width)[pair]
        lost = first[~match.any(axis=1)]
        if lost.size:
            row = int(lost.min())
            raise InputError(
                f"row {row} of the log goes from state {log.state[row]} by action {log.action[row]} to state "
                f"{log.next_state[row]}, which the support does not allow; add it to the support or correct the log"
            )
        row, slot = np.nonzero(match)
        return SupportCounts(pair[row] * width + slot, row, count)

    def log_likelihood(self, probability: Float[Array, "*N S A B"]) -> Float[Array, "*N"]:
        """`sum_k count_k log P(s'_k | s_k, a_k)`, -inf where a transition seen has no probability."""
        xp = namespace_of(probability)
        entries = probability.reshape(*probability.shape[:-3], -1)[..., self.entry]
        if xp is np:
            starts = np.flatnonzero(np.diff(self.row, prepend=-1))
            chance = np.add.reduceat(entries, starts, axis=-1) if len(starts) else entries
        else:
            chance = xp.zeros(len(self.count)).at[self.row].add(entries, indices_are_sorted=True)
        # The inner `where` keeps the gradient of transitions never seen, or impossible, from being NaN.
        possible, seen = chance > 0, self.count > 0
        logs = xp.where(possible, xp.log(xp.where(possible, chance, 1.0)), -np.inf)
        return xp.where(seen, self.count * xp.where(seen, logs, 0.0), 0.0).sum(axis=-1)


@in_float64
def log_likelihood(family: AbstractFamily, theta: Any, log: Transitions) -> Any:
    """The log-likelihood of a log under a family's own kernel, at one theta.

    `sum_k count_k log P_theta(s'_k | s_k, a_k)`, where the probability of a next state is that of all the
    places it has in its pair's successor list. It can be traced by JAX in theta: differentiate it, or hand
    it to any sampler. A log of a million rows costs no more than its distinct transitions.

    Args:
        family: the family of MDPs.
        theta: the parameter, of the shape the family expects.
        log: the transitions seen; one that the family's support cannot make is refused.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> log = pr.Transitions.from_records([(6, 1, 11), (6, 1, 11), (6, 1, 5)], states=25, actions=4)
    >>> float(pr.log_likelihood(lake, [0.4, 0.1], log).round(4))  # 2 log(1 - 0.4) + log(0.4 / 2)
    -2.6311
    """
    require_kind("family", family, AbstractFamily, "a family of MDPs, made by Family(...) or TabularFamily(...)")
    theta, seen = as_float(theta, "theta"), SupportCounts.of(family.support, log)
    if is_concrete(theta):
        return seen.log_likelihood(_kernels_at(family, theta[None]))[0]
    return seen.log_likelihood(kernel_at(family, theta))


def _kernels_at(family: AbstractFamily, thetas: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, "N S A B"]:
    """The family's probabilities at many thetas, refused when these do not give tables along the support."""
    found = family.tables(thetas) or compiled_at(family, ("probability",), thetas)
    _require_shape(family, thetas.shape[1:], found[0].shape[1:])
    return found[0]


def kernel_at(family: AbstractFamily, theta: Array) -> Float[Array, "S A B"]:
    """The family's probabilities, refused when theta does not give a table along the support."""
    probability = family.probability(theta)
    _require_shape(family, np.shape(theta), probability.shape)
    return probability


def _require_shape(family: AbstractFamily, theta: tuple[int, ...], found: tuple[int, ...]) -> None:
    if found != family.support.shape:
        raise InputError(
            f"theta of shape {theta} gives probabilities of shape {found}, the family's support has "
            f"{family.support.shape}"
        )


class Likelihood(Record):
    """`log p(log | theta)` up to a constant; without a log it is 0."""

    @abc.abstractmethod
    def value(self, theta: Array) -> tuple[Float[Array, ""], Bool[Array, ""]]:
        """The log-likelihood, and whether there is a model at theta; traced."""

    def values(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Float[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
        """Return `value` at many thetas."""
        from .autodiff import each  # imports JAX

        parts = [
            [part[:few] for part in each(self, ("value",), thetas[at])[0]] for at, few in filled_blocks(len(thetas))
        ]
        value, proper = (np.concatenate(part) for part in zip(*parts, strict=True))
        return value, proper

    @property
    @abc.abstractmethod
    def bytes(self) -> int:
        """What one evaluation takes, for batches of bounded memory."""

    def check(self, theta: Any) -> None:
        """Refuse a family whose likelihood is no such function at a theta."""


class _OfKernel(Likelihood):
    family: AbstractFamily
    seen: SupportCounts | None

    def value(self, theta: Array) -> tuple[Array, Array]:
        return self._of(kernel_at(self.family, theta))

    def values(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Float[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
        return self._of(_kernels_at(self.family, thetas))

    def _of(self, probability: Float[Array, "*N S A B"]) -> tuple[Any, Any]:
        xp, lead = namespace_of(probability), probability.shape[:-3]
        close = xp.abs(probability.sum(axis=-1) - 1.0) < 1e-8
        proper = xp.all(probability >= 0, axis=(-3, -2, -1)) & xp.all(close, axis=(-2, -1))
        return xp.zeros(lead) if self.seen is None else self.seen.log_likelihood(probability), proper

    @property
    def bytes(self) -> int:
        return 8 * int(np.prod(self.family.support.shape))


class _OfVectors(Likelihood):
    family: Any
    log: Any

    def value(self, theta: Array) -> tuple[Array, Array]:
        xp = namespace_of(theta)
        value = xp.zeros(()) if self.log is None else self.family.log_likelihood(theta, self.log)
        return value, ~xp.isnan(value)

    @property
    def bytes(self) -> int:
        return 64 * max(1, sum(np.size(part) for part in tree_leaves(self.log)))

    def check(self, theta: Any) -> None:
        if self.log is not None and hasattr(self.family, "check_density"):
            self.family.check_density(np.asarray(theta), self.log)


def has_likelihood(family: Any) -> bool:
    """Whether a family brings its own, `family.log_likelihood(theta, log)` and `family.check_log(log)`."""
    return not isinstance(family, type) and hasattr(family, "log_likelihood") and hasattr(family, "check_log")


def likelihood_of(family: Any, log: Any) -> Likelihood:
    """The likelihood of a log, which is checked; None for no log."""
    if has_likelihood(family):
        if log is not None:
            family.check_log(log)
        return _OfVectors(family, log)
    require_kind("family", family, AbstractFamily, FAMILY)
    return _OfKernel(family, None if log is None else SupportCounts.of(family.support, log))


def joined(family: Any, *logs: Any) -> Any:
    """One log of several, checked; None for none."""
    known = [log for log in logs if log is not None]
    for log in known:
        likelihood_of(family, log)
    if not known:
        return None
    if not has_likelihood(family):
        return merge(*(transitions_of(log, family.support) for log in known))
    return functools.reduce(lambda first, log: first.joined(log), known)
