"""The checks, one function each; nothing here imports prudent, SciPy or JAX."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)

# Boxes whose inequality is checked together.
BLOCK = 64

# A header of a proof is a few kilobytes.
LONGEST_HEADER = 10**6

TYPES = {"F64": np.float64, "F32": np.float32, "I32": np.int32, "I64": np.int64}


class Refused(Exception):  # noqa: N818
    """The proof does not hold; the message says what is wrong with it."""


@dataclass(frozen=True)
class Verdict:
    """What was verified.

    Attributes:
        risk: of the policy, found by solving for its values.
        lower_bound: the least over all boxes, found from their values.
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
            f"verified: on {self.draws} models the policy's risk is {self.risk:.6g}, and no {kind} policy has less "
            f"than {self.lower_bound:.6g} ({self.boxes} boxes cover them all)"
        )


def verify(proof: str | Path | bytes) -> Verdict:
    """Check a proof, a file or its content; raises `Refused` with what is wrong."""
    arrays, claims = read(proof)
    models = _models(arrays, claims)
    low, high = _leaves(arrays, claims, models)
    bound = _bound(arrays, claims, models, low, high)
    risk = _risk(arrays["policy"], claims, models)
    slack = 1e-9 * max(abs(risk), abs(bound), 1e-300)
    for name, found, sign in (("lower_bound", bound, 1.0), ("risk", risk, -1.0)):
        claimed = _number(claims, name)
        # A claim may be more modest than what is found, never bolder.
        if sign * (claimed - found) > slack:
            raise Refused(f"the file claims {name} {claimed!r}, and {found!r} is all that its boxes and models show")
    if abs(_number(claims, "gap") - (_number(claims, "risk") - _number(claims, "lower_bound"))) > slack:
        raise Refused("the claimed gap is not the claimed risk less the claimed bound")
    return Verdict(risk, bound, len(low), len(models.share), models.deterministic)


def read(proof: str | Path | bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and claims of a proof, in the safetensors format; refused before anything large is copied."""
    data = proof if isinstance(proof, bytes) else Path(proof).read_bytes()
    if len(data) < 8:
        raise Refused("the file is too short to be a proof")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(LONGEST_HEADER, len(data) - 8):
        raise Refused("the file's header is longer than the file, or than any proof's")
    try:
        header = json.loads(data[8 : 8 + length])
        claims = json.loads(header.pop("__metadata__")["proof"])
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise Refused(f"the file's header cannot be read: {error!r}") from None
    body, arrays = memoryview(data)[8 + length :], {}
    for name, entry in header.items():
        try:
            kind, shape = TYPES[entry["dtype"]], tuple(int(size) for size in entry["shape"])
            begin, end = (int(offset) for offset in entry["data_offsets"])
            if not 0 <= begin <= end <= len(body) or min(shape, default=1) < 0:
                raise ValueError("it lies outside the file")
            arrays[name] = np.frombuffer(body[begin:end], kind).reshape(shape)
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"array {name!r} cannot be read: {error}") from None
    if not isinstance(claims, dict):
        raise Refused("the claims are no table")
    return arrays, claims


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

    def onward(self, values: np.ndarray) -> np.ndarray:
        """`c + discount P v` for values `[..., R, S]`, as `[..., R, S, A]`."""
        return self.cost + self.discount * (self.probability * values[..., self.successor]).sum(axis=-1)

    def rounding(self, values: np.ndarray) -> np.ndarray:
        """What rounding may hide in one application of the operator."""
        terms = 4 * (self.probability.shape[3] + self.cost.shape[2] + 8) + len(self.start)
        return EPSILON * terms * (np.abs(values).max(axis=-1) + np.abs(self.cost).max(axis=(1, 2)))


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
    if start.shape != (states,) or share.shape != (len(cost),) or arrays["policy"].shape != (states, actions):
        raise Refused("start, shares or policy do not fit the models")
    if successor.dtype.kind != "i" or successor.min(initial=0) < 0 or successor.max(initial=0) >= states:
        raise Refused("a successor is no state")
    for name, rows in (("probability", probability), ("start", start), ("share", share), ("policy", arrays["policy"])):
        if np.any(rows < 0) or np.any(np.abs(rows.sum(axis=-1) - 1.0) > 1e-9):
            raise Refused(f"{name!r} is not made of distributions")
    discount = _number(claims, "discount")
    if not 0.0 <= discount < 1.0:
        raise Refused(f"the discount {discount!r} is not in [0, 1)")
    deterministic = claims.get("deterministic")
    if not isinstance(deterministic, bool):
        raise Refused("it is not said whether only deterministic policies count")
    if deterministic and not np.isin(arrays["policy"], (0.0, 1.0)).all():
        raise Refused("the policy is not deterministic, and the proof is about such")
    return Models(successor, probability, cost, start, share, discount, deterministic)


def _leaves(arrays: dict[str, np.ndarray], claims: dict[str, Any], models: Models) -> tuple[np.ndarray, np.ndarray]:
    """The boxes of all leaves, each node cut once and reached once: so they cover all policies."""
    child, state, action, at = (arrays[name] for name in ("child", "state", "action", "at"))
    count, (states, actions) = len(child), models.cost.shape[1:]
    if not (child.shape == state.shape == action.shape == at.shape == (count,) and count):
        raise Refused("the columns of the tree are not of one length")
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
    leaf = np.flatnonzero(~inner)
    if arrays["values"].shape != (len(leaf), len(models.share), states):
        raise Refused("there are not values of every state for every leaf and model")
    parent = np.full(count, -1)
    parent[first] = parent[first + 1] = np.flatnonzero(inner)
    low, high = np.zeros((len(leaf), states, actions)), np.ones((len(leaf), states, actions))
    for row, node in enumerate(leaf.tolist()):
        while (above := int(parent[node])) >= 0:
            place = (row, int(state[above]), int(action[above]))
            cut = float(at[above])
            if node == child[above]:
                high[place] = min(high[place], 0.0 if models.deterministic else cut)
            else:
                low[place] = max(low[place], 1.0 if models.deterministic else cut)
            node = above
    return low, high


def _bound(
    arrays: dict[str, np.ndarray], claims: dict[str, Any], models: Models, low: np.ndarray, high: np.ndarray
) -> float:
    """The least over all boxes of the risk of their models' bounds; an empty box bounds nothing."""
    least = np.inf
    for first in range(0, len(low), BLOCK):
        rows = slice(first, first + BLOCK)
        values = arrays["values"][rows].astype(np.float64)
        quality = models.onward(values)
        room = high[rows] - low[rows]
        order = np.argsort(quality, axis=-1)
        sizes = np.take_along_axis(np.broadcast_to(room[:, None], quality.shape), order, axis=-1)
        before = np.cumsum(sizes, axis=-1) - sizes
        left = 1.0 - low[rows].sum(axis=-1)
        filled = np.clip(left[:, None, :, None] - before, 0.0, sizes)
        costs = (filled * np.take_along_axis(quality, order, axis=-1)).sum(axis=-1)
        costs += (low[rows][:, None] * quality).sum(axis=-1)
        residual = np.minimum((costs - values).min(axis=-1) - models.rounding(values), 0.0)
        bounds = values @ models.start + residual / (1.0 - models.discount)
        empty = np.any((left < -1e-12) | (high[rows].sum(axis=-1) < 1.0 - 1e-12), axis=-1)
        for box, nothing in zip(bounds, empty, strict=True):
            if not nothing:
                least = min(least, _measure(box, models.share, claims))
    return float(least)


def _risk(policy: np.ndarray, claims: dict[str, Any], models: Models) -> float:
    states = len(models.start)
    losses = []
    for probability, cost in zip(models.probability, models.cost, strict=True):
        chain = np.zeros((states, states))
        np.add.at(chain, (np.arange(states)[:, None, None], models.successor), policy[:, :, None] * probability)
        values = np.linalg.solve(np.eye(states) - models.discount * chain, (policy * cost).sum(axis=1))
        losses.append(models.start @ values)
    return _measure(np.array(losses), models.share, claims)


def _measure(losses: np.ndarray, share: np.ndarray, claims: dict[str, Any]) -> float:
    """The risk, a mixture of means of tails: `[[weight, level], ...]`, level 0 being the mean."""
    parts = claims.get("risk_parts")
    if not isinstance(parts, list) or not parts:
        raise Refused("the file does not say the risk as a mixture of CVaR, which is all that is known here")
    total, weights = 0.0, 0.0
    for part in parts:
        try:
            weight, level = (float(number) for number in part)
        except (TypeError, ValueError):
            raise Refused(f"{part!r} is no weight and level of a tail") from None
        if not (0.0 <= weight <= 1.0 and 0.0 <= level < 1.0):
            raise Refused(f"{part!r} is no weight and level of a tail")
        order = np.argsort(-losses, kind="stable")
        before = np.cumsum(share[order]) - share[order]
        taken = np.clip((1.0 - level) - before, 0.0, share[order])
        total, weights = total + weight * float(taken @ losses[order]) / (1.0 - level), weights + weight
    if abs(weights - 1.0) > 1e-9:
        raise Refused("the weights of the tails do not sum to 1")
    return total


def _number(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise Refused(f"the file claims no number as {name!r}")
    return float(value)
