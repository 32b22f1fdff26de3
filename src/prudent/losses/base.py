"""What a loss is: any function of the occupancy, or a `ConvexLoss` that knows its conjugate.

Lemma 3.2 of the paper asks for the maximiser of `<z, lambda> - F*(z)`. In general that is a search in the
space of all state-action pairs; a `ConvexLoss` says which part of it is linear, needing no search, and in
which smaller space the rest lives:

    F(lambda) = <lambda, linear> + f(image lambda)        image linear in the occupancy

so that the search is for a point z of that space, on `<z, y> - f*(z)` with `y = image lambda`, and the cost
table it stands for is `linear + image^T z`, the gradient of F at the maximiser.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, require_number
from ..conformance import explained
from ..deferred import jax, jitted, jnp
from ..errors import InputError
from ..kernels import Kernel
from ..models import MDP, AbstractFamily
from ..records import Record, tree_map

Loss = Callable[[Any, MDP], Any]
"""`(occupancy [S, A], mdp) -> scalar`, traceable by JAX and convex in the occupancy."""

Scalar = Float[Array, ""] | np.floating


class Dual(NamedTuple):
    """Where the ascent on `<z, y> - f*(z)` has got to.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> pr.ExpectedCost().begin(mdp)
    Dual(point=(), primal=None)

    Attributes:
        point: z, a pytree shaped like the loss's image.
        primal: what the next step needs besides z, such as the maximiser behind a numerical conjugate;
            None where the conjugate is closed.
    """

    point: Any
    primal: Any


class ConvexLoss(Record):
    """A convex loss with its conjugate: `F(lambda) = <lambda, linear> + f(image lambda)`.

    The methods are traceable by JAX and meant for compiled float64 code; only the call is for everyone.
    Losses add up and take non-negative multiples; a plain function may be one of the terms.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = 0.5 * pr.ExpectedCost() + (lambda occupancy, mdp: (occupancy**2).sum())
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp))
    6.0
    """

    # NumPy numbers leave `number * loss` to the loss.
    __array_ufunc__ = None

    @abc.abstractmethod
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        """The loss, one number."""

    def linear(self, mdp: MDP) -> Float[Array, "S A"]:
        """The cost table of the linear part; zeros where there is none, or none that can be told from outside."""
        return jnp.zeros(mdp.cost.shape)

    @abc.abstractmethod
    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        """What the rest depends on, linear in the occupancy: a pytree of arrays, `()` for a linear loss."""

    @abc.abstractmethod
    def begin(self, mdp: MDP) -> Dual:
        """A first z inside the domain of f*."""

    @abc.abstractmethod
    def ascend(self, dual: Dual, image: Any, mdp: MDP) -> Dual:
        """One step up on `<z, y> - f*(z)`, where y is the image."""

    def cost_of(self, dual: Dual, mdp: MDP) -> Float[Array, "S A"]:
        """The cost table a dual point stands for, `linear + image^T z`: the gradient of F at the maximiser."""
        linear = jnp.asarray(self.linear(mdp))
        _, transpose = jax.vjp(lambda occupancy: self.image(occupancy, mdp), jnp.zeros_like(linear))
        return linear + transpose(dual.point)[0]

    def __add__(self, other: Any) -> ConvexLoss:
        if isinstance(other, int | float) and other == 0:  # where sum() begins
            return self
        return Sum((*_terms(self), *_terms(as_convex(other))))

    def __radd__(self, other: Any) -> ConvexLoss:
        return self + other if isinstance(other, int | float) else as_convex(other) + self

    def __mul__(self, multiple: Any) -> ConvexLoss:
        return Scaled(self, multiple)

    __rmul__ = __mul__


def as_convex(loss: Any) -> ConvexLoss:
    """The loss itself, or the user's function wrapped so that its conjugate is worked out numerically.

    >>> import prudent as pr
    >>> type(pr.as_convex(lambda occupancy, mdp: occupancy.max())).__name__
    'Numerical'
    """
    if isinstance(loss, ConvexLoss):
        return loss
    # Only who needs a numerical conjugate meets how it is ascended.
    from .ascent import Numerical

    return Numerical(loss)


def _terms(loss: ConvexLoss) -> tuple[ConvexLoss, ...]:
    return loss.terms if isinstance(loss, Sum) else (loss,)


class Sum(ConvexLoss):
    """A sum of losses; its image is the tuple of theirs, so the ascent is theirs side by side."""

    terms: tuple[ConvexLoss, ...]

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return sum(term(occupancy, mdp) for term in self.terms)

    def linear(self, mdp: MDP) -> Any:
        return sum(term.linear(mdp) for term in self.terms)

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> tuple:
        return tuple(term.image(occupancy, mdp) for term in self.terms)

    def begin(self, mdp: MDP) -> Dual:
        return _side_by_side([term.begin(mdp) for term in self.terms])

    def ascend(self, dual: Dual, image: tuple, mdp: MDP) -> Dual:
        parts = zip(self.terms, dual.point, dual.primal, image, strict=True)
        return _side_by_side([term.ascend(Dual(point, primal), own, mdp) for term, point, primal, own in parts])


def _side_by_side(duals: list[Dual]) -> Dual:
    return Dual(tuple(dual.point for dual in duals), tuple(dual.primal for dual in duals))


class Scaled(ConvexLoss):
    """A non-negative multiple c of a loss: `(c f)*(z) = c f*(z / c)`, so its z is c times the loss's own.

    The loss's own dual rides along as the primal: that spares the division, which c = 0 would not stand.
    """

    loss: ConvexLoss
    multiple: Float[Array, ""]

    def __init__(self, loss: ConvexLoss, multiple: Any):
        self.loss = loss
        self.multiple = require_number("the multiple of a loss", multiple, "[0, inf)", "it would not be convex")

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.multiple * self.loss(occupancy, mdp)

    def linear(self, mdp: MDP) -> Any:
        return self.multiple * self.loss.linear(mdp)

    def image(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.loss.image(occupancy, mdp)

    def begin(self, mdp: MDP) -> Dual:
        return self._times(self.loss.begin(mdp))

    def ascend(self, dual: Dual, image: Any, mdp: MDP) -> Dual:
        return self._times(self.loss.ascend(dual.primal, image, mdp))

    def _times(self, own: Dual) -> Dual:
        return Dual(tree_map(lambda z: self.multiple * z, own.point), own)


def loss_batch(
    loss: Loss, family: AbstractFamily, occupancies: Array, probability: Array, cost: Array, axis: int
) -> Float[Array, " N"]:
    """The loss of each model of a batch whose arrays carry the batch along `axis`."""

    def one(occupancy: Array, probability: Array, cost: Array) -> Array:
        return loss(occupancy, MDP(Kernel(family.support, probability), cost, family.start, family.discount))

    return jax.vmap(one, in_axes=axis)(occupancies, probability, cost)


def require_scalar(loss: Loss, occupancy: np.ndarray, mdp: MDP) -> None:
    """Refuse a loss that does not return one real number."""
    with explained(lambda error: f"the loss could not be evaluated: {error}; it is called as loss(occupancy, mdp)", ()):
        shape = jax.eval_shape(loss, occupancy, mdp)
    if getattr(shape, "shape", None) != ():
        raise InputError(f"the loss must return one number, got {shape}; sum or average it")
    if not jnp.issubdtype(shape.dtype, jnp.floating):
        raise InputError(f"the loss must return a real number, got {shape.dtype}")


def check_loss_at(loss: Loss, occupancy: np.ndarray, mdp: MDP, differentiable: bool = True) -> None:
    """Refuse a loss that is not one finite number, with a finite gradient if asked, at a given occupancy."""
    require_scalar(loss, occupancy, mdp)
    value, slope = (np.asarray(part) for part in _value_and_slope(loss, occupancy, mdp))
    require_finite_loss(value, slope if differentiable else None, occupancy)


def require_finite_loss(value: Any, slope: np.ndarray | None, occupancy: np.ndarray | None = None) -> None:
    """Refuse a loss that is not finite at the starting policy, or whose gradient there is not."""
    if not np.isfinite(value):
        raise InputError(f"the loss is {value} at the starting policy; keep its logarithms and ratios off zero")
    if slope is not None and not np.all(np.isfinite(slope)):
        s, a = (int(i) for i in np.argwhere(~np.isfinite(slope))[0])
        met = "" if occupancy is None else f", occupancy {occupancy[s, a]:.3g}"
        raise InputError(
            f"the gradient of the loss is {slope[s, a]} at the starting policy (state {s}, action {a}{met}); keep its "
            "logarithms and roots off zero"
        )


@jitted
def _value_and_slope(loss: Loss, occupancy: Array, mdp: MDP) -> tuple[Array, Array]:
    return jax.value_and_grad(loss)(occupancy, mdp)
