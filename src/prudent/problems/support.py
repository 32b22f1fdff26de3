"""Which successors each pair may have, as arrays, and which states can be reached along them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import InputError
from .facts import Facts
from .memory import require_fit

# Entries up to which pooled rows may lead to any state; beyond, to where something like it was seen to lead.
LARGEST_DENSE = 2_000_000

# Moves of an action, the most frequent first, that are foreseen from every state of a large model.
MOST_MOVES = 32


class Successors(NamedTuple):
    """Successor lists `[S, A, B]`, padded; both None where every state can follow every pair.

    Attributes:
        next_state: the lists.
        listed: False where a shorter list was padded; None when nothing was.
        shape: `(S, A, B)`.
    """

    next_state: np.ndarray | None
    listed: np.ndarray | None
    shape: tuple[int, int, int]

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """From and to of every possible move, flattened; repeats are left in."""
        assert self.next_state is not None
        source = np.broadcast_to(np.arange(self.shape[0])[:, None, None], self.shape)
        if self.listed is None:
            return source.ravel(), self.next_state.ravel()
        return source[self.listed], self.next_state[self.listed]


def successors_of(facts: Facts, terminal: np.ndarray) -> Successors:
    """The lists that the posterior's `support` asks for; their memory is estimated before they are made."""
    states, actions = len(facts.states), len(facts.actions)
    support, solver = facts.file.posterior.support, facts.file.solver
    require_fit((states, actions, 1), solver)
    open_pair = np.ones((states, actions), dtype=bool)
    open_pair[terminal] = False
    if support == "all":
        many = facts.file.posterior.pooled and facts.log is not None and states * actions * states > LARGEST_DENSE
        triples = _foreseeable(facts) if many else np.zeros((0, 3), np.int64)
    elif support == "listed":
        assert facts.listed is not None
        triples = facts.listed
        _refuse_unlisted(facts, terminal)
    else:
        if facts.log is None:
            raise InputError(
                f"{facts.source}: the successors are to be those observed, and there is no log; give "
                'data.transitions, or set posterior.support to "all" or "listed"'
            )
        seen = facts.log.count > 0
        triples = np.stack([facts.log.state, facts.log.action, facts.log.next_state], axis=1)[seen]
    triples = triples[~terminal[triples[:, 0]]]
    pair = triples[:, 0] * actions + triples[:, 1]
    degree = np.bincount(pair, minlength=states * actions)
    # A pair without a list is an error where it can be reached, and stays where it is elsewhere.
    alone = degree == 0 if support == "listed" else ~open_pair.ravel()
    anywhere = (degree == 0) & ~alone
    width = states if anywhere.any() else max(1, int(degree.max(initial=0)))
    if anywhere.all():
        require_fit((states, actions, states), solver)
        return Successors(None, None, (states, actions, states))
    require_fit((states, actions, width), solver)
    index = np.repeat(np.repeat(np.arange(states, dtype=np.int32), actions)[:, None], width, axis=1)
    order = np.argsort(pair, kind="stable")
    first = np.concatenate([[0], np.cumsum(degree)[:-1]])
    slot = np.arange(len(pair)) - first[pair[order]]
    if anywhere.any():
        index[anywhere] = np.arange(states, dtype=np.int32)
    # Padding repeats the list's first entry, which has to be there before the others.
    index[pair[order][slot == 0]] = triples[order][slot == 0][:, 2:]
    index[pair[order], slot] = triples[order, 2]
    length = np.where(anywhere, states, np.where(alone, 1, degree))
    shape = (states, actions, width)
    listed = (np.arange(width)[None] < length[:, None]).reshape(shape)
    return Successors(index.reshape(shape), None if listed.all() else listed, shape)


def _foreseeable(facts: Facts) -> np.ndarray:
    """`[E, 3]` where pairs of a large model may lead: where the state led, and as far as the action led elsewhere."""
    log = facts.log
    assert log is not None
    states, actions = len(facts.states), len(facts.actions)
    seen = log.count > 0
    state, action, following, count = (column[seen] for column in (log.state, log.action, log.next_state, log.count))
    from_state = np.unique(state * states + following)
    parts = [
        np.column_stack([from_state // states, np.full(len(from_state), a), from_state % states])
        for a in range(actions)
    ]
    for a in range(actions):
        # An action that was never taken may lead as far as any other.
        mine = action == a if np.any(action == a) else np.ones(len(action), dtype=bool)
        moves, place = np.unique((following - state)[mine], return_inverse=True)
        often = np.argsort(-np.bincount(place.ravel(), count[mine]), kind="stable")[:MOST_MOVES]
        landing = np.arange(states)[:, None] + moves[often]
        inside = (landing >= 0) & (landing < states)
        origin = np.broadcast_to(np.arange(states)[:, None], landing.shape)
        parts.append(np.column_stack([origin[inside], np.full(inside.sum(), a), landing[inside]]))
    stay = np.indices((states, actions)).reshape(2, -1).T
    parts.append(np.column_stack([stay, stay[:, 0]]))
    return np.unique(np.concatenate(parts), axis=0)


def _refuse_unlisted(facts: Facts, terminal: np.ndarray) -> None:
    """Refuse a transition of the log that is not listed."""
    if facts.log is None:
        return
    sizes = (len(facts.states), len(facts.actions), len(facts.states))
    known = np.ravel_multi_index(tuple(facts.listed.T), sizes)  # pyright: ignore[reportOptionalMemberAccess]
    log = facts.log
    seen = np.ravel_multi_index((log.state, log.action, log.next_state), sizes)
    stray = ~np.isin(seen, known) & (log.count > 0) & ~terminal[log.state]
    if stray.any():
        k = int(np.argmax(stray))
        raise InputError(
            f"{facts.source}: the log goes from {facts.pair(log.state[k], log.action[k])} to state "
            f"{facts.states[log.next_state[k]]}, which posterior.successors does not list; add it or correct the log"
        )


def reached(successors: Successors, start: np.ndarray) -> np.ndarray:
    """`[S]` whether a state can be reached from the start by some policy."""
    states = successors.shape[0]
    if successors.next_state is None:
        return np.ones(states, dtype=bool)
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    source, target = successors.edges()
    first = np.flatnonzero(start)
    # One more node leads to every possible first state.
    source, target = np.concatenate([source, np.full(len(first), states)]), np.concatenate([target, first])
    graph = csr_matrix((np.ones(len(source), np.int8), (source, target)), shape=(states + 1, states + 1))
    graph.data[:] = 1
    visited = breadth_first_order(graph, states, return_predecessors=False)
    mask = np.zeros(states + 1, dtype=bool)
    mask[visited] = True
    return mask[:states]
