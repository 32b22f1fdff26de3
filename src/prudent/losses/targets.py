"""Losses of the normalised occupancy `(1 - discount) lambda`: imitation, exploration, distance to a target."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, in_float64, is_concrete, place_of, require_finite, require_kind, require_number
from ..errors import InputError
from ..models import MDP
from .base import ConvexLoss, Dual, Scalar
from .divergences import Divergence, KullbackLeibler


def visit_distribution(occupancy: Float[Array, "S A"], mdp: MDP, over_states: bool) -> Array:
    """`(1 - discount) lambda`, a distribution over pairs, or over states when summed over the actions."""
    visits = occupancy.sum(axis=1) if over_states else occupancy
    return (1.0 - mdp.discount) * visits


def _target(values: Any) -> Any:
    target = as_float(values, "target")
    if target.ndim not in (1, 2):
        raise InputError(f"target must be indexed [state] or [state, action], got shape {target.shape}")
    return target


class _Targeted(ConvexLoss):
    """A loss of the distance to a target over states `[S]` or pairs `[S, A]`."""

    target: eqx.AbstractVar[Float[Array, ...]]

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, ...]:
        """The normalised occupancy, over states or pairs as the target is."""
        states, actions = mdp.cost.shape
        if self.target.shape not in ((states,), (states, actions)):
            raise InputError(
                f"target has shape {self.target.shape}, the model has {states} states and {actions} actions; give "
                f"({states},) for a target over states or ({states}, {actions}) for one over state-action pairs"
            )
        return visit_distribution(occupancy, mdp, over_states=self.target.ndim == 1)


class Imitation(_Targeted):
    """Divergence from an expert's distribution q, `F = D_f((1 - discount) lambda || q)`.

    A target `[S]` is compared with the distribution of states (the paper's `KL(. || J)`), a target `[S, A]`
    with that of state-action pairs. What the expert never does would cost an infinite amount: **entries of
    the target below `floor` are lifted to it and the target is then divided by its sum**. With `floor=0`
    the target is taken as it is and has to be positive throughout.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 2, 2), 0.5)), cost=np.zeros((2, 2)), start=[0.5, 0.5], discount=0.9)
    >>> expert = [0.25, 0.75]  # over states; this model's are visited half the time each, whatever is done
    >>> float(pr.Imitation(expert)(pr.occupancy(mdp, np.full((2, 2), 0.5)), mdp).round(4))
    0.1438
    >>> pr.Imitation([1.0, 0.0], floor=0.2).target.round(3).tolist()
    [0.833, 0.167]

    Args:
        target: `[S]` or `[S, A]` probabilities summing to 1.
        divergence: `KullbackLeibler()` (default) or another `Divergence`.
        floor: the least probability of the target.
    """

    target: Float[Array, ...]
    divergence: Divergence

    def __init__(self, target: Any, divergence: Divergence | None = None, floor: float = 1e-6):
        self.divergence = KullbackLeibler() if divergence is None else divergence
        require_kind("divergence", self.divergence, Divergence, "a Divergence, such as KullbackLeibler()")
        self.target = _target(target)
        if is_concrete(self.target):
            self.target = _lifted(np.asarray(self.target), floor)

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return self.divergence.between(self.image(occupancy, mdp), self.target)

    def begin(self, mdp: MDP) -> Dual:
        """The slope where the occupancy is the target."""
        return Dual(jnp.full(self.target.shape, self.divergence.start()), None)

    def ascend(self, dual: Dual, image: Float[Array, ...], mdp: MDP) -> Dual:
        """A damped Newton step for each element."""
        return Dual(self.divergence.ascend(dual.point, image, self.target), dual.primal)


def _lifted(target: np.ndarray, floor: float) -> np.ndarray:
    """The target with no entry below the floor, after the checks that it is a distribution."""
    if not isinstance(floor, int | float | np.floating) or not 0.0 <= floor < 1.0 / target.size:
        raise InputError(f"floor must be a number in [0, 1/{target.size}) for this target, got {floor!r}")
    require_finite("target", target)
    names = ("state", "action")
    for where in np.argwhere(target < 0)[:1]:
        raise InputError(f"target has a negative probability {target[tuple(where)]} at {place_of(names, where)}")
    total = target.sum()
    if abs(total - 1.0) > 1e-8:
        raise InputError(
            f"target must sum to 1 within 1e-8, it sums to {total:.9g}; multiply an occupancy by 1 - discount, "
            "divide counts by their sum"
        )
    for where in np.argwhere(target == 0)[: floor == 0.0]:
        raise InputError(f"target is zero at {place_of(names, where)}; give a floor, such as floor=1e-6, to lift it")
    lifted = np.maximum(target, floor)
    return lifted / lifted.sum()


class NegativeEntropy(ConvexLoss):
    """Exploration: `F = sum x log x` of the normalised occupancy x, over pairs or over states.

    Below x = 1e-12 the function goes on as its tangent, of slope -27, as in `KullbackLeibler`.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense(np.full((2, 2, 2), 0.5)), cost=np.zeros((2, 2)), start=[0.5, 0.5], discount=0.9)
    >>> uniform = pr.occupancy(mdp, np.full((2, 2), 0.5))
    >>> [float(loss(uniform, mdp).round(4)) for loss in (pr.NegativeEntropy(), pr.NegativeEntropy(over_states=True))]
    [-1.3863, -0.6931]

    Args:
        over_states: whether the occupancy is summed over the actions first.
    """

    over_states: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        require_kind("over_states", self.over_states, bool, "True or False")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        visits = self.image(occupancy, mdp)
        return KullbackLeibler().between(visits, jnp.ones_like(visits))

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, ...]:
        """The normalised occupancy, over states or pairs."""
        return visit_distribution(occupancy, mdp, self.over_states)

    def begin(self, mdp: MDP) -> Dual:
        """The slope at the uniform distribution."""
        shape = mdp.cost.shape[:1] if self.over_states else mdp.cost.shape
        return Dual(jnp.full(shape, 1.0 - np.log(np.prod(shape))), None)

    def ascend(self, dual: Dual, image: Float[Array, ...], mdp: MDP) -> Dual:
        """A damped Newton step for each element."""
        return Dual(KullbackLeibler().ascend(dual.point, image, jnp.ones_like(image)), dual.primal)


class QuadraticDistance(_Targeted):
    """`F = (weight / 2) ||x - target||^2` of the normalised occupancy x, over states or pairs as the target is.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> float(pr.QuadraticDistance([0.5], weight=4.0)(pr.occupancy(mdp, [[1.0]]), mdp))
    0.5

    Args:
        target: `[S]` or `[S, A]`, any finite numbers.
        weight: > 0.
    """

    target: Float[Array, ...]
    weight: Float[Array, ""]

    def __init__(self, target: Any, weight: Any = 1.0):
        self.target = _target(target)
        if is_concrete(self.target):
            require_finite("target", np.asarray(self.target))
        self.weight = require_number("weight", weight, "(0, inf)")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return self.weight / 2.0 * ((self.image(occupancy, mdp) - self.target) ** 2).sum()

    def begin(self, mdp: MDP) -> Dual:
        """The slope at the target."""
        return Dual(jnp.zeros(self.target.shape), None)

    def ascend(self, dual: Dual, image: Float[Array, ...], mdp: MDP) -> Dual:
        """Newton's step, which is exact: `f*(z) = <z, target> + ||z||^2 / (2 weight)`."""
        return Dual(dual.point + self.weight * (image - self.target - dual.point / self.weight), dual.primal)
