"""A check any loss can be put through before it is trusted with a policy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..arrays import in_float64, require_kind, require_size
from ..conformance import Conformance, Finding, held_to
from ..engine import ModelBatch
from ..errors import InputError
from ..models import MDP
from ..occupancies import occupancy
from ..records import tree_leaves, tree_map
from ..seeds import Seed, generator
from .base import ConvexLoss, Loss, as_loss, batch_of, require_scalar

CONVEXITY = 1e-9
GRADIENT = 1e-5
IMAGE = 1e-9
DUAL = 1e-5
# A difference's length, relative to the occupancy: rounding costs 1e-10 of the loss.
LENGTH = 1e-6
ASCENTS = 60


@in_float64
def check_loss(loss: Loss, mdp: MDP, *, samples: int = 16, seed: Seed = 0) -> Conformance:
    """Hold a loss to what the library relies on, at the occupancies of random policies of one model.

    The loss has to be one finite real number with a finite gradient, convex on random segments, and its
    gradient has to lie between the differences on either side, as a convex function's does, kinks included. A
    `ConvexLoss` also has to have an image linear in the occupancy and a dual ascent that ends at the gradient.

    >>> import prudent as pr
    >>> mdp = pr.envs.frozen_lake().at((0.3, 0.02))
    >>> print(pr.check_loss(pr.ExpectedCost(), mdp).subject)
    ExpectedCost
    >>> pr.check_loss(lambda occupancy, mdp: -(occupancy**2).sum(), mdp)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    prudent.errors.InputError: the loss is not convex: ...

    Args:
        loss: `(occupancy, mdp) -> scalar`, or a `ConvexLoss`.
        mdp: the model.
        samples: pairs of random policies.
        seed: whole number.

    Returns:
        The worst violation of each law, all of them within the tolerances.

    Raises:
        InputError: naming the first law that fails, where, and what to do about it.
    """
    require_kind("mdp", mdp, MDP, "an MDP, such as family.at(theta)")
    random = generator(seed)
    visits = _visits(mdp, 2 * require_size("samples", samples), random)
    require_scalar(loss, visits[0], mdp)
    _require_finite(visits, *_values_and_slopes(loss, visits, mdp))
    findings = [_convexity(loss, mdp, visits, random), _gradients(loss, mdp, visits, random)]
    if isinstance(loss, ConvexLoss):
        findings += [_linearity(loss, mdp, visits), _dual(loss, mdp, visits)]
    return Conformance(getattr(loss, "__name__", type(loss).__name__), tuple(findings))


def _visits(mdp: MDP, count: int, random: np.random.Generator) -> np.ndarray:
    """`[count, S, A]` exact occupancies: policies spread over the simplex, and nearly deterministic ones."""
    states, actions = mdp.cost.shape
    spread = np.where(np.arange(count) % 2, 0.1, 1.0)
    # Gamma variates can underflow; a tiny share of the uniform policy keeps every row a distribution.
    weights = random.gamma(spread[:, None, None], size=(count, states, actions)) + 1e-12
    policies = weights / weights.sum(axis=2, keepdims=True)
    return np.stack([occupancy(mdp, policy) for policy in policies])


def _copies(mdp: MDP, count: int) -> ModelBatch:
    """Return a batch of so many copies of a model."""
    return batch_of(mdp).select(np.zeros(count, int))


def _values_and_slopes(loss: Loss, occupancies: Float[np.ndarray, "N S A"], mdp: MDP) -> tuple[np.ndarray, np.ndarray]:
    last, models = np.moveaxis(occupancies, 0, -1), _copies(mdp, len(occupancies))
    values, slopes = as_loss(loss).value_and_gradient(last, models)
    return np.asarray(values), np.moveaxis(np.asarray(slopes), -1, 0)


def _values(loss: Loss, occupancies: Float[np.ndarray, "K N S A"], mdp: MDP) -> Float[np.ndarray, "K N"]:
    flat = np.moveaxis(occupancies.reshape(-1, *occupancies.shape[-2:]), 0, -1)
    return np.asarray(as_loss(loss).value(flat, _copies(mdp, flat.shape[-1]))).reshape(occupancies.shape[:-2])


def _require_finite(visits: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
    for n in np.flatnonzero(~np.isfinite(values))[:1]:
        s, a = np.unravel_index(visits[n].argmin(), visits[n].shape)
        raise InputError(
            f"the loss is {values[n]} at the occupancy of a random policy, whose least entry is {visits[n, s, a]:.3g} "
            f"(state {s}, action {a}); keep its logarithms and ratios off zero"
        )
    for n, s, a in np.argwhere(~np.isfinite(slopes))[:1]:
        raise InputError(
            f"the gradient of the loss is {slopes[n, s, a]} at state {s}, action {a}, where a random policy has "
            f"occupancy {visits[n, s, a]:.3g}; keep its logarithms and roots off zero"
        )


def _convexity(loss: Loss, mdp: MDP, visits: np.ndarray, random: np.random.Generator) -> Finding:
    """`F((1 - t) a + t b) <= (1 - t) F(a) + t F(b)`, on long and short pieces of segments."""
    first, second = visits[::2], visits[1::2]
    count = len(first)
    length = 10.0 ** random.uniform(-2.0, 0.0, size=(count, 1, 1))
    second = first + np.where(random.random((count, 1, 1)) < 0.5, 1.0, length) * (second - first)
    position = random.uniform(0.1, 0.9, size=count)
    share = position[:, None, None]
    between = (1.0 - share) * first + share * second
    start, end, middle = _values(loss, np.stack([first, second, between]), mdp)
    chord = (1.0 - position) * start + position * end
    violation = (middle - chord) / (np.abs(np.stack([start, end, middle])).max(axis=0) + 1e-300)

    def refusal(worst: int) -> str:
        s, a = np.unravel_index(np.abs(second[worst] - first[worst]).argmax(), first[worst].shape)
        return (
            f"the loss is not convex: between the occupancies of two random policies (at state {s}, action {a} "
            f"{first[worst, s, a]:.4g} and {second[worst, s, a]:.4g}) it is {start[worst]:.9g} and "
            f"{end[worst]:.9g} at the ends, and "
            f"{middle[worst]:.9g} at {position[worst]:.3f} of the way, above the chord's {chord[worst]:.9g}; "
            "losses are costs to minimise and convex in the occupancy"
        )

    return held_to("convex on segments", violation, CONVEXITY, refusal)


def _gradients(loss: Loss, mdp: MDP, visits: np.ndarray, random: np.random.Generator) -> Finding:
    """The slope along a random direction lies between the one-sided differences."""
    at = _interior(visits)
    values, slopes = _values_and_slopes(loss, at, mdp)
    # Entries that are (nearly) zero are moved by half of themselves at most.
    reach = np.minimum(at + at.mean(axis=(1, 2), keepdims=True), at / (2.0 * LENGTH))
    move = random.uniform(-1.0, 1.0, size=at.shape) * reach
    ahead, behind = _values(loss, np.stack([at + LENGTH * move, at - LENGTH * move]), mdp)
    right, left = (ahead - values) / LENGTH, (values - behind) / LENGTH
    along = (slopes * move).sum(axis=(1, 2))
    scale = np.maximum(np.maximum(np.abs(right), np.abs(left)), np.abs(slopes * move).sum(axis=(1, 2)))
    violation = np.maximum(left - along, along - right) / (scale + 1e-4 * np.abs(values) + 1e-300)

    def refusal(worst: int) -> str:
        return (
            f"the gradient of the loss is wrong: along a random direction automatic differentiation says "
            f"{along[worst]:.9g}, differences say {left[worst]:.9g} to {right[worst]:.9g}; look for a custom "
            "derivative, stop_gradient, or a branch that hides the occupancy"
        )

    return held_to("gradient between differences", violation, GRADIENT, refusal)


def _interior(visits: np.ndarray) -> np.ndarray:
    return 0.9 * visits + 0.1 * visits.mean(axis=0)


def _linearity(loss: ConvexLoss, mdp: MDP, visits: np.ndarray) -> Finding:
    first, second = (np.moveaxis(part, 0, -1) for part in (visits[::2], visits[1::2]))
    models = _copies(mdp, first.shape[-1])
    parts = [loss.image(part, models) for part in (first, second, 2.0 * first - 3.0 * second)]

    def off(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        return float(np.abs(2.0 * a - 3.0 * b - c).max() / (np.abs(np.stack([a, b, c])).max() + 1e-300))

    worst = max(tree_leaves(tree_map(off, *parts)), default=0.0)
    refused = (
        f"the image of {type(loss).__name__} is not linear in the occupancy: image(2 a - 3 b) differs from "
        f"2 image(a) - 3 image(b) by {worst:.3g} of its size; leave constants and curvature to the loss"
    )
    return held_to("image linear", np.array([worst]), IMAGE, lambda _: refused)


def _ascended(loss: ConvexLoss, occupancies: Float[np.ndarray, "N S A"], mdp: MDP) -> Float[np.ndarray, "N S A"]:
    """The cost tables the dual ascent ends at, for each occupancy."""
    last, models = np.moveaxis(occupancies, 0, -1), _copies(mdp, len(occupancies))
    image, dual = loss.image(last, models), loss.begin(models)
    for _ in range(ASCENTS):
        dual = loss.ascend(dual, image, models)
    return np.moveaxis(np.broadcast_to(loss.cost_of(dual.point, models), last.shape), -1, 0)


def _dual(loss: ConvexLoss, mdp: MDP, visits: np.ndarray) -> Finding:
    """`linear + image^T z = dF/dlambda` at the z the ascent ends at."""
    at = _interior(visits)
    slopes, reached = _values_and_slopes(loss, at, mdp)[1], _ascended(loss, at, mdp)
    off = np.abs(reached - slopes)

    def refusal(_: int) -> str:
        n, s, a = np.unravel_index(np.nan_to_num(off, nan=np.inf).argmax(), off.shape)
        return (
            f"the dual ascent of {type(loss).__name__} does not end at the gradient: after {ASCENTS} steps linear + "
            f"image^T z is {reached[n, s, a]:.9g} at state {s}, action {a}, the gradient is {slopes[n, s, a]:.9g}; "
            "look at image, begin, ascend and cost_of"
        )

    shares = off.max(axis=(1, 2)) / (np.abs(slopes).max(axis=(1, 2)) + 1e-300)
    return held_to("dual ascent ends at the gradient", shares, DUAL, refusal)
