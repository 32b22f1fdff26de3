"""Problems of which nothing is known but where each pair can lead: of families, and of discrete Gymnasium worlds."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, require_indices, require_kind, require_size
from ..episodes import GymnasiumWorld, SimulatedWorld, discrete_sizes
from ..errors import InputError
from ..kernels import Kernel, Support, reached
from ..models import MDP, TabularFamily
from ..posteriors import Dirichlet
from ..records import Record
from ..seeds import Stream, generator
from ..transitions import Transitions


class TabularProblem(Record):
    """A family's problem for someone who does not know its structure: theta is the whole transition table.

    Made by the method `tabular` of a family. A pair with one possible successor is certain.

    >>> import prudent as pr
    >>> problem = pr.envs.river_swim().tabular()
    >>> belief = problem.prior.update(problem.transitions(n=5, seed=0))
    >>> problem.family.support.shape, len(belief.sample(0, 10))
    ((6, 2, 3), 10)

    Attributes:
        family: all tables along the support; costs are the family's own.
        prior: belief about the table before any transition was seen.
        truth: `[S, A, B]` the table the data come from.
    """

    family: TabularFamily
    prior: Dirichlet
    truth: Float[Array, "S A B"]

    @staticmethod
    def of(mdp: MDP, cost: Any, weight: float = 1.0, tied: Any = None) -> TabularProblem:
        """From the model at the truth; successors that a pair lists twice become one.

        Args:
            mdp: the model at the truth.
            cost: `[S, A]`, or `[S, A, B]` if no pair lists a successor twice.
            weight: the prior's pseudo-count of each successor.
            tied: `[S, A]` labels of pairs that are one and the same move.
        """
        support, truth = _merged(mdp.kernel)
        if np.ndim(cost) == 3 and support is not mdp.kernel.support:
            raise InputError("a cost for each transition needs distinct successors; give costs [state, action]")
        family = TabularFamily(support, cost, mdp.start, mdp.discount)
        return TabularProblem(family, Dirichlet.symmetric(support, weight, tied), truth)

    def transitions(self, n: int, seed: Any = 0) -> Transitions:
        """The log of `n` transitions of every state-action pair.

        >>> import prudent as pr
        >>> len(pr.envs.river_swim().tabular().transitions(n=5))
        60
        """
        n = require_size("n, the transitions of each pair,", n)
        support = self.family.support
        counts = generator(seed, Stream.TRIALS).multinomial(n, np.asarray(self.truth))
        state, action, slot = np.nonzero(counts)
        following = support.index()[state, action, slot]
        return Transitions(state, action, following, counts[state, action, slot], support.states, support.actions)

    def world(self, steps: int = 100, rollouts: int = 1) -> SimulatedWorld:
        """The problem at its truth, to deploy policies in.

        >>> import numpy as np, prudent as pr
        >>> world = pr.envs.river_swim().tabular().world(steps=20)
        >>> len(world.deploy(pr.TabularPolicy(np.full((6, 2), 0.5)), np.random.default_rng(0)))
        20
        """
        return SimulatedWorld(self.family, self.truth, steps, rollouts)


def _merged(kernel: Kernel) -> tuple[Support, np.ndarray]:
    """Lists without repeats, and the probabilities along them; the support itself where nothing repeats."""
    support, allowed = kernel.support, kernel.support.allowed()
    pairs = [zip(*each, strict=True) for each in zip(support.index(), allowed, strict=True)]
    merged = Support.lists([[np.unique(row[listed]).tolist() for row, listed in rows] for rows in pairs])
    if merged.allowed().sum() == allowed.sum():
        return support, np.asarray(kernel.probability)
    return merged, _along(kernel.table(), merged)


def _along(table: Float[np.ndarray, "S A S"], support: Support) -> Float[np.ndarray, "S A B"]:
    """The entries of a full table that a support lists, 0 on padding."""
    return np.where(support.allowed(), np.take_along_axis(table, support.index(), axis=2), 0.0)


MISSING = 'Gymnasium is not installed; pip install "prudent[gym]"'


class GymnasiumProblem(Record):
    """What it takes to solve an environment from its own rollouts. Made by `from_gymnasium`.

    >>> import prudent as pr
    >>> problem = pr.envs.from_gymnasium("FrozenLake-v1", discount=0.99)
    >>> problem.family.support.shape, problem.truth.shape
    ((16, 4, 3), (16, 4, 3))

    Attributes:
        family: the environment's MDPs, one for each table of transition probabilities; costs are minus rewards.
        prior: belief about the table before any rollout.
        world: the environment, to deploy policies in.
        truth: `[S, A, B]` the environment's own probabilities, to compare with; None if it has no table.
    """

    family: TabularFamily
    prior: Dirichlet
    world: GymnasiumWorld
    truth: Float[Array, "S A B"] | None


def from_gymnasium(
    environment: Any,
    discount: float,
    *,
    support: Support | None = None,
    cost: Any = None,
    start: Any = None,
    weight: float = 1.0,
    rollouts: int = 1,
) -> GymnasiumProblem:
    """An environment's family, its prior and its world.

    Environments such as the toy-text ones carry a table `environment.unwrapped.P` of what can follow what. Of it
    only the reachable successors, the rewards and the ends are taken as known; the probabilities are what rollouts
    teach. A state that ends an episode leads to itself at cost 0, and a pair with one successor is certain.
    For an environment without a table, give `support`, `cost` and `start`.

    Args:
        environment: made by `gymnasium.make`, or its name; states and actions must be discrete.
        discount: in [0, 1).
        support: where each pair can lead, instead of the table's: `observed_support(log, terminal)`, or
            `Support.dense(states, actions)` if nothing is known.
        cost: `[S, A]` or `[S, A, B]`, instead of minus the table's rewards; 0 in states that end an episode.
        start: state number or distribution `[S]`, instead of the environment's `initial_state_distrib`.
        weight: the prior's pseudo-count of each successor.
        rollouts: episodes of the environment in one deployment of its world.

    >>> import numpy as np, prudent as pr
    >>> problem = pr.envs.from_gymnasium("FrozenLake-v1", discount=0.99, rollouts=20)
    >>> log = problem.world.deploy(pr.TabularPolicy(np.full((16, 4), 0.25)), np.random.default_rng(0))
    >>> belief = problem.prior.update(log)
    >>> pr.solve(problem.family, belief, solver=pr.BRPG(iterations=3)).policy.probabilities.shape
    (16, 4)
    """
    if isinstance(environment, str):
        environment = _make(environment)
    world = GymnasiumWorld(environment, rollouts)
    sizes = discrete_sizes(environment)
    start = getattr(environment.unwrapped, "initial_state_distrib", None) if start is None else start
    truth = None
    if support is None:
        found = _table(environment)
        _require("start", start, environment)
        support, truth, costs = _read(found, *sizes, start)
        cost = costs if cost is None else cost
    require_kind("support", support, Support, "a Support, such as observed_support(log) or Support.dense(...)")
    if support.shape[:2] != sizes:
        raise InputError(
            f"the support is for {support.states} states and {support.actions} actions, "
            f"the environment has {sizes[0]} and {sizes[1]}"
        )
    for name, part in (("cost", cost), ("start", start)):
        _require(name, part, environment)
    family = TabularFamily(support, cost, start, discount)
    return GymnasiumProblem(family, Dirichlet.symmetric(support, weight), world, truth)


def observed_support(log: Transitions, terminal: Any = ()) -> Support:
    """The successors seen in a log, for an environment without a table.

    A pair that was seen can lead only where it led; a later log that shows another successor is refused, so take a
    long log, or `Support.dense`. Of a pair never seen nothing is known: it may lead to any state.

    Args:
        log: transitions, such as a world's `deploy` gives.
        terminal: states that end an episode; they lead to themselves.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 0, 1), (0, 0, 2), (1, 0, 2)], states=3, actions=1)
    >>> pr.envs.observed_support(log, terminal=[2]).allowed().sum(axis=2).tolist()
    [[2], [1], [1]]
    """
    require_kind("log", log, Transitions, "a log of Transitions, such as world.deploy(policy, generator)")
    ends = require_indices("terminal state", np.atleast_1d(np.asarray(terminal, dtype=object)), log.states)
    seen = np.zeros((log.states, log.actions, log.states), dtype=bool)
    present = np.asarray(log.count) > 0
    seen[np.asarray(log.state)[present], np.asarray(log.action)[present], np.asarray(log.next_state)[present]] = True
    left = np.intersect1d(np.asarray(log.state)[present], ends)
    if left.size:
        raise InputError(f"state {left[0]} is called terminal, but the log goes on from it; correct `terminal`")
    seen[~seen.any(axis=2)] = True
    seen[ends] = np.eye(log.states, dtype=bool)[ends][:, None]
    return _lists(seen)


def _lists(reachable: Bool[np.ndarray, "S A S"]) -> Support:
    if reachable.all():
        return Support.dense(*reachable.shape[:2])
    return Support.lists([[np.flatnonzero(row).tolist() for row in rows] for rows in reachable])


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise InputError(MISSING) from None
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise InputError(f"Gymnasium cannot make {name!r}: {error}") from None


def _name(environment: Any) -> str:
    return f"the environment {type(environment.unwrapped).__name__}"


def _require(name: str, part: Any, environment: Any) -> None:
    if part is None:
        raise InputError(f"{_name(environment)} does not say its {name}; give from_gymnasium(..., {name}=...)")


def _table(environment: Any) -> Any:
    table = getattr(environment.unwrapped, "P", None)
    if table is None:
        raise InputError(
            f"{_name(environment)} has no table P of its transitions; give support=observed_support(log) of its "
            "rollouts, or support=Support.dense(states, actions), with cost= and start="
        )
    return table


def _read(table: Any, states: int, actions: int, start: Any) -> tuple[Support, np.ndarray, np.ndarray]:
    """Support, probabilities and costs of `P[state][action] = [(probability, next state, reward, ended), ...]`."""
    rows = [[_entries(table, state, action, states) for action in range(actions)] for state in range(states)]
    ends = _ends(rows, _first_states(start, states))
    probability, reward = np.zeros((2, states, actions, states))
    for state, row in enumerate(rows):
        for action, entries in enumerate(row):
            # In a state that ends an episode the table may hold moves that no rollout ever makes.
            for chance, following, gain, _ in [(1.0, state, 0.0, True)] if state in ends else entries:
                probability[state, action, following] += chance
                reward[state, action, following] += chance * gain
    support = _lists(probability > 0)
    probability, reward = (_along(table, support) for table in (probability, reward))
    # A successor listed twice has the mean of its rewards.
    return support, probability, 0.0 - reward / np.where(support.allowed(), probability, 1.0)


def _entries(table: Any, state: int, action: int, states: int) -> list[tuple[float, int, float, bool]]:
    """One list of the table, without what has probability 0."""
    try:
        entries = [(float(p), int(t), float(r), bool(e)) for p, t, r, e in table[state][action] if p > 0]
    except (KeyError, IndexError, TypeError, ValueError):
        entries = []
    if not entries or not all(0 <= following < states for _, following, _, _ in entries):
        raise InputError(
            f"the environment's table P[{state}][{action}] is not a list of (probability, next state, reward, ended); "
            "give support=, cost= and start= instead"
        )
    return entries


def _first_states(start: Any, states: int) -> np.ndarray:
    """Where episodes can begin; what is no start at all is left for the family to refuse."""
    if isinstance(start, int | np.integer):
        return np.array([int(start) % states])
    return np.flatnonzero(start if np.shape(start) == (states,) else ())


def _ends(rows: list[list[list[tuple[float, int, float, bool]]]], first: np.ndarray) -> set[int]:
    """The states that end an episode, of those an episode can reach."""
    moves = [(s, t, ended) for s, row in enumerate(rows) for entries in row for _, t, _, ended in entries]
    source, target, ended = np.array(moves).T
    on = ended == 0
    going = reached(source[on], target[on], first, len(rows))
    ending = set(target[~on & going[source]].tolist())
    # A state that only ever leads to itself is an end, however it is reached.
    both = ending.intersection(source[going[source] & (source != target)].tolist())
    if both:
        raise InputError(
            f"state {min(both)} ends an episode when reached one way and not another; the end needs a state of its "
            "own: wrap the environment so that it has one"
        )
    return ending
