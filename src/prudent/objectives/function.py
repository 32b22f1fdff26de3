"""An objective from a user's own function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_float, require_finite
from ..errors import InputError
from ..parameter_sets import Everywhere, ParameterSet
from ..records import field, same_structure, tree_leaves, tree_map
from .base import Losses, Objective, Size


class FunctionObjective(Objective):
    """`C(alpha, theta)` as any function that JAX can trace: no states, no table, no lower bound.

    >>> import numpy as np, prudent as pr
    >>> wide = pr.FunctionObjective(lambda alpha, theta: (alpha[0] - theta[0]) ** 2, start=[0.0])
    >>> solution = pr.solve(wide, pr.Draws([[-1.0], [3.0]]), risk=pr.CVaR(0.5))
    >>> bool(abs(solution.policy[0] - 1.0) < 1e-4), round(solution.risk, 4)
    (True, 4.0)

    Args:
        function: `(parameters, theta) -> number`, traceable.
        start: array, or any pytree of arrays, that a search begins from.
        within: the set the parameters are kept in.
    """

    function: Callable[[Any, Array], Any] = field(static=True)
    start: Any
    region: ParameterSet

    def __init__(self, function: Callable[[Any, Array], Any], start: Any, within: ParameterSet | None = None):
        from ..autodiff import as_floats  # imports JAX, which alone knows trees of other kinds

        if not callable(function):
            raise InputError(f"function must map (parameters, theta) to a number, got {function!r}")
        self.function = function
        self.start = as_floats(start, "start")
        self.region = Everywhere() if within is None else within
        for leaf in tree_leaves(self.start):
            require_finite("start", np.asarray(leaf))

    @property
    def within(self) -> ParameterSet:
        """The set given."""
        return self.region

    def initial(self) -> Any:
        """The start given."""
        return self.start

    def points(self, parameters: Any) -> Float[np.ndarray, "K D"]:
        """The parameters in rows."""
        leaves = tree_leaves(parameters)
        return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves], axis=1)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K D"]) -> Any:
        """Rows as parameters."""
        return self._shaped(np.asarray(slopes))

    def losses(self, points: Float[Array, "N D"], thetas: Array) -> Losses:
        """The function at every draw."""
        from .compiled import function_losses  # imports JAX

        return Losses(function_losses(self.function, self.start, points, thetas), None)

    def _shaped(self, rows: Float[np.ndarray, "... D"]) -> Any:
        """Rows as parameters, shaped like the start."""
        ends = np.cumsum([np.size(leaf) for leaf in tree_leaves(self.start)])
        pieces = iter(np.split(rows, ends[:-1], axis=-1))
        return tree_map(lambda leaf: next(pieces).reshape((*rows.shape[:-1], *np.shape(leaf))), self.start)

    def size(self) -> Size:
        """A guess: the parameters, and as much again for what the function keeps."""
        size = 16 * max(1, sum(np.size(leaf) for leaf in tree_leaves(self.start)))
        return Size(size, size, True)

    def policy(self, point: Float[np.ndarray, " D"], parameters: Any = None) -> Any:
        """The parameters, shaped like the start."""
        return self._shaped(np.asarray(point))

    def point_from(self, policy: Any) -> Float[np.ndarray, " D"]:
        """Parameters shaped like the start, in a row."""
        given = tree_map(as_float, policy)
        shapes, wanted = tree_map(np.shape, given), tree_map(np.shape, self.start)
        if not same_structure(given, self.start) or shapes != wanted:
            raise InputError(f"the policy must be parameters shaped {wanted} like the start, got {shapes}")
        return self.points(tree_map(lambda leaf: np.asarray(leaf)[None], given))[0]

    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """One finite number, with a finite derivative, at the first draw."""
        require_finite("a posterior draw of theta", thetas)
        parameters = self.start if parameters is None else parameters
        from .compiled import value_and_slope  # imports JAX

        where = f"at a posterior draw of shape {thetas.shape[1:]}"
        value, slope = value_and_slope(self.function, parameters, thetas[0], where)
        if not np.isfinite(value):
            raise InputError(f"the loss is {value} at the starting parameters; keep logarithms and ratios off zero")
        if differentiable and not all(np.all(np.isfinite(leaf)) for leaf in tree_leaves(slope)):
            raise InputError("the gradient of the loss is not finite at the starting parameters; keep roots off zero")

    def no_bound(self) -> str:
        """Nothing is known of a function."""
        return "the least loss of a function of parameters and theta is not known"
