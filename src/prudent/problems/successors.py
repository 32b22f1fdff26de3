"""Which successors each pair may have."""

from __future__ import annotations

import numpy as np

from ..errors import InputError
from ..kernels import Support
from .facts import Facts
from .memory import require_fit
from .rules import moves_of, numbers_of, widest

# Entries up to which pooled rows may lead to any state; beyond, to where something like it was seen to lead.
LARGEST_DENSE = 2_000_000

# Moves of an action, the most frequent first, that are allowed from every state of a large model.
MOST_MOVES = 32


def moves_allowed(facts: Facts, terminal: np.ndarray) -> np.ndarray:
    """`[K, 3]` each `(state, action, next_state)` that the posterior's `support` names, in order.

    None of a terminal state. Under `observed` and `all`, a pair that is not among them may lead anywhere.
    """
    file, source = facts.file, facts.source
    support, rule = file.posterior.support, file.posterior.rule
    log, listed = facts.log, facts.listed
    if support == "rule":
        assert rule is not None
        if not facts.ordered:
            raise InputError(f"{source}: posterior.rule goes by the order of the states; give states in their order")
        sizes = axes_of(facts)
        width = widest(rule, sizes, facts.actions, source)
        require_fit((len(facts.states), len(facts.actions), width), file.solver)
        moves = moves_of(rule, sizes, facts.states, facts.actions, source)
        if listed is not None:
            apart = np.zeros((len(facts.states), len(facts.actions)), dtype=bool)
            apart[listed[:, 0], listed[:, 1]] = True
            moves = np.unique(np.concatenate([moves[~apart[moves[:, 0], moves[:, 1]]], listed]), axis=0)
    elif support == "listed":
        assert listed is not None
        moves = listed
    elif support == "all":
        entries = len(facts.states) ** 2 * len(facts.actions)
        many = file.posterior.pooled and log is not None and entries > LARGEST_DENSE
        moves = _foreseeable(facts) if many else np.zeros((0, 3), np.int64)
    elif log is None:
        raise InputError(
            f"{source}: the successors are to be those observed, and there is no log; give "
            'data.transitions, or set posterior.support to "all", "rule" or "listed"'
        )
    else:
        moves = np.stack([log.state, log.action, log.next_state], axis=1)[log.count > 0]
    moves = moves[~terminal[moves[:, 0]]]
    moves = moves[~never_entered(facts)[moves[:, 2]]]
    refuse_unlisted(facts, terminal, moves)
    return moves


def axes_of(facts: Facts) -> tuple[int, ...]:
    """The sizes of the axes that states are numbered along: the grid's, or all of them in one order."""
    grid = facts.file.layout.grid
    return (len(facts.states),) if grid is None else tuple(grid)


def never_entered(facts: Facts) -> np.ndarray:
    """`[S]` whether no step leads to a state; refuses one that the log or the lists lead to."""
    states, given, log = facts.states, facts.file.posterior.never_entered, facts.log
    never = np.zeros(len(states), dtype=bool)
    never[numbers_of(given, states, f"{facts.source}: posterior.never_entered")] = True
    if never.all():
        raise InputError(f"{facts.source}: posterior.never_entered names every state; a pair must lead somewhere")
    listed = np.zeros(0, np.int64) if facts.listed is None else facts.listed[:, 2]
    logged = np.zeros(0, np.int64) if log is None else log.next_state[log.count > 0]
    for entered, what in ((logged, "the log"), (listed, "posterior.successors")):
        if never[entered].any():
            name = states[entered[int(np.argmax(never[entered]))]]
            raise InputError(f"{facts.source}: {what} leads to state {name}, which posterior.never_entered names")
    return never


def support_of(facts: Facts, terminal: np.ndarray, moves: np.ndarray) -> Support:
    """The moves as lists; their memory is estimated before they are made."""
    states, actions = len(facts.states), len(facts.actions)
    support, solver = facts.file.posterior.support, facts.file.solver
    require_fit((states, actions, 1), solver)
    open_pair = np.ones((states, actions), dtype=bool)
    open_pair[terminal] = False
    anyone = np.flatnonzero(~never_entered(facts)).astype(np.int32)
    pair = moves[:, 0] * actions + moves[:, 1]
    degree = np.bincount(pair, minlength=states * actions)
    # A pair without a list is an error where it can be reached, and stays where it is elsewhere.
    alone = degree == 0 if support in ("listed", "rule") else ~open_pair.ravel()
    anywhere = (degree == 0) & ~alone
    width = max(1, int(degree.max(initial=0)), len(anyone) if anywhere.any() else 0)
    if anywhere.all() and len(anyone) == states:
        require_fit((states, actions, states), solver)
        return Support.dense(states, actions)
    require_fit((states, actions, width), solver)
    index = np.repeat(np.repeat(np.arange(states, dtype=np.int32), actions)[:, None], width, axis=1)
    order = np.argsort(pair, kind="stable")
    first = np.concatenate([[0], np.cumsum(degree)[:-1]])
    slot = np.arange(len(pair)) - first[pair[order]]
    if anywhere.any():
        # Padding repeats the list's first entry, which has to be there before the others.
        index[anywhere] = anyone[0]
        index[np.ix_(anywhere, np.arange(len(anyone)))] = anyone
    index[pair[order][slot == 0]] = moves[order][slot == 0][:, 2:]
    index[pair[order], slot] = moves[order, 2]
    length = np.where(anywhere, len(anyone), np.where(alone, 1, degree))
    shape = (states, actions, width)
    index, listed = index.reshape(shape), (np.arange(width)[None] < length[:, None]).reshape(shape)
    listed = None if listed.all() else listed
    # The lists are made here, of what was checked: no second look at a nested list.
    return Support(index, listed, *shape, observed=support == "observed")


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


def said_to_lead(facts: Facts) -> tuple[str, str] | None:
    """What says where pairs may lead, for messages: that it does, and that it does not; None where anything may be."""
    if facts.outcomes is not None:
        return "posterior.outcomes lists", "posterior.outcomes does not list; add it"
    words = {
        "rule": ("posterior.rule allows", "posterior.rule does not allow; loosen it"),
        "listed": ("posterior.successors lists", "posterior.successors does not list; add it"),
    }
    return words.get(facts.file.posterior.support)


def refuse_unlisted(facts: Facts, terminal: np.ndarray, moves: np.ndarray) -> None:
    """Refuse a transition of the log that is not among the moves allowed."""
    said = said_to_lead(facts)
    if facts.log is None or said is None:
        return
    sizes = (len(facts.states), len(facts.actions), len(facts.states))
    known = np.ravel_multi_index(tuple(moves.T), sizes)
    log = facts.log
    seen = np.ravel_multi_index((log.state, log.action, log.next_state), sizes)
    stray = ~np.isin(seen, known) & (log.count > 0) & ~terminal[log.state]
    if stray.any():
        k = int(np.argmax(stray))
        raise InputError(
            f"{facts.source}: the log goes from {facts.pair(log.state[k], log.action[k])} to state "
            f"{facts.states[log.next_state[k]]}, which {said[1]} or correct the log"
        )
