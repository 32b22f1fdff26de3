"""The checks, one function each; nothing here imports prudent, SciPy or JAX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .reading import NoProof, Refused, read
from .tails import measure, tails_of, weigh

EPSILON = float(np.finfo(np.float64).eps)

# Boxes whose inequality is checked together, and how many of their numbers.
BLOCK, BLOCK_NUMBERS = 64, 2**21

# States with tolls in a box.
MOST_TOLLS = 8

# What a small file could ask for is bounded as well: products of values and moves, and eliminations of chains.
MOST_STATES, MOST_PRODUCTS, MOST_ELIMINATIONS = 1024, 10**10, 10**12


@dataclass(frozen=True)
class Verdict:
    """What was verified.

    Attributes:
        risk: that the file claims of the policy; the one found by solving for its values is no larger.
        lower_bound: that the file claims; the least over all boxes, found from their values, is no smaller.
        boxes: how many were checked.
        draws: models each was checked on.
        deterministic: whether the proof is of deterministic policies only.
    """

    risk: float
    lower_bound: float
    boxes: int
    draws: int
    deterministic: bool

    def __str__(self) -> str:
        kind = "deterministic" if self.deterministic else "stationary"
        return (
            f"verified: on {self.draws} models the policy's risk is at most {self.risk:.6g}, and no {kind} policy has "
            f"less than {self.lower_bound:.6g} ({self.boxes} boxes cover them all)"
        )


def verify(proof: str | Path | bytes) -> Verdict:
    """Check a proof, a file or its content; raises `Refused` with what is wrong."""
    arrays, claims = read(proof)
    parts = tails_of(claims)
    # What overflows is looked at where it could matter.
    with np.errstate(all="ignore"):
        models = _models(arrays, claims)
        boxes = _require_tree(arrays, models)
        bound, risk = _bound(arrays, models, parts), _risk(arrays["policy"], models, parts)
    if not (math.isfinite(bound) and math.isfinite(risk)):
        raise Refused(f"risk and bound of its models and boxes are {risk!r} and {bound!r}")
    slack = 1e-9 * max(abs(risk), abs(bound), 1e-300)
    for name, found, sign in (("lower_bound", bound, 1.0), ("risk", risk, -1.0)):
        claimed = _number(claims, name)
        # A claim may be more modest than what is found, never bolder.
        if sign * (claimed - found) > slack:
            raise Refused(f"the file claims {name} {claimed!r}, and {found!r} is all that its boxes and models show")
    if abs(_number(claims, "gap") - (_number(claims, "risk") - _number(claims, "lower_bound"))) > slack:
        raise Refused("the claimed gap is not the claimed risk less the claimed bound")
    said = _number(claims, "risk"), _number(claims, "lower_bound")
    return Verdict(*said, boxes, len(models.share), models.deterministic)


@dataclass(frozen=True)
class Models:
    """R models along one list of successors, and how they are weighed."""

    successor: np.ndarray
    probability: np.ndarray
    cost: np.ndarray
    start: np.ndarray
    share: np.ndarray
    discount: float
    deterministic: bool

    @property
    def ahead(self) -> float:
        """What all of the future may weigh at most, `1 / (1 - discount)` but for the rounding of the file's rows."""
        return float(self.start.sum() / (1.0 - self.discount * max(1.0, self.probability.sum(axis=-1).max())))

    def some(self, which: np.ndarray) -> Models:
        """Only these of the models."""
        probability, cost, share = (part[which] for part in (self.probability, self.cost, self.share))
        return replace(self, probability=probability, cost=cost, share=share)

    def onward(self, values: np.ndarray, cost: np.ndarray) -> np.ndarray:
        """`c + discount P v` for values `[..., R, S]`, as `[..., R, S, A]`."""
        return cost + self.discount * (self.probability * values[..., self.successor]).sum(axis=-1)

    def rounding(self, values: np.ndarray, largest: np.ndarray | float) -> np.ndarray:
        """What rounding may hide in one application of the operator to values, with costs at most so large."""
        terms = 4 * (self.probability.shape[3] + self.cost.shape[2] + 8) + len(self.start)
        return EPSILON * terms * (np.abs(values).max(axis=-1) + largest)


def _models(arrays: dict[str, np.ndarray], claims: dict[str, Any]) -> Models:
    for name in (
        "successor",
        "probability",
        "cost",
        "start",
        "share",
        "policy",
        "child",
        "state",
        "action",
        "at",
        "values",
        "weights",
        "toll_leaf",
        "toll_state",
        "toll_values",
    ):
        if name not in arrays:
            raise Refused(f"the file has no array {name!r}")
        if arrays[name].dtype.kind == "f" and name != "at" and not np.all(np.isfinite(arrays[name])):
            raise Refused(f"{name!r} holds numbers that are not finite")
    successor, probability, cost = arrays["successor"], arrays["probability"], arrays["cost"]
    start, share = arrays["start"], arrays["share"]
    if probability.ndim != 4 or successor.shape != probability.shape[1:] or cost.shape != probability.shape[:3]:
        raise Refused("successors, probabilities and costs do not fit one another")
    states, actions = cost.shape[1:]
    if states > MOST_STATES:
        raise NoProof(f"{states:,} states are more than the {MOST_STATES:,} that are checked here")
    if start.shape != (states,) or share.shape != (len(cost),) or arrays["policy"].shape != (states, actions):
        raise Refused("start, shares or policy do not fit the models")
    if successor.dtype.kind != "i" or successor.min(initial=0) < 0 or successor.max(initial=0) >= states:
        raise Refused("a successor is no state")
    for name, rows in (("probability", probability), ("start", start), ("share", share), ("policy", arrays["policy"])):
        if np.any(rows < 0) or np.any(np.abs(rows.sum(axis=-1) - 1.0) > 1e-9):
            raise Refused(f"{name!r} is not made of distributions")
    discount = _number(claims, "discount")
    if not 0.0 <= discount < 1.0 or discount * probability.sum(axis=-1).max(initial=0.0) >= 1.0:
        raise Refused(f"the discount {discount!r} is not in [0, 1)")
    deterministic = claims.get("deterministic")
    if not isinstance(deterministic, bool):
        raise Refused("it is not said whether only deterministic policies count")
    if deterministic and not np.isin(arrays["policy"], (0.0, 1.0)).all():
        raise Refused("the policy is not deterministic, and the proof is about such")
    return Models(successor, probability, cost, start, share, discount, deterministic)


def _require_tree(arrays: dict[str, np.ndarray], models: Models) -> int:
    """Refuse what is no tree whose nodes are cut once and reached once: its leaves, so many, cover all policies."""
    child, state, action, at = (arrays[name] for name in ("child", "state", "action", "at"))
    count, (draws, states, actions) = len(child) if child.ndim else 0, models.cost.shape
    if not (child.shape == state.shape == action.shape == at.shape == (count,) and count):
        raise Refused("the columns of the tree are not of one length")
    if any(column.dtype.kind != "i" for column in (child, state, action)):
        raise Refused("the columns of the tree are not whole numbers")
    inner = child >= 0
    first = child[inner].astype(np.int64)
    if np.any(first <= np.flatnonzero(inner)) or np.any(first + 1 >= count):
        raise Refused("a child does not come after its parent")
    reached = np.sort(np.concatenate([first, first + 1]))
    if not np.array_equal(reached, np.arange(1, count)):
        raise Refused("a box has no parent, or two: the boxes do not cover all policies")
    if np.any((state[inner] < 0) | (state[inner] >= states) | (action[inner] < 0) | (action[inner] >= actions)):
        raise Refused("a cut is at no state or action")
    if np.any(~((at[inner] > 0.0) & (at[inner] < 1.0))):
        raise Refused("a cut is not between 0 and 1")
    leaves = count - int(inner.sum())
    if arrays["values"].shape != (leaves, draws, states) or arrays["weights"].shape != (leaves, draws):
        raise Refused("there are not values of every state, and a weight, for every leaf and model")
    which, place, paid = (arrays[name] for name in ("toll_leaf", "toll_state", "toll_values"))
    if which.ndim != 1 or place.ndim != 2 or place.shape[0] != len(which) or not 0 < place.shape[1] <= MOST_TOLLS:
        raise Refused("leaves and states of the tolls are not of one length")
    sets = 2 ** place.shape[1] - 1
    if paid.shape != (len(which), sets, draws, states):
        raise Refused("there are not values of every state for every set of tolls and model")
    if any(column.dtype.kind != "i" for column in (which, place)) or np.any(np.diff(which.astype(np.int64)) <= 0):
        raise Refused("leaves and states of the tolls are not whole numbers, the leaves in their order")
    if np.any((which < 0) | (which >= leaves)) or np.any((place < 0) | (place >= states)):
        raise Refused("tolls are of no leaf or of no state")
    if np.any(np.diff(np.sort(place, axis=1), axis=1) == 0):
        raise Refused("a leaf has two tolls at one state")
    if (leaves + sets * len(which)) * models.probability.size > MOST_PRODUCTS or draws * states**3 > MOST_ELIMINATIONS:
        raise NoProof("it takes longer to check than any proof that prudent writes")
    return leaves


@dataclass
class Some:
    """Some boxes: the rows they are of, and the least and the largest rows."""

    rows: list[int]
    low: np.ndarray
    high: np.ndarray


def _boxes(arrays: dict[str, np.ndarray], models: Models) -> Iterator[Some]:
    """The boxes of the leaves, some at a time.

    Every cut is made on the way down and taken back on the way up, so that the depth of a tree costs nothing.
    """
    child, state, action, at = (arrays[name].tolist() for name in ("child", "state", "action", "at"))
    number = (np.cumsum(arrays["child"] < 0) - 1).tolist()
    shape = models.cost.shape[1:]
    sides = np.zeros(shape), np.ones(shape)
    some = max(1, min(BLOCK, BLOCK_NUMBERS // models.probability.size))
    rows: list[int] = []
    low, high = np.empty((some, *shape)), np.empty((some, *shape))
    # To visit: a node with the side that its cut moves, where and to what; or what a side was, to be taken back.
    todo: list[tuple[int, int, tuple[int, int], float]] = [(0, 0, (0, 0), 0.0)]
    while todo:
        node, side, place, limit = todo.pop()
        before = float(sides[side][place])
        sides[side][place] = limit if node < 0 else min(before, limit) if side else max(before, limit)
        if node < 0:
            continue
        todo.append((-1, side, place, before))
        if (below := child[node]) >= 0:
            cut, where = at[node], (state[node], action[node])
            todo.append((below, 1, where, 0.0 if models.deterministic else cut))
            todo.append((below + 1, 0, where, 1.0 if models.deterministic else cut))
            continue
        low[len(rows)], high[len(rows)] = sides
        rows.append(number[node])
        if len(rows) == some:
            yield Some(rows, low, high)
            rows = []
    if rows:
        yield Some(rows, low[: len(rows)], high[: len(rows)])


def _bound(arrays: dict[str, np.ndarray], models: Models, parts: list[tuple[float, float]]) -> float:
    """The least over all boxes of what their values, weights and tolls show; an empty box bounds nothing."""
    least = np.inf
    for some in _boxes(arrays, models):
        values = arrays["values"][some.rows].astype(np.float64)
        quality = models.onward(values, models.cost)
        rounding = models.rounding(values, np.abs(models.cost).max(axis=(1, 2)))
        bounds = _proved(models, some, values, quality, rounding)
        left = 1.0 - some.low.sum(axis=-1)
        full = ~np.any((left < -1e-12) | (some.high.sum(axis=-1) < 1.0 - 1e-12), axis=-1)
        if np.isnan(bounds[full]).any():
            raise Refused("the values of a box are so large that they prove nothing")
        if not full.any():
            continue
        found = measure(bounds, models.share, parts)
        tolls = np.minimum(np.searchsorted(arrays["toll_leaf"], some.rows), len(arrays["toll_leaf"]) - 1)
        for row, toll in enumerate(tolls.tolist()):
            if toll < 0 or arrays["toll_leaf"][toll] != some.rows[row]:
                continue
            weights = arrays["weights"][some.rows[row]].astype(np.float64)
            if not weigh(weights[None], models.share, parts)[0]:
                continue
            # Models without a weight add nothing.
            heavy = np.flatnonzero(weights)
            value, paying, hidden, proved = (part[row][heavy] for part in (values, quality, rounding, bounds))
            box = Box(some.low[row], some.high[row], value, paying, hidden, proved, weights[heavy])
            place, paid = arrays["toll_state"][toll], arrays["toll_values"][toll][:, heavy].astype(np.float64)
            found[row] = max(found[row], _shared(box, place, _visits(models.some(heavy), box, place, paid)))
        least = min(least, float(found[full].min()))
    return float(least)


@dataclass
class Box:
    """One box and some models: its rows, values `[R, S]`, what actions cost `[R, S, A]`, what these prove, weights."""

    low: np.ndarray
    high: np.ndarray
    values: np.ndarray
    quality: np.ndarray
    rounding: np.ndarray
    bounds: np.ndarray
    weights: np.ndarray


def _proved(models: Models, some: Some, values: np.ndarray, quality: np.ndarray, rounding: np.ndarray) -> np.ndarray:
    """`[N, R]` what values and qualities prove of every policy in N boxes, by one inequality of Bellman's."""
    costs = _least(quality, some.low[:, None], some.high[:, None])
    residual = np.minimum((costs - values).min(axis=-1) - rounding, 0.0)
    return values @ models.start + residual * models.ahead


def _least(costs: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The least of `<row, costs>` over rows between bounds: the cheapest actions are filled up first."""
    order = np.argsort(costs, axis=-1)
    sizes = np.take_along_axis(np.broadcast_to(high - low, costs.shape), order, axis=-1)
    before = np.cumsum(sizes, axis=-1) - sizes
    filled = np.clip((1.0 - low.sum(axis=-1))[..., None] - before, 0.0, sizes)
    return (filled * np.take_along_axis(costs, order, axis=-1)).sum(axis=-1) + (low * costs).sum(axis=-1)


def _visits(models: Models, box: Box, place: np.ndarray, paid: np.ndarray) -> np.ndarray:
    """`[R, K]` numbers n such that every policy of the box pays at least `sum_k n_k (<row_k, q> - v)` above the bound.

    Above the values, and what they may be short of, a row costs from nothing to a toll. If it is the toll in some of
    the K states and nothing in the others of them, a policy pays at least what Bellman's inequality shows of `paid`,
    one set of states after the other. That is concave in the costs at the K states, so it is enough that the tolls of
    every set, times n, are no more.
    """
    costs = _least(box.quality, box.low, box.high)
    short = np.minimum((costs - box.values).min(axis=-1) - box.rounding, 0.0)
    above = box.quality - (box.values + short[:, None])[..., None]
    tolls = box.rounding[:, None] - _least(-above[:, place], box.low[place], box.high[place])
    largest = np.abs(above).max(axis=(1, 2)) + tolls.max(axis=1)
    least = []
    for number, values in enumerate(paid, start=1):
        charged = np.array([bool(number >> k & 1) for k in range(len(place))])
        above[:, place] = np.where(charged, tolls, 0.0)[..., None]
        costs = _least(models.onward(values, above), box.low, box.high)
        hidden = models.rounding(values, largest) + box.rounding
        left = np.minimum((costs - values).min(axis=-1) - hidden, 0.0)
        found = values @ models.start + left * models.ahead
        # Of what is not a number nothing is known.
        least.append((charged, np.where(found > 0.0, found, 0.0)))
    alone = np.stack([least[2**k - 1][1] for k in range(len(place))], axis=1)
    share = np.ones(len(alone))
    for charged, total in least:
        asked = alone[:, charged].sum(axis=1)
        share = np.minimum(share, np.where(asked > 0.0, total / np.where(asked > 0.0, asked, 1.0), 1.0))
    few = (1.0 - 8 * len(place) * EPSILON) * share[:, None] * alone
    return np.where(tolls > 0.0, few / np.where(tolls > 0.0, tolls, 1.0), 0.0)


def _shared(box: Box, place: np.ndarray, visits: np.ndarray) -> float:
    """A bound that knows that all models share one policy, whose worst row at each state is one for all."""
    costs = visits[..., None] * (box.quality[:, place] - box.values[:, place, None])
    price = (box.weights[:, None, None] * costs).sum(axis=0)
    found = box.weights @ box.bounds + _least(price, box.low[place], box.high[place]).sum()
    largest = np.abs(box.bounds).max() + np.abs(costs).max(axis=(0, 2)).sum()
    found -= EPSILON * 8 * sum(costs.shape) * largest
    return -np.inf if np.isnan(found) else float(found)


def _risk(policy: np.ndarray, models: Models, parts: list[tuple[float, float]]) -> float:
    states = len(models.start)
    losses = []
    for probability, cost in zip(models.probability, models.cost, strict=True):
        chain = np.zeros((states, states))
        np.add.at(chain, (np.arange(states)[:, None, None], models.successor), policy[:, :, None] * probability)
        values = np.linalg.solve(np.eye(states) - models.discount * chain, (policy * cost).sum(axis=1))
        losses.append(models.start @ values)
    return float(measure(np.array([losses]), models.share, parts)[0])


def _number(claims: dict[str, Any], name: str) -> float:
    value: Any = claims.get(name)
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise Refused(f"the file claims no number as {name!r}")
    return number
