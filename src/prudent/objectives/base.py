"""The seam between models and everything after them: losses at draws of theta, and what else can be done with them.

Left of it a part knows what a state is; right of it nobody does. Risks, solvers, evaluations, certificates, pages see
losses `[R]`, parameters, derivatives and the capabilities below; what they can do follows from these.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import Array, require_kind
from ..errors import InputError
from ..parameter_sets import ParameterSet, RowSet
from ..posteriors import Posterior, WeightedDraws
from ..records import Record, tree_map
from ..risks import Risk
from ..seeds import Seed
from .boxes import Boxes
from .evidence import Evidence


class Losses(NamedTuple):
    """Losses of N models, each under a point of its own.

    Attributes:
        losses: of each.
        visits: what the metric of a natural step is made of: how often each row of a table is met, or `metric()`
            numbers; None where there is none.
    """

    losses: Float[Array, " N"]
    visits: Float[Array, "N S"] | None


class ModelSlopes(NamedTuple):
    """Losses of M models, derivatives `dC/dpoint` (empty where not asked for), visits as in `Losses` (or empty)."""

    losses: Float[np.ndarray, " M"]
    slopes: Float[np.ndarray, "M ..."]
    visits: Float[np.ndarray, "M S"]


class Size(NamedTuple):
    """What one model takes.

    Attributes:
        bytes: of its largest array.
        theta_bytes: of one draw of theta, laid out as its model.
        cached: whether models are worked on in the processor's cache, so that small chunks are faster.
    """

    bytes: int
    theta_bytes: int
    cached: bool


class Unit(NamedTuple):
    """How losses are measured: `loss = offset + scale * loss in units`."""

    offset: float
    scale: float

    def loss(self, value: Any) -> Any:
        """A loss in the user's units."""
        return self.offset + self.scale * value


class Table(NamedTuple):
    """Capability: points are tables of probabilities.

    The predicted decrease of any change of the policy needs it; natural and prox-linear steps need free rows.

    Attributes:
        rows: which rows there are.
        free: whether parameters reach every choice of rows; else the rows are all there could be.
        nonlinear: whether the loss is not linear in the occupancy, so that a deterministic table need not be best.
    """

    rows: RowSet
    free: bool
    nonlinear: bool


class Planned(NamedTuple):
    """Points that would be right if theta were known.

    Attributes:
        points: of centres of the belief, against all draws, of single draws; without repeats.
        least: `[M]` the least loss of each draw; None where draws were not planned for.
    """

    points: Float[np.ndarray, "K ..."]
    least: Float[np.ndarray, " M"] | None


Weights = Callable[[Float[np.ndarray, " R"]], Float[np.ndarray, " R"]]
"""Losses at R draws to what each of them weighs, `p xi*`."""


class Weighted(NamedTuple):
    """The best policies of M draws for weighted sums of losses.

    Attributes:
        points: of each draw.
        least: numbers at most the least weighted sum of each.
    """

    points: Float[np.ndarray, "M ..."]
    least: Float[np.ndarray, " M"]


Weigh = Callable[[Float[np.ndarray, "G M"]], Weighted]
"""Weights of at least 0, of each of G losses at each of M draws, to plans."""


class Plans(Record):
    """Capability: the best policy of a single draw can be found, which gives starts and lower bounds."""

    @abc.abstractmethod
    def planned(self, belief: Posterior, draws: WeightedDraws, most: int, weigh: Weights | None = None) -> Planned:
        """Where a search may begin; a few more than `most` points where they come for nothing.

        Args:
            belief: whose centres are planned at.
            draws: of it.
            most: points that are wanted.
            weigh: what the risk makes of losses at the draws; None where there is no one risk.
        """

    @abc.abstractmethod
    def least(self, draws: WeightedDraws, point: np.ndarray) -> tuple[Float[np.ndarray, " M"] | None, str]:
        """Numbers at most `min_pi C(pi, theta)` at the first M draws, or None and the reason why there are none.

        Args:
            draws: to plan at; as many of them as can be afforded, all of them where they are a whole posterior.
            point: one that is nearly right, which may save work.
        """

    def weighted(self, others: Sequence[Plans], thetas: Float[np.ndarray, "M ..."]) -> Weigh | None:
        """A planner of each draw for weighted sums of this loss and others; None where these cannot be planned for.

        Args:
            others: plans of the other losses, for the same model.
            thetas: M draws.
        """
        return None


class Averaged(NamedTuple):
    """Losses of R draws, with derivative and visits of their average under the weights that were found for them."""

    losses: Float[np.ndarray, " R"]
    slope: Float[np.ndarray, ...]
    visits: Float[np.ndarray, " S"]


class Averages(Record):
    """Capability: models so large that the objective works through them itself, on the host, one point at a time.

    Derivatives of single draws are never kept: what is asked for is the derivative of an average.
    """

    @abc.abstractmethod
    def losses(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"]:
        """The loss at every draw."""

    @abc.abstractmethod
    def slopes(self, point: np.ndarray, thetas: Float[np.ndarray, "R ..."], weigh: Weights) -> Averaged:
        """Losses, and the derivative of `sum_k w_k C_k` with the weights w that `weigh` makes of them."""


class Objective(Record):
    """`C(alpha, theta)`: what a policy's parameters alpha lose if theta is the truth, for any kind of model.

    Losses are functions of a *point*, the array that parameters stand for: a table of action probabilities, a gain
    matrix, or the parameters themselves. The methods marked so are traced by JAX.
    """

    @property
    @abc.abstractmethod
    def within(self) -> ParameterSet:
        """The set that parameters are kept in."""

    @abc.abstractmethod
    def initial(self) -> Any:
        """Parameters to start from."""

    @abc.abstractmethod
    def size(self) -> Size:
        """What one model takes, for chunks of bounded memory."""

    @abc.abstractmethod
    def policy(self, point: Float[np.ndarray, ...], parameters: Any = None) -> Any:
        """The policy a user is given, of a point, or of the parameters behind it where they say more."""

    @abc.abstractmethod
    def point_from(self, policy: Any) -> Float[np.ndarray, ...]:
        """The point of a user's policy, checked."""

    @abc.abstractmethod
    def check(self, thetas: Float[np.ndarray, "N ..."], parameters: Any = None, differentiable: bool = True) -> None:
        """Refuse models that are none at these draws, and a loss that is no finite number at the first.

        Args:
            thetas: a few draws.
            parameters: where the loss is looked at, with its derivative if that is needed; its shape alone if None.
            differentiable: whether a derivative is needed.
        """

    def losses(self, points: Float[Array, "N ..."], thetas: Array) -> Losses:
        """The losses of N models, each with a point and a draw of its own; traced.

        It is needed unless `on_host` or `averages` answer for all models.
        """
        raise InputError(
            f"{type(self).__name__} says nothing of its losses: write on_host(points, thetas, sloped) in NumPy, which "
            "returns ModelSlopes, or losses(points, thetas) with jax.numpy"
        )

    # Where nothing else is said, points are the parameters themselves.

    def point_shape(self, parameters: Any) -> tuple[int, ...]:
        """Of the point of one parameter set."""
        return self.points(tree_map(lambda leaf: np.asarray(leaf)[None], parameters)).shape[1:]

    def points(self, parameters: Any) -> Float[np.ndarray, "K ..."]:
        """The points of K parameter sets, on the host."""
        return np.asarray(parameters)

    def pull_back(self, parameters: Any, slopes: Float[np.ndarray, "K ..."]) -> Any:
        """Gradients by the parameters of K points, from those by the points, on the host."""
        return slopes

    def check_belief(self, belief: Posterior) -> None:
        """Refuse a belief that is visibly about another model; any may be about theta where nothing is said."""

    # Capabilities: what an objective does not have is None.

    def table(self, theta: np.ndarray) -> Table | None:
        """Return what tables there are, as one draw of theta tells it; None where points are no tables."""
        return None

    def from_point(self, points: Float[np.ndarray, "*K ..."]) -> Any | None:
        """Parameters of points, before projection; an objective with a table has them for its tables."""
        return None

    def random_points(self, random: np.random.Generator, count: int) -> Float[np.ndarray, "K ..."] | None:
        """Points by chance that `from_point` has parameters of."""
        return None

    def mixed(self, point: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
        """A point off the edge of the set of points, near this one."""
        return point

    def metric(self) -> int:
        """How many numbers the visits of a loss are that `natural` takes, where points are no tables; 0 for none."""
        return 0

    def natural(
        self, slopes: Float[np.ndarray, "K ..."], visits: Float[np.ndarray, "K S"]
    ) -> Float[np.ndarray, "K ..."]:
        """Derivatives by the points as directions in parameters, divided by the metric of visits under xi*."""
        raise NotImplementedError

    def on_host(
        self, points: Float[np.ndarray, "N ..."], thetas: Float[np.ndarray, "N ..."], sloped: bool
    ) -> ModelSlopes | None:
        """N models at points and draws of their own, by NumPy; None where a function is to be compiled.

        Slopes are `points[:0]` unless they are asked for, visits `[N, 0]` where there are none.
        """
        del points, thetas, sloped
        return None

    def less_constant(self, reference: Any) -> Objective | None:
        """The same objective less the loss of a point, or "best", where that is more than a constant of each draw."""
        return None

    def offsets(self, thetas: Float[np.ndarray, "R ..."]) -> Float[np.ndarray, " R"] | None:
        """What is taken off the losses of each draw; None where that is nothing."""
        return None

    def averages(self) -> Averages | None:
        """Losses and derivatives found by the objective itself, where its models are large."""
        return None

    def plans(self) -> Plans | None:
        """Planners of single draws."""
        return None

    def boxes(self, thetas: Float[np.ndarray, "R ..."]) -> Boxes | None:
        """Relaxations over boxes of tables at these draws."""
        return None

    def evidence(self, belief: Posterior, risk: Risk, point: np.ndarray, answer: Any, seed: Seed) -> Evidence:
        """What a stated risk stands on: how much of it on few rows, and on the prior.

        Args:
            belief: under which the risk was stated.
            risk: that was stated.
            point: the policy's.
            answer: the policy judged on fresh draws of the belief, an `Evaluation`.
            seed: of the draws.
        """
        return Evidence.unknown("it is not known which rows the belief comes from")

    def in_units(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[Objective, Unit]:
        """The same objective in units of its own, so that level and scale of the losses change no policy."""
        return self, Unit(0.0, 1.0)

    def met(
        self, point: np.ndarray, thetas: Float[np.ndarray, "M ..."], shares: Float[np.ndarray, "K M"]
    ) -> Bool[np.ndarray, ...] | None:
        """Which parts of theta matter to a policy under any of the weights, over theta's leading axes; None for all."""
        return None

    def by_conjugate(self, search: Any) -> Objective | None:
        """The same objective with derivatives by the loss's conjugate, ascended as `search` says; None without one."""
        return None

    def finite_point(self, point: np.ndarray, thetas: Float[np.ndarray, "N ..."]) -> Float[np.ndarray, ...] | None:
        """A point whose losses are finite at all draws, found from one whose are not; None where none was found."""
        return None

    def loss_range(self, thetas: Float[np.ndarray, "N ..."]) -> tuple[float, float]:
        """Numbers that the loss is never below and never above, whatever is done; infinite where none are known."""
        return -np.inf, np.inf

    def name_of(self, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
        """What an entry of a theta of this shape is called."""
        return f"theta{list(place)}"

    @property
    def by_chance(self) -> bool:
        """Whether losses are means over chance, so that `replicates` tells how well they are known."""
        return False

    def replicates(self, points: Float[Array, "N ..."], thetas: Array) -> Float[Array, "N B"]:
        """Losses judged on chance of its own: on all of it, then without each of several batches; traced."""
        raise NotImplementedError

    def holding(self, policy: Any) -> Objective:
        """The same objective for the class of policies that this one is of; itself where there is one class."""
        return self

    def infinite(self) -> str:
        """What it means that a loss is infinite; empty where it can only be a mistake."""
        return ""

    def notes(self, belief: Posterior, point: np.ndarray, draws: WeightedDraws) -> Any | None:
        """What else a user should know of a policy judged on draws: a record with `rows()` for its summary."""
        return None

    def no_bound(self) -> str:
        """Why there is no lower bound where `plans` is None."""
        return "single draws of theta cannot be planned for"

    def no_limits(self) -> str:
        """Why policies cannot be searched for under limits; empty where they can."""
        return ""

    def parts(self) -> dict[str, Any]:
        """What a resumed run must share with the first call, by name."""
        return {"objective": self}

    @property
    def truncation(self) -> float:
        """Mass of the occupancy that may be left out; 0 for exact losses."""
        return 0.0


def objective_of(model: Any, loss: Any = None, policy: Any = None, occupancy: Any = None) -> Objective:
    """What is minimised: the objective itself, or the one that a family makes of these parts."""
    if isinstance(model, Objective):
        for name, part in (("loss", loss), ("policy", policy), ("occupancy", occupancy)):
            if part is not None:
                raise InputError(f"{name}= belongs to a family; {type(model).__name__} is an objective and has its own")
        return model
    make = getattr(model, "objective", None)
    if make is None or isinstance(model, type):
        require_kind("model", model, Objective, "a family of MDPs, made by Family(...) or TabularFamily(...)")
    return make(loss=loss, policy=policy, occupancy=occupancy)  # pyright: ignore[reportOptionalCall]
