"""What a state and action cost: as a file says, or as a log shows with the error that leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..kernels import Support
from ..tables import LogCounts
from .facts import Facts

# Costs that differ by less than this share of the largest do not differ.
ROUNDING = 1e-12

# Costs go by the next state if differences as large would otherwise come by chance this rarely.
BY_CHANCE = 0.01

# Degrees of freedom that an error has before any: its mean and variance exist from the first.
FIRST_DEGREES = 3.0


@dataclass(frozen=True, eq=False)
class BelievedCosts:
    """Costs as they are believed: `mean + spread * t`, with t of Student's distribution.

    Cells of one group have their errors from one unknown variance, and vary by it together.

    Attributes:
        mean: `[S, A]` or, where costs differ by the next state, `[S, A, B]`.
        spread: of the same shape, 0 where a cost is known; None where all are.
        group: of the same shape, 0 for what was seen and 1 for what was guessed.
        degrees: of freedom, by group.
        note: how they were found, in words.
        priced: how many pairs have a cost, or a move with a cost, that is the file's `default_cost`.
    """

    mean: np.ndarray
    spread: np.ndarray | None = None
    group: np.ndarray | None = None
    degrees: tuple[float, float] = (np.inf, np.inf)
    note: str = "given"
    priced: int = 0


def costs_of(facts: Facts, support: Support, terminal: np.ndarray, reachable: np.ndarray) -> BelievedCosts:
    """The costs of a problem; refuses a pair that can be reached and has none."""
    states, actions, _ = support.shape
    index, values, log = facts.costs, facts.cost_values, facts.log
    where = "data.costs"
    if index is None:
        if (log is None or not np.any(log.cost_count > 0)) and facts.file.data.default_cost is None:
            raise InputError(
                f"{facts.source}: there are no costs; give data.costs, a column cost in the log, or data.default_cost"
            )
        costs = _from_log(log, support)
        where = "the log's column cost"
    elif index.shape[1] == 2:
        mean = np.full((states, actions), np.nan)
        mean[tuple(index.T)] = values
        costs = BelievedCosts(mean)
        if log is not None and np.any(log.cost_count > 0):
            where = "data.costs (nor the log's column cost)"
            costs = _beside(mean, _from_log(log, support))
    else:
        costs = BelievedCosts(_along(index, values, support))  # pyright: ignore[reportArgumentType]
    default = facts.file.data.default_cost
    # A terminal state costs nothing unless it is given a cost; neither, without a default, does what is never reached.
    idle = (terminal | (~reachable & (default is None))).reshape(-1, *[1] * (costs.mean.ndim - 1))
    mean = np.where(np.isnan(costs.mean) & idle, 0.0, costs.mean)
    missing, priced = np.isnan(mean), 0
    if default is not None:
        mean = np.where(missing, default, mean)
        priced = int(missing.reshape(states * actions, -1).any(axis=1).sum())
    given = costs.mean if costs.mean.ndim == 2 else costs.mean[support.allowed()]
    given = given[~np.isnan(given)]
    # What is priced lower may look better than what was tried, for no reason but the price.
    dearest = f", no lower than the dearest cost there is ({given.max():g})" if len(given) else ""
    _refuse_missing(facts, mean, support, where, dearest)
    spread = None if costs.spread is None or not costs.spread.any() else costs.spread
    return BelievedCosts(mean, spread, None if spread is None else costs.group, costs.degrees, costs.note, priced)


def _beside(given: np.ndarray, seen: BelievedCosts) -> BelievedCosts:
    """Costs as they are given, and where none is given as the log shows them."""
    known = ~np.isnan(given)
    other = np.isnan(seen.mean) if seen.mean.ndim == 2 else np.isnan(seen.mean).all(axis=2)
    used = int((~known & ~other).sum())
    if used == 0:
        return BelievedCosts(given)
    if seen.mean.ndim == 3:
        known, given = known[..., None], given[..., None]
    assert seen.spread is not None
    note = f"given for {int(known.sum())} pairs; of {used} others {seen.note}"
    return BelievedCosts(
        np.where(known, given, seen.mean), np.where(known, 0.0, seen.spread), seen.group, seen.degrees, note
    )


def _from_log(log: LogCounts | None, support: Support) -> BelievedCosts:
    """Means of the log's costs, of each pair or of each move, with the error they have from the noise of all rows.

    With `W` the squares of costs about the mean of their move, and `B` those of the moves' means about their pair's,
    costs go by the move if `B` is larger than `W` explains (an F test), or if `W` is 0. The noise that is left has one
    variance, estimated from all cells that were seen more than once: `W / degrees`, or `(W + B) / degrees`. The mean of
    a cell with n rows has the error `Student(degrees + 3) * noise / sqrt(n)`.
    """
    states, actions, _ = support.shape
    shape = (states, actions)
    if log is None or not np.any(log.cost_count > 0):
        return BelievedCosts(np.full(shape, np.nan))
    paid = log.cost_count > 0
    index = np.stack([log.state, log.action, log.next_state], axis=1)[paid]
    number, total, within = (column[paid] for column in (log.cost_count, log.cost_total, log.cost_square))
    mean, pair = total / number, index[:, 0] * actions + index[:, 1]
    rows = np.bincount(pair, number, states * actions)
    of_pair = np.bincount(pair, total, states * actions) / np.where(rows > 0, rows, 1.0)
    between = float((number * (mean - of_pair[pair]) ** 2).sum())
    squares, again = float(within.sum()), float((number - 1.0).sum())
    moves = float(len(number) - (rows > 0).sum())
    nothing = (ROUNDING * np.abs(mean).max()) ** 2 * number.sum()
    if _by_move(between, moves, squares, again, nothing):
        noise, degrees = (squares / again if squares > nothing else 0.0), again
        value = _along(index, mean, support)
        spread = np.nan_to_num(_along(index, np.sqrt(noise / number), support))
        guess, error, known = _guessed(index, mean, support)
        unseen = np.isnan(value) & (rows > 0).reshape(*shape, 1)
        value, spread = np.where(unseen, guess, value), np.where(unseen, error, spread)
        note = f"of each move, {_words(noise, degrees, 'a move')}"
        freedom = degrees + FIRST_DEGREES, known + FIRST_DEGREES
        return BelievedCosts(value, spread, unseen.astype(np.int32), freedom, note)
    squares, degrees = squares + between, again + moves
    noise = squares / degrees if squares > nothing else 0.0
    value = np.where(rows > 0, of_pair, np.nan).reshape(shape)
    spread = np.sqrt(noise / np.where(rows > 0, rows, np.inf)).reshape(shape)
    freedom = degrees + FIRST_DEGREES, np.inf
    note = f"of each pair, {_words(noise, degrees, 'a pair')}"
    return BelievedCosts(value, spread, np.zeros(shape, np.int32), freedom, note)


def _by_move(between: float, moves: float, squares: float, again: float, nothing: float) -> bool:
    """Whether costs differ by the next state by more than by chance."""
    if moves == 0 or again == 0 or between <= nothing:
        return False
    if squares <= nothing:
        return True
    from scipy.special import fdtrc

    return bool(fdtrc(moves, again, (between / moves) / (squares / again)) < BY_CHANCE)


def _words(noise: float, degrees: float, what: str) -> str:
    if noise > 0.0:
        return f"means of the log's column cost, whose rows are off by {np.sqrt(noise):.3g}: the belief holds the error"
    if degrees == 0:
        return f"as the log's column cost has them: {what} that was seen twice would tell their error"
    return f"as the log's column cost has them: they are the same whenever {what} was seen again"


def _guessed(index: np.ndarray, mean: np.ndarray, support: Support) -> tuple[np.ndarray, np.ndarray, float]:
    """Costs of moves never seen, `[S, A, B]`, the error of the guess, and on how many moves that was found.

    A move costs what moves into the same state cost elsewhere, or what other moves of its pair do: whichever foretells
    the moves that were seen better from the others.
    """
    states, actions, _ = support.shape
    followers = support.index()
    into, beside = index[:, 2], index[:, 0] * actions + index[:, 1]
    guesses = []
    for group, size in ((into, states), (beside, states * actions)):
        cells = np.bincount(group, minlength=size)
        total = np.bincount(group, mean, size)
        others = cells[group] > 1
        missed = mean[others] - (total[group] - mean)[others] / (cells[group] - 1)[others]
        error = np.sqrt((missed**2).mean()) if others.any() else mean.std()
        guesses.append((np.where(cells > 0, total / np.maximum(cells, 1), np.nan), float(error), int(others.sum())))
    (by_state, error, known), (by_pair, pair_error, pair_known) = guesses
    elsewhere = by_state[followers]
    if known == 0 or error > pair_error:
        elsewhere = np.full(followers.shape, np.nan)
    own = np.broadcast_to(by_pair.reshape(states, actions, 1), followers.shape)
    found = np.isnan(elsewhere)
    return (
        np.where(found, own, elsewhere),
        np.where(found, pair_error, error),
        float(min(known, pair_known) or pair_known),
    )


def _along(index: np.ndarray, values: np.ndarray, support: Support) -> np.ndarray:
    """Costs of moves along the successor lists, NaN where none is given, 0 on padding."""
    states, actions, _ = support.shape
    sizes = (states, actions, states)
    code = np.asarray(np.ravel_multi_index(tuple(index.T), sizes))
    order = np.argsort(code)
    code, values = code[order], values[order]
    s, a = np.ogrid[:states, :actions]
    wanted = np.ravel_multi_index((s[..., None], a[..., None], support.index()), sizes, mode="clip")
    place = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
    cost = np.where(code[place] == wanted, values[place], np.nan)
    return cost if support.listed is None else np.where(support.allowed(), cost, 0.0)


def _refuse_missing(facts: Facts, cost: np.ndarray, support: Support, where: str, dearest: str) -> None:
    none = np.isnan(cost)
    # A log that has no cost of a pair has none of its moves.
    by_pair = facts.costs is None or facts.costs.shape[1] == 2
    missing = np.argwhere(none.any(axis=2) if none.ndim == 3 and by_pair else none)
    if not len(missing):
        return
    state, action, *slot = (int(i) for i in missing[0])
    name = facts.pair(state, action)
    if slot:
        name += f" to state {facts.states[int(support.index()[state, action, slot[0]])]}"
    more = f" (nor for {len(missing) - 1} more)" if len(missing) > 1 else ""
    raise InputError(
        f"{facts.source}: {where} has no cost for {name}, which can be reached{more}; give one, or set "
        f"data.default_cost{dearest}"
    )
