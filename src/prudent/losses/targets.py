"""Losses of the normalised occupancy `(1 - discount) lambda`: imitation, exploration, distance to a target.

Imitation is measured by f-divergences `D_f(p || q) = sum q f(p / q)`, given by their generators f and the conjugates of
these. Some generators, or their slopes, are infinite at 0. Below a small ratio, the `floor`, such a generator goes on
as its tangent line: it stays convex and continuously differentiable, and a policy that never visits a state
has a finite loss and a finite gradient. The conjugate then is the generator's own, from the slope at the floor
upwards, and infinite below.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, in_float64, namespace_of, place_of, require_finite, require_kind, require_number
from ..engine import ModelBatch
from ..errors import InputError
from ..models import MDP
from ..records import AbstractVar, Record, field
from .base import ConvexLoss, Dual, Scalar


class Conjugate(NamedTuple):
    """`f*(z)` and its derivatives, elementwise."""

    value: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


class Divergence(Record):
    """An f-divergence, by its generator: strictly convex on the positive ratios, with `f(1) = 0`."""

    def lowest(self) -> float:
        """The ratio below which the generator goes on as its tangent; -inf where it needs none."""
        return -math.inf

    @abc.abstractmethod
    def generator(self, ratio: Array) -> Any:
        """f, elementwise."""

    @abc.abstractmethod
    def slope(self, ratio: Array) -> Any:
        """f', elementwise."""

    @abc.abstractmethod
    def conjugate(self, point: np.ndarray) -> Conjugate:
        """Return `f*(z) = sup_x z x - f(x)` with its first two derivatives, elementwise, for z inside the domain."""

    def domain(self) -> tuple[float, float]:
        """The open interval on which the conjugate is finite; the line unless said otherwise."""
        return -math.inf, math.inf

    def start(self) -> Any:
        """A z inside the domain: the slope `f'(1)`."""
        return self.slope(np.ones(()))

    @in_float64
    def between(self, values: Array, target: Array) -> Any:
        """`sum q f(p / q)`, with the tangent below the floor."""
        return (target * self.values_and_slopes(values / target)[0]).sum()

    def values_and_slopes(self, ratio: Array) -> tuple[Any, Any]:
        """Return f and its slope, elementwise, with the tangent below the floor."""
        at = namespace_of(ratio).maximum(ratio, self.lowest())
        slope = self.slope(at)
        return self.generator(at) + slope * (ratio - at), slope

    def ascend(self, point: np.ndarray, values: np.ndarray, target: Any) -> np.ndarray:
        """Return z after one step up on `<z, p> - sum q f*(z)`, each element for itself."""
        # Below the floor the maximiser is the end of the conjugate's domain: the one at the floor.
        from .ascent import newton_step

        ratio = np.maximum(values / target, self.lowest())
        return newton_step(point, ratio, self.conjugate, self.domain())


class Floored(Divergence):
    """A generator whose slope is infinite at 0, so that it goes on as its tangent below a small ratio, the floor."""

    floor: AbstractVar[float]

    def __check_init__(self) -> None:
        require_number(f"the floor of {type(self).__name__}", self.floor, "(0, 1)")

    def lowest(self) -> float:
        """The floor."""
        return self.floor


class KullbackLeibler(Floored):
    """`KL(p || q) = sum p log(p / q)`, the divergence of the paper's experiment; `f(x) = x log x`.

    The slope at the floor of 1e-12 is -27.

    >>> import numpy as np, prudent as pr
    >>> float(pr.KullbackLeibler().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.1438
    """

    floor: float = field(static=True, default=1e-12)

    def generator(self, ratio: Array) -> Any:
        """`x log x`."""
        return ratio * namespace_of(ratio).log(ratio)

    def slope(self, ratio: Array) -> Any:
        """`log x + 1`."""
        return namespace_of(ratio).log(ratio) + 1.0

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`exp(z - 1)`."""
        return Conjugate(*(np.exp(point - 1.0),) * 3)


class ReverseKullbackLeibler(Floored):
    """`KL(q || p) = sum q log(q / p)`, which dwells on what the target visits; `f(x) = -log x`.

    The slope at the floor of 1e-4 is -10 000: a lower floor tells a state missed from one hardly visited,
    at the price of larger gradients.

    >>> import numpy as np, prudent as pr
    >>> float(pr.ReverseKullbackLeibler().between(np.array([0.25, 0.75]), np.array([0.5, 0.5])).round(4))
    0.1438
    """

    floor: float = field(static=True, default=1e-4)

    def generator(self, ratio: Array) -> Any:
        """`-log x`."""
        return -namespace_of(ratio).log(ratio)

    def slope(self, ratio: Array) -> Any:
        """`-1 / x`."""
        return -1.0 / ratio

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`-1 - log(-z)`."""
        return Conjugate(-1.0 - np.log(-point), -1.0 / point, 1.0 / point**2)

    def domain(self) -> tuple[float, float]:
        """The negative numbers."""
        return -math.inf, 0.0


class ChiSquare(Divergence):
    """`sum (p - q)^2 / q`; `f(x) = (x - 1)^2`, finite everywhere.

    >>> import numpy as np, prudent as pr
    >>> float(pr.ChiSquare().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.3333
    """

    def generator(self, ratio: Array) -> Any:
        """`(x - 1)^2`."""
        return (ratio - 1.0) ** 2

    def slope(self, ratio: Array) -> Any:
        """`2 (x - 1)`."""
        return 2.0 * (ratio - 1.0)

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`z + z^2 / 4`."""
        return Conjugate(point + point**2 / 4.0, 1.0 + point / 2.0, np.full_like(point, 0.5))


class TotalVariation(Divergence):
    """Half the sum of `|p - q|`, its kinks rounded; `f(x) = (sqrt((x - 1)^2 + e^2) - e) / 2`.

    At most `e / 2` below the total variation.

    >>> import numpy as np, prudent as pr
    >>> float(pr.TotalVariation(smoothing=1e-6).between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.25

    Args:
        smoothing: e > 0.
    """

    smoothing: float = field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        require_number("smoothing", self.smoothing, "(0, inf)", "1e-3 is usual")

    def generator(self, ratio: Array) -> Any:
        """`(sqrt((x - 1)^2 + e^2) - e) / 2`."""
        root = namespace_of(ratio).sqrt((ratio - 1.0) ** 2 + self.smoothing**2)
        return (root - self.smoothing) / 2.0

    def slope(self, ratio: Array) -> Any:
        """`(x - 1) / (2 sqrt((x - 1)^2 + e^2))`."""
        return (ratio - 1.0) / (2.0 * namespace_of(ratio).sqrt((ratio - 1.0) ** 2 + self.smoothing**2))

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`z + (e / 2) (1 - sqrt(1 - 4 z^2))`."""
        root = np.sqrt((1.0 - 2.0 * point) * (1.0 + 2.0 * point))
        value = point + self.smoothing / 2.0 * (1.0 - root)
        return Conjugate(value, 1.0 + 2.0 * self.smoothing * point / root, 2.0 * self.smoothing / root**3)

    def domain(self) -> tuple[float, float]:
        """Between the slopes of the total variation."""
        return -0.5, 0.5


class JensenShannon(Floored):
    """The mean of `KL(p || m)` and `KL(q || m)`, `m = (p + q) / 2`; at most log 2.

    `f(x) = (x log x - (x + 1) log((x + 1) / 2)) / 2`; the slope at the floor of 1e-12 is -13.

    >>> import numpy as np, prudent as pr
    >>> float(pr.JensenShannon().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.0338
    """

    floor: float = field(static=True, default=1e-12)

    def generator(self, ratio: Array) -> Any:
        """`(x log x - (x + 1) log((x + 1) / 2)) / 2`."""
        xp = namespace_of(ratio)
        return (ratio * xp.log(ratio) - (ratio + 1.0) * xp.log((ratio + 1.0) / 2.0)) / 2.0

    def slope(self, ratio: Array) -> Any:
        """`log(2 x / (x + 1)) / 2`."""
        return namespace_of(ratio).log(2.0 * ratio / (ratio + 1.0)) / 2.0

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`-log(2 - exp(2 z)) / 2`."""
        raised = np.exp(2.0 * point)
        rest = 2.0 - raised
        return Conjugate(-np.log(rest) / 2.0, raised / rest, 4.0 * raised / rest**2)

    def domain(self) -> tuple[float, float]:
        """Below `log(2) / 2`."""
        return -math.inf, math.log(2.0) / 2.0


class Hellinger(Floored):
    """The squared Hellinger distance, `sum (sqrt p - sqrt q)^2 / 2`; `f(x) = (sqrt x - 1)^2 / 2`.

    The slope at the floor of 1e-6 is -500.

    >>> import numpy as np, prudent as pr
    >>> float(pr.Hellinger().between(np.array([0.5, 0.5]), np.array([0.25, 0.75])).round(4))
    0.0341
    """

    floor: float = field(static=True, default=1e-6)

    def generator(self, ratio: Array) -> Any:
        """`(sqrt x - 1)^2 / 2`."""
        return (namespace_of(ratio).sqrt(ratio) - 1.0) ** 2 / 2.0

    def slope(self, ratio: Array) -> Any:
        """`(1 - 1 / sqrt x) / 2`."""
        return (1.0 - 1.0 / namespace_of(ratio).sqrt(ratio)) / 2.0

    def conjugate(self, point: np.ndarray) -> Conjugate:
        """`z / (1 - 2 z)`."""
        rest = 1.0 - 2.0 * point
        return Conjugate(point / rest, 1.0 / rest**2, 4.0 / rest**3)

    def domain(self) -> tuple[float, float]:
        """Below 1/2."""
        return -math.inf, 0.5


def visit_distribution(occupancy: Any, mdp: MDP | ModelBatch, over_states: bool) -> Any:
    """`(1 - discount) lambda` of `lambda [S, A, ...]`, a distribution over pairs, or over states."""
    visits = occupancy.sum(axis=1) if over_states else occupancy
    return (1.0 - mdp.discount) * visits


def _total(values: Float[np.ndarray, "*place N"]) -> Float[np.ndarray, " N"]:
    """The sum over all places of each model."""
    return values.sum(axis=tuple(range(values.ndim - 1)))


def _along_pairs(slope: Float[np.ndarray, "*place N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
    """Return the derivative by the occupancy of what has this slope by the distribution of visits."""
    rows = slope[:, None] if slope.ndim == 2 else slope
    return np.broadcast_to((1.0 - models.discount) * rows, (*models.cost.shape[:2], slope.shape[-1]))


def _target(values: Any) -> Any:
    target = as_float(values, "target")
    if target.ndim not in (1, 2):
        raise InputError(f"target must be indexed [state] or [state, action], got shape {target.shape}")
    return target


class _Targeted(ConvexLoss):
    """A loss of the distance to a target over states `[S]` or pairs `[S, A]`."""

    target: AbstractVar[Float[Array, ...]]

    def visits(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Float[Array, ...]:
        """Return the normalised occupancy of one model, over states or pairs as the target is."""
        self._check_shape(*mdp.cost.shape)
        return visit_distribution(occupancy, mdp, over_states=self.target.ndim == 1)

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "*place N"]:
        """The normalised occupancy, over states or pairs as the target is."""
        self._check_shape(*models.cost.shape[:2])
        return visit_distribution(occupancy, models, over_states=self.target.ndim == 1)

    def cost_of(self, point: Float[np.ndarray, "*place N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """`(1 - discount) z`."""
        return _along_pairs(point, models)

    def _check_shape(self, states: int, actions: int) -> None:
        if self.target.shape not in ((states,), (states, actions)):
            raise InputError(
                f"target has shape {self.target.shape}, the model has {states} states and {actions} actions; give "
                f"({states},) for a target over states or ({states}, {actions}) for one over state-action pairs"
            )


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
        if isinstance(self.target, np.ndarray):
            self.target = _lifted(np.asarray(self.target), floor)

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return self.divergence.between(self.visits(occupancy, mdp), self.target)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return `D_f(x || q)` and `(1 - discount) f'(x / q)` of each model, x the distribution of visits."""
        target = self.target[..., None]
        values, slopes = self.divergence.values_and_slopes(self.image(occupancy, models) / target)
        return _total(target * values), _along_pairs(slopes, models)

    def begin(self, models: ModelBatch) -> Dual:
        """The slope where the occupancy is the target."""
        return Dual(np.full((*self.target.shape, models.size), self.divergence.start()), None)

    def ascend(self, dual: Dual, image: Float[np.ndarray, "*place N"], models: ModelBatch) -> Dual:
        """A damped Newton step for each element."""
        return Dual(self.divergence.ascend(dual.point, image, self.target[..., None]), dual.primal)


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

    over_states: bool = field(static=True, default=False)

    def __check_init__(self) -> None:
        require_kind("over_states", self.over_states, bool, "True or False")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return KullbackLeibler().between(visit_distribution(occupancy, mdp, self.over_states), np.ones(()))

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return `sum x log x` and `(1 - discount) (log x + 1)` of each model, x the distribution of visits."""
        values, slopes = KullbackLeibler().values_and_slopes(self.image(occupancy, models))
        return _total(values), _along_pairs(slopes, models)

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "*place N"]:
        """The normalised occupancy, over states or pairs."""
        return visit_distribution(occupancy, models, self.over_states)

    def begin(self, models: ModelBatch) -> Dual:
        """The slope at the uniform distribution."""
        shape = models.cost.shape[:1] if self.over_states else models.cost.shape[:2]
        return Dual(np.full((*shape, models.size), 1.0 - np.log(np.prod(shape))), None)

    def ascend(self, dual: Dual, image: Float[np.ndarray, "*place N"], models: ModelBatch) -> Dual:
        """A damped Newton step for each element."""
        return Dual(KullbackLeibler().ascend(dual.point, image, 1.0), dual.primal)

    def cost_of(self, point: Float[np.ndarray, "*place N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """`(1 - discount) z`."""
        return _along_pairs(point, models)


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
        if isinstance(self.target, np.ndarray):
            require_finite("target", np.asarray(self.target))
        self.weight = require_number("weight", weight, "(0, inf)")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        return self.weight / 2.0 * ((self.visits(occupancy, mdp) - self.target) ** 2).sum()

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return `(weight / 2) ||x - target||^2` and `(1 - discount) weight (x - target)` of each model."""
        away: Any = self.image(occupancy, models) - self.target[..., None]
        weight = float(self.weight)
        return weight / 2.0 * _total(away**2), _along_pairs(weight * away, models)

    def begin(self, models: ModelBatch) -> Dual:
        """The slope at the target."""
        return Dual(np.zeros((*self.target.shape, models.size)), None)

    def ascend(self, dual: Dual, image: Float[np.ndarray, "*place N"], models: ModelBatch) -> Dual:
        """Newton's step, which is exact: `f*(z) = <z, target> + ||z||^2 / (2 weight)`."""
        away = image - self.target[..., None] - dual.point / self.weight
        return Dual(dual.point + self.weight * away, dual.primal)
