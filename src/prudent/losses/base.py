"""What a loss is: any function of the occupancy, or a `ConvexLoss` that knows its conjugate.

Lemma 3.2 of the paper asks for the maximiser of `<z, lambda> - F*(z)`. In general that is a search in the
space of all state-action pairs; a `ConvexLoss` says which part of it is linear, needing no search, and in
which smaller space the rest lives:

    F(lambda) = <lambda, linear> + f(image lambda)        image linear in the occupancy

so that the search is for a point z of that space, on `<z, y> - f*(z)` with `y = image lambda`, and the cost
table it stands for is `linear + image^T z`, the gradient of F at the maximiser. The search is one for a batch of
models, which are along the last axis of all arrays.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64, require_number
from ..conformance import explained
from ..engine import ModelBatch, table_rows
from ..errors import InputError
from ..kernels import Kernel, Support
from ..models import MDP
from ..records import Record, changed

Loss = Callable[[Any, MDP], Any]
"""`(occupancy [S, A], mdp) -> scalar`, traceable by JAX and convex in the occupancy."""

Scalar = Float[Array, ""] | np.floating


class Dual(NamedTuple):
    """Where the ascent on `<z, y> - f*(z)` has got to.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> pr.ExpectedCost().begin(lake.models([(0.3, 0.02)]))
    Dual(point=(), primal=None)

    Attributes:
        point: z, shaped like the loss's image: an array, models last, or a tuple of such.
        primal: what the next step needs besides z, such as the maximiser behind a numerical conjugate;
            None where the conjugate is closed.
    """

    point: Any
    primal: Any


class ConvexLoss(Record):
    """A convex loss with its conjugate: `F(lambda) = <lambda, linear> + f(image lambda)`.

    `image`, `begin`, `ascend` and `cost_of` are the conjugate, of many models at once, which come last.
    Losses add up and take non-negative multiples; a plain function may be one of the terms.

    >>> import prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = 0.5 * pr.ExpectedCost() + (lambda occupancy, mdp: (occupancy**2).sum())
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp))
    6.0
    """

    # NumPy numbers leave `number * loss` to the loss.
    __array_ufunc__ = None

    @property
    def is_linear(self) -> bool:
        """Whether the loss is known to be linear in the occupancy, so that `cost_tables` says all of it."""
        return False

    @abc.abstractmethod
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Scalar:
        """The loss, one number."""

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
        """Return the loss of each model of a batch."""
        return self.value_and_gradient(occupancy, models)[0]

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the loss of each model of a batch and its derivative by the occupancy, `(F, dF / d lambda)`.

        A loss of your own that has no such method is differentiated by JAX. The derivative may be a read-only view.
        """
        from .user import differentiate  # imports JAX

        return differentiate(self, occupancy, models)

    def cost_tables(self, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return the cost table of each model under which a linear loss is the expected cost.

        The last axis has length 1 where all models share the table.
        """
        raise InputError(f"{type(self).__name__} is not linear in the occupancy and has no cost table")

    def beside(self, models: ModelBatch) -> Float[np.ndarray, "S N"] | None:
        """Return what a linear loss has less than its tables say, if unseen shares lead to each state.

        None where that is nothing, or rows are whole.
        """
        del models
        return None

    def linear(self, mdp: MDP) -> Float[Array, "S A"]:
        """The cost table of one model under which a linear loss is the expected cost."""
        raise InputError(f"{type(self).__name__} is not linear in the occupancy and has no cost table")

    @abc.abstractmethod
    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Any:
        """Return what the rest depends on, linear in the occupancy: an array or a tuple of such, `()` if linear."""

    @abc.abstractmethod
    def begin(self, models: ModelBatch) -> Dual:
        """Return a first z of each model inside the domain of f*."""

    @abc.abstractmethod
    def ascend(self, dual: Dual, image: Any, models: ModelBatch) -> Dual:
        """Return the dual after one step up on `<z, y> - f*(z)`, where y is the image."""

    @abc.abstractmethod
    def cost_of(self, point: Any, models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        """Return the cost tables that z stands for, `linear + image^T z`: the gradient of F at the maximiser.

        The last axis has length 1 where all models share the table.
        """

    def __add__(self, other: Any) -> ConvexLoss:
        if isinstance(other, int | float) and other == 0:  # where sum() begins
            return self
        return Sum((*_terms(self), *_terms(as_convex(other))))

    def __radd__(self, other: Any) -> ConvexLoss:
        return self + other if isinstance(other, int | float) else as_convex(other) + self

    def __mul__(self, multiple: Any) -> ConvexLoss:
        return Scaled(self, multiple)

    __rmul__ = __mul__


class UserLoss(Record):
    """A user's function of the occupancy, of which nothing is known but its derivative.

    JAX differentiates the function, unless its derivative is given: then JAX is not needed, and the function may be
    written in NumPy. Such a loss need not be convex; `as_convex` says that it is.

    >>> import numpy as np, prudent as pr
    >>> mdp = pr.MDP(pr.Kernel.dense([[[1.0]]]), cost=[[2.0]], start=0, discount=0.5)
    >>> loss = pr.UserLoss(lambda occupancy, mdp: (occupancy**2).sum(), gradient=lambda occupancy, mdp: 2.0 * occupancy)
    >>> float(loss(pr.occupancy(mdp, [[1.0]]), mdp))
    4.0

    Args:
        function: `(occupancy [S, A], mdp) -> number`, traceable by JAX where no gradient is given.
        gradient: `(occupancy [S, A], mdp) -> [S, A]`, its derivative by the occupancy.
    """

    function: Loss
    gradient: Callable[[Any, MDP], Any] | None = None

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"a loss is a function (occupancy, mdp) -> number, got {self.function!r}")
        if not (self.gradient is None or callable(self.gradient)):
            raise InputError(f"gradient must be a function (occupancy, mdp) -> [S, A], got {self.gradient!r}")

    @in_float64
    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.function(occupancy, mdp)

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, " N"]:
        """Return the loss of each model of a batch."""
        if self.gradient is None:
            from .user import evaluate

            return evaluate(self.function, occupancy, models)
        return np.array([self(occupancy[:, :, n], mdp) for n, mdp in enumerate(split_models(models))], dtype=float)

    def value_and_gradient(
        self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "S A N"]]:
        """Return the loss of each model of a batch and its derivative by the occupancy."""
        if self.gradient is None:
            from .user import differentiate

            return differentiate(self.function, occupancy, models)
        return self.value(occupancy, models), self._gradients(occupancy, models)

    @in_float64
    def _gradients(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Float[np.ndarray, "S A N"]:
        assert self.gradient is not None
        gradients = np.empty(occupancy.shape)
        for n, mdp in enumerate(split_models(models)):
            found = np.asarray(self.gradient(occupancy[:, :, n], mdp))
            if found.shape != occupancy.shape[:2]:
                raise InputError(
                    f"the gradient of the loss must have shape {occupancy.shape[:2]} (state, action), got {found.shape}"
                )
            gradients[:, :, n] = found
        return gradients


def as_loss(loss: Any) -> Any:
    """Return the loss itself, or the user's function as a `UserLoss`."""
    return loss if hasattr(loss, "value_and_gradient") else UserLoss(loss)


def is_linear(loss: Any) -> bool:
    """Return whether a loss is known to be linear in the occupancy."""
    return isinstance(loss, ConvexLoss) and loss.is_linear


def as_convex(loss: Any, gradient: Callable[[Any, MDP], Any] | None = None) -> ConvexLoss:
    """Return the loss itself, or the user's function as a loss that is convex in the occupancy.

    Its conjugate is worked out numerically.

    >>> import prudent as pr
    >>> type(pr.as_convex(lambda occupancy, mdp: occupancy.max())).__name__
    'Numerical'

    Args:
        loss: a loss, or a function `(occupancy [S, A], mdp) -> number`.
        gradient: of a function, `(occupancy [S, A], mdp) -> [S, A]`; JAX differentiates the function when left out.
    """
    if isinstance(loss, ConvexLoss):
        if gradient is not None:
            raise InputError(f"{type(loss).__name__} has a gradient of its own; leave gradient= out")
        return loss
    # Only who needs a numerical conjugate meets how it is ascended.
    from .ascent import Numerical

    return Numerical(loss if gradient is None else UserLoss(loss, gradient))


def batch_of(mdp: MDP) -> ModelBatch:
    """Return a batch of this one model."""
    support = mdp.kernel.support
    states, actions, successors = support.shape
    return ModelBatch(
        successor=support.index(),
        row=table_rows(states, actions),
        probability=np.asarray(mdp.kernel.probability).reshape(states * actions, successors, 1),
        cost=np.asarray(mdp.cost)[:, :, None],
        start=np.asarray(mdp.start),
        discount=float(mdp.discount),
    )


def split_models(models: ModelBatch) -> Iterator[MDP]:
    """Yield the models of a batch one by one, unchecked: they were checked where the batch was made."""
    support = support_of(models)
    kernel = Kernel(support, np.zeros(support.shape) + np.eye(1, support.successors))
    known = MDP(kernel, np.zeros(support.shape[:2]), models.start, models.discount)
    for n in range(models.size):
        cost = models.cost[:, :, min(n, models.cost.shape[2] - 1)]
        yield changed(known, kernel=changed(kernel, probability=models.probability[:, :, n][models.row]), cost=cost)


def support_of(models: ModelBatch) -> Support:
    """Return the support of the models, without names."""
    states, actions, successors = models.successor.shape
    if successors == states and np.all(models.successor == np.arange(states)):
        return Support.dense(states, actions)
    return Support(np.asarray(models.successor), None, states, actions, successors)


def _terms(loss: ConvexLoss) -> tuple[ConvexLoss, ...]:
    return loss.terms if isinstance(loss, Sum) else (loss,)


class Sum(ConvexLoss):
    """A sum of losses; its image is the tuple of theirs, so the ascent is theirs side by side."""

    terms: tuple[ConvexLoss, ...]

    @property
    def is_linear(self) -> bool:
        """Whether all terms are linear."""
        return all(term.is_linear for term in self.terms)

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return sum(term(occupancy, mdp) for term in self.terms)

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Any:
        """Return the sum of the terms' losses."""
        return sum(term.value(occupancy, models) for term in self.terms)

    def value_and_gradient(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> tuple[Any, Any]:
        """Return the sums of the terms' losses and derivatives."""
        values, gradients = zip(*(term.value_and_gradient(occupancy, models) for term in self.terms), strict=True)
        return sum(values), sum(gradients)

    def cost_tables(self, models: ModelBatch) -> Any:
        """Return the sum of the terms' tables."""
        return sum(term.cost_tables(models) for term in self.terms)

    def beside(self, models: ModelBatch) -> Any:
        """Return the sum of the terms'."""
        found = [each for each in (term.beside(models) for term in self.terms) if each is not None]
        return sum(found) if found else None

    def linear(self, mdp: MDP) -> Any:
        return sum(term.linear(mdp) for term in self.terms)

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> tuple:
        return tuple(term.image(occupancy, models) for term in self.terms)

    def begin(self, models: ModelBatch) -> Dual:
        return _side_by_side([term.begin(models) for term in self.terms])

    def ascend(self, dual: Dual, image: tuple, models: ModelBatch) -> Dual:
        parts = zip(self.terms, dual.point, dual.primal, image, strict=True)
        return _side_by_side([term.ascend(Dual(point, primal), own, models) for term, point, primal, own in parts])

    def cost_of(self, point: tuple, models: ModelBatch) -> Any:
        return sum(term.cost_of(own, models) for term, own in zip(self.terms, point, strict=True))


def _side_by_side(duals: list[Dual]) -> Dual:
    return Dual(tuple(dual.point for dual in duals), tuple(dual.primal for dual in duals))


class Scaled(ConvexLoss):
    """A non-negative multiple c of a loss: `(c f)*(z) = c f*(z / c)`.

    Its dual is the loss's own, `z / c`: that spares the division, which c = 0 would not stand.
    """

    loss: ConvexLoss
    multiple: Float[Array, ""]

    def __init__(self, loss: ConvexLoss, multiple: Any):
        self.loss = loss
        self.multiple = require_number("the multiple of a loss", multiple, "[0, inf)", "it would not be convex")

    @property
    def is_linear(self) -> bool:
        """Whether the loss is."""
        return self.loss.is_linear

    def __call__(self, occupancy: Float[Array, "S A"], mdp: MDP) -> Any:
        return self.multiple * self.loss(occupancy, mdp)

    def value(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Any:
        """Return the multiple of the loss."""
        return self.multiple * self.loss.value(occupancy, models)

    def value_and_gradient(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> tuple[Any, Any]:
        """Return the multiples of the loss and of its derivative."""
        value, gradient = self.loss.value_and_gradient(occupancy, models)
        return self.multiple * value, self.multiple * gradient

    def cost_tables(self, models: ModelBatch) -> Any:
        """Return the multiple of the loss's table."""
        return self.multiple * self.loss.cost_tables(models)

    def beside(self, models: ModelBatch) -> Any:
        """Return the multiple of the loss's."""
        found = self.loss.beside(models)
        return None if found is None else self.multiple * found

    def linear(self, mdp: MDP) -> Any:
        return self.multiple * self.loss.linear(mdp)

    def image(self, occupancy: Float[np.ndarray, "S A N"], models: ModelBatch) -> Any:
        return self.loss.image(occupancy, models)

    def begin(self, models: ModelBatch) -> Dual:
        return self.loss.begin(models)

    def ascend(self, dual: Dual, image: Any, models: ModelBatch) -> Dual:
        return self.loss.ascend(dual, image, models)

    def cost_of(self, point: Any, models: ModelBatch) -> Any:
        return self.multiple * self.loss.cost_of(point, models)


def require_scalar(loss: Loss, occupancy: np.ndarray, mdp: MDP) -> None:
    """Refuse a loss that does not return one real number."""
    derived = isinstance(loss, ConvexLoss) or getattr(loss, "gradient", None) is not None
    with explained(lambda error: f"the loss could not be evaluated: {error}; it is called as loss(occupancy, mdp)", ()):
        found = np.asarray(loss(occupancy, mdp)) if derived else _traced_shape(loss, occupancy, mdp)
    if getattr(found, "shape", None) != ():
        raise InputError(f"the loss must return one number, got {found}; sum or average it")
    if np.dtype(found.dtype).kind != "f":
        raise InputError(f"the loss must return a real number, got {found.dtype}")


def _traced_shape(loss: Loss, occupancy: np.ndarray, mdp: MDP) -> Any:
    """Return the shape and the type of what a user's function gives, of which nothing is computed."""
    from .user import shape_of  # imports JAX

    return shape_of(loss, occupancy, mdp)


@in_float64
def check_loss_at(loss: Loss, occupancy: np.ndarray, mdp: MDP, differentiable: bool = True) -> None:
    """Refuse a loss that is not one finite number, with a finite gradient if asked, at a given occupancy."""
    require_scalar(loss, occupancy, mdp)
    values, slopes = as_loss(loss).value_and_gradient(np.asarray(occupancy)[:, :, None], batch_of(mdp))
    require_finite_loss(values[0], slopes[:, :, 0] if differentiable else None, occupancy)


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
