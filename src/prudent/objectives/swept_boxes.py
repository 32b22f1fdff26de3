"""Boxes of linear losses by loops that Numba compiles: one box at a time, all draws of it side by side.

Arrays have the draws last, so that every inner loop is one run over contiguous numbers, and what a box needs stays in
the processor's cache. A box is done when its own policy iteration is; a batch of vector operations waits for the
slowest. The functions let go of Python's lock; threads work on different boxes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array
from ..loops import compiled
from ..occupancies import XlaElimination
from .boxes import Boxes, Relaxed, Tolls
from .tabular_boxes import EPSILON, MOST_IMPROVEMENTS, RESIDUAL, LinearBoxes, hidden

# Residual of tolls below which no improvement is made, as a share of the largest cost; what is left is taken off.
TOLL_RESIDUAL = 1e-5


class Chains(NamedTuple):
    """Models of all draws.

    Attributes:
        successor, probability: along one support.
        discount: of all.
        place: where a state stands in the order of elimination.
        reach: one past the last position that the row or column there touches.
    """

    successor: Int[np.ndarray, "S A B"]
    probability: Float[np.ndarray, "S A B R"]
    discount: float
    place: Int[np.ndarray, " S"]
    reach: Int[np.ndarray, " S"]


class SweptBoxes(Boxes):
    """The same relaxations as `LinearBoxes`, several times as fast."""

    plain: LinearBoxes
    chains: Chains
    cost: Float[np.ndarray, "S A R"]
    start: Float[np.ndarray, " S"]

    @staticmethod
    def of(plain: LinearBoxes) -> SweptBoxes:
        """The order of elimination, and what it fills, are found once."""
        support = plain.models.support
        successor = np.broadcast_to(support.index(), support.shape).astype(np.int64)
        place = np.argsort(XlaElimination.of(support).order)
        touched = np.eye(support.states, dtype=bool)
        touched[place[:, None, None], place[successor]] = True
        last = [np.flatnonzero(row).max() + 1 for row in touched | touched.T]
        probability, cost = (np.ascontiguousarray(part, dtype=float) for part in (plain.models.probability, plain.cost))
        chains = Chains(
            np.ascontiguousarray(successor),
            probability,
            float(plain.models.discount),
            place,
            np.maximum.accumulate(last),
        )
        return SweptBoxes(plain, chains, cost, np.asarray(plain.models.start, dtype=float))

    def relaxed(self, low: Array, high: Array, values: Array) -> Relaxed:
        """Each box until its own policy iteration has settled."""
        low, high = (np.ascontiguousarray(end, dtype=float) for end in (low, high))
        values = np.array(values, dtype=float)
        quality, rows = (np.empty((len(low), *self.cost.shape)) for _ in range(2))
        residual, visits = np.empty((len(low), self.cost.shape[2])), np.empty(values.shape)
        tolerance = RESIDUAL * (np.abs(self.cost).max() / (1.0 - self.chains.discount))
        ends = (low, high, tolerance, MOST_IMPROVEMENTS)
        relax(self.chains, self.cost, self.start, *ends, values, quality, rows, residual, visits)
        least = self._bound(values, residual, np.abs(self.cost).max(axis=(0, 1)))
        return Relaxed(least, values, rows, quality, visits)

    def followed(self, tables: Array) -> tuple[np.ndarray, np.ndarray]:
        """By one solve each."""
        tables = np.ascontiguousarray(tables, dtype=float)
        visits = np.empty((len(tables), self.cost.shape[0], self.cost.shape[2]))
        follow(self.chains, self.start, tables, visits)
        return np.einsum("nsr,nsa,sar->nr", visits, tables, self.cost, optimize=True), visits

    def tolls(
        self, low: Array, high: Array, values: Array, state: Array, counted: Array, paid: Array | None = None
    ) -> Tolls:
        """By policy iteration on what is paid, one for each set of states, begun at the draws' own rows."""
        low, high, values = (np.ascontiguousarray(part, dtype=float) for part in (low, high, values))
        count, places = state.shape
        most, sets = MOST_IMPROVEMENTS if paid is None else 0, 2**places - 1
        paid = np.zeros((count, sets, *values.shape[1:])) if paid is None else np.array(paid, dtype=float)
        largest = np.abs(self.cost).max(axis=(0, 1))
        slack = hidden(self.plain.models.support, np.abs(values).max(axis=1) + largest)
        toll, residual = np.zeros((count, places, values.shape[2])), np.zeros((count, sets, values.shape[2]))
        given = (low, high, values, np.asarray(state, dtype=np.int64), np.asarray(counted), slack)
        charge_counted(self.chains, self.cost, *given, TOLL_RESIDUAL * largest.max(), most, toll, paid, residual)
        # What a row costs above the values is at most so large.
        size = 2.0 * (np.abs(values).max(axis=1) + largest) + toll.max(axis=1)
        flat = (paid.reshape(-1, *paid.shape[2:]), (residual - slack[:, None]).reshape(-1, residual.shape[2]))
        least = self._bound(*flat, size.repeat(sets, axis=0)).reshape(residual.shape)
        return Tolls(_visits(toll, np.maximum(least, 0.0)), paid)

    def listed(self) -> dict[str, np.ndarray]:
        """As plain."""
        return self.plain.listed()

    def proved(self, low: Array, high: Array, values: Array) -> tuple[Array, Array]:
        """As plain."""
        return self.plain.proved(low, high, values)

    def _bound(
        self, values: Float[np.ndarray, "N S R"], residual: Float[np.ndarray, "N R"], cost: Float[np.ndarray, ...]
    ) -> np.ndarray:
        """The bound that values and their residual prove, rounding taken off; costs are at most so large."""
        rounding = hidden(self.plain.models.support, np.abs(values).max(axis=1) + cost)
        paid = np.einsum("s,nsr->nr", self.start, values)
        return paid + (np.minimum(residual, 0.0) - rounding) / (1.0 - self.chains.discount)


def _visits(toll: Float[np.ndarray, "N K R"], least: Float[np.ndarray, "N V R"]) -> Float[np.ndarray, "N K R"]:
    """Visits whose tolls are no more than the least of any set: those of single states, less where sets ask for it."""
    places = toll.shape[1]
    alone = np.stack([least[:, (1 << k) - 1] for k in range(places)], axis=1)
    share = np.ones(least[:, 0].shape)
    for u in range(1, least.shape[1] + 1):
        total = sum(alone[:, k] for k in range(places) if u >> k & 1)
        share = np.minimum(share, np.where(total > 0.0, least[:, u - 1] / np.where(total > 0.0, total, 1.0), 1.0))
    few = (1.0 - 8 * EPSILON * places) * share[:, None] * alone
    return np.where(toll > 0.0, few / np.where(toll > 0.0, toll, 1.0), 0.0)


@compiled
def factorise(chains, rows, matrix):
    """`I - discount P_rows = L U` of every draw, without pivoting; diagonals of U inverted."""
    successor, probability, discount, place, reach = chains
    states, actions, outcomes, draws = probability.shape
    for s in range(states):
        for j in range(states):
            if s < reach[j] and j < reach[s]:
                matrix[s, j] = 1.0 if s == j else 0.0
    for s in range(states):
        for a in range(actions):
            for b in range(outcomes):
                entry = matrix[place[s], place[successor[s, a, b]]]
                for r in range(draws):
                    entry[r] -= discount * rows[s, a, r] * probability[s, a, b, r]
    for k in range(states):
        for r in range(draws):
            matrix[k, k, r] = 1.0 / matrix[k, k, r]
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                matrix[i, k, r] *= matrix[k, k, r]
            for j in range(k + 1, reach[k]):
                for r in range(draws):
                    matrix[i, j, r] -= matrix[i, k, r] * matrix[k, j, r]


@compiled
def solve(matrix, reach, right):
    """`L U x = right`, in place and in the order of elimination."""
    states, draws = right.shape
    for k in range(states):
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                right[i, r] -= matrix[i, k, r] * right[k, r]
    for k in range(states - 1, -1, -1):
        for j in range(k + 1, reach[k]):
            for r in range(draws):
                right[k, r] -= matrix[k, j, r] * right[j, r]
        for r in range(draws):
            right[k, r] *= matrix[k, k, r]


@compiled
def visited(chains, matrix, start, visits, work):
    """`(L U)^T visits = start`."""
    place, reach = chains.place, chains.reach
    states, draws = work.shape
    for s in range(states):
        work[place[s]] = start[s]
    for k in range(states):
        for r in range(draws):
            work[k, r] *= matrix[k, k, r]
        for j in range(k + 1, reach[k]):
            for r in range(draws):
                work[j, r] -= matrix[k, j, r] * work[k, r]
    for k in range(states - 1, -1, -1):
        for i in range(k + 1, reach[k]):
            for r in range(draws):
                work[k, r] -= matrix[i, k, r] * work[i, r]
    for s in range(states):
        visits[s] = work[place[s]]


@compiled
def improve(chains, cost, low, high, values, quality, rows, residual, left):
    """`c + discount P v`, the rows of a box that are greedy for it, and `min_s (T v - v)(s)`."""
    successor, probability, discount = chains.successor, chains.probability, chains.discount
    states, actions, outcomes, draws = probability.shape
    residual[:] = np.inf
    for s in range(states):
        over = 1.0
        for a in range(actions):
            over -= low[s, a]
            quality[s, a] = 0.0
            for b in range(outcomes):
                after = values[successor[s, a, b]]
                for r in range(draws):
                    quality[s, a, r] += probability[s, a, b, r] * after[r]
            for r in range(draws):
                quality[s, a, r] = cost[s, a, r] + discount * quality[s, a, r]
        # The cheapest actions are filled up first; of equal ones, the first.
        for a in range(actions):
            left[:] = over
            for b in range(actions):
                room = high[s, b] - low[s, b]
                if b > a:
                    for r in range(draws):
                        left[r] -= room if quality[s, b, r] < quality[s, a, r] else 0.0
                elif b < a:
                    for r in range(draws):
                        left[r] -= room if quality[s, b, r] <= quality[s, a, r] else 0.0
            least, room = low[s, a], high[s, a] - low[s, a]
            for r in range(draws):
                rows[s, a, r] = least + min(max(left[r], 0.0), room)
        for r in range(draws):
            left[r] = -values[s, r]
        for a in range(actions):
            for r in range(draws):
                left[r] += rows[s, a, r] * quality[s, a, r]
        for r in range(draws):
            residual[r] = min(residual[r], left[r])


@compiled
def pay(chains, cost, rows, values, matrix, work):
    """Values of rows whose chains are factorised."""
    place = chains.place
    states, actions, draws = cost.shape
    for s in range(states):
        paid = work[place[s]]
        paid[:] = 0.0
        for a in range(actions):
            for r in range(draws):
                paid[r] += rows[s, a, r] * cost[s, a, r]
    solve(matrix, chains.reach, work)
    for s in range(states):
        values[s] = work[place[s]]


@compiled
def iterate(chains, cost, low, high, tolerance, most, rows, values, quality, greedy, residual, matrix, work, left):
    """Policy iteration from `rows` until no residual is below `-tolerance`, or `most` times; values are of the rows."""
    for turn in range(most):
        if turn > 0:
            rows[:] = greedy
        factorise(chains, rows, matrix)
        pay(chains, cost, rows, values, matrix, work)
        improve(chains, cost, low, high, values, quality, greedy, residual, left)
        worst = 0.0
        for each in residual:
            worst = min(worst, each)
        if worst >= -tolerance:
            break


@compiled
def relax(chains, cost, start, low, high, tolerance, most, values, quality, rows, residual, visits):
    """Of N boxes: policy iteration from `values` `[N, S, R]`, which is overwritten, and visits of the rows."""
    states, actions, draws = cost.shape
    greedy, matrix = np.empty((states, actions, draws)), np.empty((states, states, draws))
    work, left = np.empty((states, draws)), np.empty(draws)
    for n in range(low.shape[0]):
        improve(chains, cost, low[n], high[n], values[n], quality[n], rows[n], residual[n], left)
        iterate(
            chains, cost, low[n], high[n], tolerance, most,
            rows[n], values[n], quality[n], greedy, residual[n], matrix, work, left,
        )  # fmt: skip
        visited(chains, matrix, start, visits[n], work)


@compiled
def dearest(cost, low, high):
    """The most that a row between bounds can cost."""
    actions = cost.shape[0]
    over, total = 1.0, 0.0
    for a in range(actions):
        over -= low[a]
        total += low[a] * cost[a]
    for a in range(actions):
        left = over
        for b in range(actions):
            if cost[b] > cost[a] or (cost[b] == cost[a] and b < a):
                left -= high[b] - low[b]
        total += min(max(left, 0.0), high[a] - low[a]) * cost[a]
    return total


@compiled
def charge(chains, cost, low, high, values, state, sets, slack, tolerance, most, paid):
    """Of one box with `values` `[S, R]`: tolls `[K, R]`, and residuals `[R]` of what is paid, `[S, R]`.

    The toll of a state is the most that a row there costs above the values. A table pays the tolls of the states in a
    draw's set, a bit for each of the K states; nothing at the others of these; elsewhere what its row costs above the
    values. `paid` is found by at `most` so many improvements, begun at the draws' own rows. `slack` `[R]` is what
    rounding may hide above the values.
    """
    states, actions, draws = cost.shape
    tolls, residual = np.empty((state.size, draws)), np.empty(draws)
    above, quality = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    rows, greedy = np.empty((states, actions, draws)), np.empty((states, actions, draws))
    matrix, work, left = np.empty((states, states, draws)), np.empty((states, draws)), np.empty(draws)
    improve(chains, cost, low, high, values, above, rows, residual, left)
    for r in range(draws):
        left[r] = min(residual[r], 0.0) - slack[r]
    for s in range(states):
        for a in range(actions):
            for r in range(draws):
                above[s, a, r] -= values[s, r] + left[r]
    for k in range(state.size):
        s = state[k]
        for r in range(draws):
            tolls[k, r] = dearest(above[s, :, r], low[s], high[s]) + slack[r]
            for a in range(actions):
                above[s, a, r] = tolls[k, r] if sets[r] >> k & 1 else 0.0
    if most == 0:
        improve(chains, above, low, high, paid, quality, greedy, residual, left)
    iterate(chains, above, low, high, tolerance, most, rows, paid, quality, greedy, residual, matrix, work, left)
    return tolls, residual


@compiled
def charge_counted(chains, cost, low, high, values, state, counted, slack, tolerance, most, tolls, paid, residual):
    """`charge` of N boxes for the draws of each that are counted, `[N, R]`, and all sets; nothing else is written."""
    successor, probability, discount, place, reach = chains
    for n in range(low.shape[0]):
        # The draws once for each set, side by side: few and long loops.
        chosen = np.flatnonzero(counted[n])
        draws = np.empty(chosen.size * paid.shape[1], np.int64)
        sets = np.empty(draws.size, np.int64)
        for j in range(draws.size):
            draws[j], sets[j] = chosen[j % chosen.size], j // chosen.size
        some = np.empty((paid.shape[2], draws.size))
        for j in range(draws.size):
            some[:, j] = paid[n, sets[j], :, draws[j]]
        some_chains = Chains(successor, probability[:, :, :, draws], discount, place, reach)
        toll, short = charge(
            some_chains, cost[:, :, draws], low[n], high[n], values[n][:, draws], state[n], sets + 1, slack[n][draws],
            tolerance, most, some,
        )  # fmt: skip
        for j in range(draws.size):
            tolls[n, :, draws[j]] = toll[:, j]
            paid[n, sets[j], :, draws[j]] = some[:, j]
            residual[n, sets[j], draws[j]] = short[j]


@compiled
def follow(chains, start, tables, visits):
    """Visits `[N, S, R]` of N tables at every draw."""
    states, actions, _, draws = chains.probability.shape
    rows, matrix = np.empty((states, actions, draws)), np.empty((states, states, draws))
    work = np.empty((states, draws))
    for n in range(tables.shape[0]):
        for s in range(states):
            for a in range(actions):
                rows[s, a] = tables[n, s, a]
        factorise(chains, rows, matrix)
        visited(chains, matrix, start, visits[n], work)
