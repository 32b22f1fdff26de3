"""A limit: a second loss that a policy has to keep, in a risk or with a probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from ...arrays import Array, require_kind, require_number
from ...errors import InputError
from ...objectives import Objective
from ...records import Record, field
from ...risks import CVaR, Risk
from ..optimiser import digest_of

# What a number may be off by rounding, as a share of the largest loss: a limit is kept that is met to the last digits.
ROUNDING = 1e-12

# Longest name and unit, which head a line and a table.
LONGEST = 80


class Limit(Record):
    """What a policy may lose of one kind: `rho_theta(D(pi, theta)) <= at_most`, or `P_theta(D <= at_most) >= chance`.

    >>> import prudent as pr
    >>> failures = pr.Limit(pr.Visits([2], per=52), at_most=0.5, name="failures", unit="failures a year")
    >>> float(failures.at_most), type(failures.risk).__name__
    (0.5, 'CVaR')

    Args:
        loss: any loss of the model, such as `Visits([2], per=1)` or a function of your own.
        at_most: the most that is allowed, in the loss's own unit.
        risk: of the loss over the posterior, monotone; `CVaR(0.9)` when left out.
        chance: in the place of a risk: the posterior probability with which the loss itself is to be at most that.
        name: what a reader calls it.
        unit: what the loss is counted in, such as "failures a year".
        confidence: where draws are sampled, the policy is chosen with so much to spare that fresh draws show the limit
            kept with this confidence; None aims at the limit itself, which fresh draws then show broken half the time.
    """

    loss: Any
    at_most: Float[Array, ""]
    risk: Risk
    chance: float | None = field(static=True)
    name: str = field(static=True)
    unit: str = field(static=True)
    confidence: float | None = field(static=True)

    def __init__(
        self,
        loss: Any,
        at_most: Any,
        risk: Risk | None = None,
        *,
        chance: float | None = None,
        name: str = "",
        unit: str = "",
        confidence: float | None = 0.95,
    ):
        if not (callable(loss) or isinstance(loss, Objective)):
            raise InputError(f"a limit is on a loss, called as loss(occupancy, model); got {loss!r}")
        self.loss = loss
        self.at_most = require_number("at_most", at_most, "(-inf, inf)", "without a limit leave it out")
        if chance is not None and risk is not None:
            raise InputError("a limit is kept in a risk or with a chance; give risk= or chance=, not both")
        if chance is not None:
            if float(require_number("chance", chance, "(0, 1]")) == 1.0:
                raise InputError(
                    "a chance of 1 cannot be shown from draws, and most posteriors have no policy that reaches it; use "
                    "a chance below 1, or risk=WorstCase() for the worst of the draws"
                )
            chance = float(np.asarray(chance))
        self.chance = chance
        self.risk = CVaR(0.9 if chance is None else chance) if risk is None else risk
        require_kind("the limit's risk", self.risk, Risk, "a risk such as CVaR(0.9)")
        if not self.risk.monotone:
            raise InputError(
                "the limit's risk must be monotone: a policy that loses less at every draw keeps it better"
            )
        for what, text in (("name", name), ("unit", unit)):
            require_kind(f"the limit's {what}", text, str, "a text")
            if len(text) > LONGEST or not text.isprintable():
                raise InputError(f"the limit's {what} must be a line of at most {LONGEST} characters, got {text!r}")
        self.name, self.unit = name, unit
        self.confidence = (
            None if confidence is None else float(require_number("confidence", confidence, "[0.5, 1)", "0.95 is usual"))
        )

    def called(self, number: int) -> str:
        """Its name, or its place in the list."""
        return self.name or f"limit {number + 1}"


def checked_limits(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The limits of a problem: at least one, and no two for the same thing."""
    if not isinstance(limits, Sequence) or isinstance(limits, str):
        raise InputError(f"subject_to is a list of limits, such as [Limit(loss, at_most=0.5)]; got {limits!r}")
    names: set[str] = set()
    for number, limit in enumerate(limits):
        require_kind(f"subject_to[{number}]", limit, Limit, "a Limit(loss, at_most)")
        if limit.called(number) in names:
            raise InputError(f"two limits are called {limit.called(number)!r}; give each a name of its own")
        names.add(limit.called(number))
    for (first, one), (second, other) in combinations(enumerate(limits), 2):
        if _question(one) == _question(other):
            raise InputError(
                f"{one.called(first)} and {other.called(second)} limit the same loss in the same way, to "
                f"{float(one.at_most):g} and {float(other.at_most):g}; leave out the one that the other implies"
            )
    return tuple(limits)


def limit_objectives(limits: tuple[Limit, ...], make: Callable[[Any], Objective]) -> tuple[Objective, ...]:
    """Return the objective of each limit: one that was given, or the one that the family makes of the limit's loss."""
    found = []
    for number, limit in enumerate(limits):
        own = limit.loss if isinstance(limit.loss, Objective) else make(limit.loss)
        require_kind(f"the loss of {limit.called(number)}", own, Objective, "a loss of this model, or an Objective")
        found.append(own)
    return tuple(found)


def refuse_idle(limit: Limit, number: int, low: float, high: float) -> None:
    """Refuse a limit that nothing could break, or nothing keep, as the range of its loss alone shows."""
    unit = f" {limit.unit}" if limit.unit else ""
    name, at_most = limit.called(number), float(limit.at_most)
    rounding = ROUNDING * max(abs(low), abs(high)) if np.isfinite(high) else 0.0
    if at_most >= high - rounding:
        raise InputError(
            f"{name}: the loss is never above {high:.6g}{unit}, so at_most = {at_most:g} limits nothing; lower it, "
            "leave it out, or check its unit"
        )
    if at_most < low - rounding:
        raise InputError(
            f"{name}: the loss is never below {low:.6g}{unit}, so at_most = {at_most:g} cannot be reached; raise "
            "it, or check its unit"
        )


def _question(limit: Limit) -> tuple[Any, ...]:
    return digest_of(limit.loss), digest_of(limit.risk), limit.chance
