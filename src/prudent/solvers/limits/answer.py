"""What is said of each limit: its value on fresh draws, whether it is kept, how surely, and what it costs.

And what a search keeps to spare, so that draws and particles it has not seen show a limit kept.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from ...evaluation import Evaluation, stretched
from ...objectives import Objective
from ...records import Record, field
from ...risks import share_interval, widened
from .limit import ROUNDING, Limit

# Prices that differ by a larger share are those of a corner; one below this share of the other is none.
CORNER, NOTHING = 0.05, 1e-3

# What fresh draws may differ from held-out ones by, in standard errors, before they no longer show a limit kept.
BETWEEN_SAMPLES = 1.8

# The same for a simulated model's particles; of the eight batches that tell their error, too.
BETWEEN_PARTICLES = 2.5


class LimitsAsked(NamedTuple):
    """What a solver is told of limits.

    Attributes:
        limits: that are to be kept.
        objectives: of their losses.
        hopeless: whether it is proved that no policy keeps them; then the one that breaks them least is looked for.
        held_out: on how many draws policies are judged while they are searched for.
    """

    limits: tuple[Limit, ...]
    objectives: tuple[Objective, ...]
    hopeless: bool
    held_out: int


class LimitFindings(NamedTuple):
    """What a search found of the limits, in the user's units.

    Attributes:
        levels: `[L]` of the CVaR that stood in for each limit's chance; NaN without one.
        multipliers: `[L]` of the limits; NaN where no policy that keeps them was found.
        prices: `[L, 2]` what one unit more saves and what one unit less costs.
        told: `[L]` multipliers of the problem of one who is told theta; None where it has no planner.
        code: how the descent to the answer ended.
        moved: whether the largest sample still moved the answer.
    """

    levels: Float[np.ndarray, " L"]
    multipliers: Float[np.ndarray, " L"]
    prices: Float[np.ndarray, "L 2"]
    told: Float[np.ndarray, " L"] | None
    code: int
    moved: bool


class Verdict(enum.Enum):
    """Whether a limit is kept, as far as fresh draws tell.

    >>> import prudent as pr
    >>> pr.Verdict.KEPT.value
    'kept'
    """

    KEPT = "kept"
    BROKEN = "broken"
    OPEN = "not shown to be kept, nor broken"


class LimitAnswer(Record):
    """A limit and what the policy makes of it, on the draws of the solution's evaluation.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> limit = pr.Limit(pr.Visits([2], per=1), at_most=0.5, risk=pr.Expectation())
    >>> answer = pr.solve(lake, pr.Point([0.3, 0.1]), subject_to=[limit]).limits[0]
    >>> answer.verdict.value, answer.kept
    ('kept', 1.0)

    Attributes:
        limit: as it was asked for.
        evaluation: the limit's loss at each draw, and its risk; with a chance, the risk by which it was searched for.
        verdict: whether it is kept.
        upper: one-sided confidence limit of the risk; the risk itself where it is exact, NaN where there is none.
        kept: posterior probability that the loss itself is at most the limit.
        kept_interval: of that, exact binomial of 95 %; the probability itself where the draws are the whole posterior.
        multiplier: what the optimal risk falls by for one unit more of the limit, to first order on the draws that the
            policy was fitted to; with a chance, of the CVaR that stands in for it; NaN where no policy that keeps the
            limits was found.
        prices: what one unit more saves and what one unit less costs; the multiplier lies between them, and they differ
            at a corner of the frontier. The second is infinite where no policy near by keeps a tighter limit.
        least: `rho(min_pi D)` on the draws, which no policy gets below there; with a chance, the probability with which
            any policy could keep it; NaN where it is not known.
        unreachable: no policy keeps a limit below this: proved on atoms, else with 95 % confidence; NaN where it is not
            known.
        proved: whether it is proved that no policy keeps the limit.
        level: of the CVaR by which a limit with a chance was searched for; None without one.
    """

    limit: Limit
    evaluation: Evaluation
    verdict: Verdict = field(static=True)
    upper: float
    kept: float
    kept_interval: tuple[float, float]
    multiplier: float = float("nan")
    prices: tuple[float, float] = (float("nan"), float("nan"))
    least: float = float("nan")
    unreachable: float = float("nan")
    proved: bool = False
    level: float | None = None

    @property
    def value(self) -> float:
        """The risk of the limit's loss; with a chance, its quantile there."""
        if self.limit.chance is not None:
            return float(self.evaluation.quantile(self.limit.chance))
        return self.evaluation.risk

    @property
    def slack(self) -> float:
        """What is left of the limit; below 0 where it is broken, or by rounding."""
        return float(self.limit.at_most) - self.value

    @property
    def violation(self) -> np.ndarray:
        """`[M]` by how much the loss is above the limit at each draw; 0 where it is not."""
        return np.maximum(np.asarray(self.evaluation.losses) - float(self.limit.at_most), 0.0)

    @property
    def mean_violation(self) -> float:
        """Over the posterior."""
        return float(np.asarray(self.evaluation.probabilities) @ self.violation)

    def rows(self, number: int) -> list[tuple[str, str]]:
        """Lines of a solution's summary, as (label, text)."""
        limit, unit = self.limit, f" {self.limit.unit}" if self.limit.unit else ""
        exact = is_exact(self.evaluation)
        if limit.chance is None:
            sure = ""
            if not exact and np.isfinite(self.upper):
                sure = f", at most {self.upper:.4g} with {100.0 * (limit.confidence or 0.95):.4g} % confidence"
            stated = f"{self.value:.4g} of {float(limit.at_most):.4g}{unit}{sure}"
        else:
            stated = f"asked for with {limit.chance:.4g}, {float(limit.at_most):.4g}{unit}"
        low, high = self.kept_interval
        held = f"{self.kept:.2%}" + (" (exact)" if exact else f" ({low:.2%} to {high:.2%})")
        said = [
            (limit.called(number), f"{self.verdict.value}: {stated}; the loss is within it with probability {held}")
        ]
        price = price_words(self.multiplier, self.prices, limit.unit, lambda price: f"{price:.4g}")
        stands = "; of the CVaR that stands in for the chance" if limit.chance is not None else ""
        return said if price is None else [*said, ("", price + stands)]


def price_words(
    multiplier: float | None, prices: tuple[float | None, float | None], unit: str, shown: Callable[[float], str]
) -> str | None:
    """What a limit costs, in a sentence; None where that is not known.

    >>> price_words(2.0, (2.0, 2.0), "failures a year", str)
    'one unit more (failures a year) saves 2.0, to first order'
    >>> price_words(1.0, (0.0, 2.0), "", str)
    'one unit more saves nothing, one unit less costs 2.0, to first order'
    """
    saves, costs = prices
    if multiplier is None or saves is None or not np.isfinite(multiplier):
        return None
    one = f"one unit more{f' ({unit})' if unit else ''}"
    if costs is None or not np.isfinite(costs):
        # A record has no infinity.
        tighter = "" if costs is not None and np.isnan(costs) else "; no policy near this one keeps a tighter limit"
        return f"{one} saves {shown(saves) if saves > 0 else 'nothing'}, to first order{tighter}"
    if costs - saves <= CORNER * costs:
        return f"{one} saves {shown(multiplier) if multiplier > 0 else 'nothing'}, to first order"
    known = shown(saves) if saves > NOTHING * costs else "nothing"
    return f"{one} saves {known}, one unit less costs {shown(costs)}, to first order"


def independent(evaluation: Evaluation) -> float:
    """How many independent draws an evaluation counts for."""
    return len(evaluation.losses) / evaluation.draws.stretch**2


def limit_answer(limit: Limit, evaluation: Evaluation, **known: Any) -> LimitAnswer:
    """The verdict on fresh draws, or on all atoms; what is known beside it, by its field, is handed on."""
    losses = np.asarray(evaluation.losses)
    at_most = float(limit.at_most) + ROUNDING * float(np.abs(losses).max(initial=0.0))
    confidence = limit.confidence or 0.95
    kept = share_within(evaluation, at_most)
    if is_exact(evaluation):
        inside, upper = (kept, kept), evaluation.risk
        good = upper <= at_most if limit.chance is None else kept >= limit.chance - 1e-12
        broken = not good
    else:
        inside = _kept_between(evaluation, at_most, 0.95)
        low, upper = limits_of(evaluation, limit.risk, confidence)
        good, broken = upper <= at_most, low > at_most
        if limit.chance is not None:
            low, high = _kept_between(evaluation, at_most, 2.0 * confidence - 1.0)
            good, broken = low >= limit.chance, high < limit.chance
    verdict = Verdict.KEPT if good else Verdict.BROKEN if broken else Verdict.OPEN
    return LimitAnswer(limit, evaluation, verdict, float(upper), kept, inside, **known)


def is_exact(evaluation: Evaluation) -> bool:
    """Whether the draws are the whole posterior and the losses are no means over particles."""
    return evaluation.exact and evaluation.without is None


def particle_errors(evaluation: Evaluation) -> Float[np.ndarray, " M"]:
    """What the particles of a simulated model leave open of each draw's loss; 0 where losses are exact."""
    if evaluation.without is None:
        return np.zeros(len(evaluation.losses))
    left = np.asarray(evaluation.without)
    return np.sqrt((len(left) - 1) * left.var(axis=0))


def share_within(evaluation: Evaluation, at_most: Any) -> float:
    """Posterior probability of losses that are at most that."""
    return min(float(np.asarray(evaluation.probabilities)[np.asarray(evaluation.losses) <= at_most].sum()), 1.0)


def _kept_between(evaluation: Evaluation, at_most: float, confidence: float) -> tuple[float, float]:
    """An interval of the probability that a limit is kept; with particles, also where all of them err one way."""
    reach = particle_errors(evaluation)
    if evaluation.without is not None:
        reach *= float(stdtrit(len(evaluation.without) - 1, 0.5 + 0.5 * confidence))
    least, most = (share_within(evaluation, at_most - reach), share_within(evaluation, at_most + reach))
    if evaluation.exact:
        return least, most
    count = independent(evaluation)
    return share_interval(least, count, confidence)[0], share_interval(most, count, confidence)[1]


def limits_of(evaluation: Evaluation, risk: Any, confidence: float) -> tuple[float, float]:
    """One-sided confidence limits of a risk, from below and from above; NaN where the draws do not tell."""
    value, between = evaluation.risk, 2.0 * confidence - 1.0 if confidence > 0.5 else 1e-9
    if not np.all(np.isfinite(evaluation.interval)):
        return (value, value) if is_exact(evaluation) else (float("nan"), float("nan"))
    ends: tuple[float, float] = (value, value)
    if not evaluation.exact:
        inside = risk.interval(evaluation.losses, evaluation.probabilities, between)
        ends = stretched(value, inside, evaluation.draws)
    if evaluation.without is None:
        return ends
    return widened(value, ends, evaluation.particle_standard_error, len(evaluation.without), between)


def to_spare(limit: Limit, held: Evaluation) -> float:
    """What is kept to spare so that other draws show a limit kept: in its unit, or of a chance."""
    if limit.confidence is None or is_exact(held):
        return 0.0
    margin = float(ndtri(limit.confidence)) + BETWEEN_SAMPLES
    if limit.chance is not None:
        share = limit.chance * (1.0 - limit.chance)
        return 0.0 if held.exact else margin * np.sqrt(max(share, 1e-12) / independent(held))
    chance = particle_margin(limit.confidence) * held.particle_standard_error
    error = float(np.hypot(margin * held.risk_standard_error, chance))
    return error if np.isfinite(error) else 0.0


def particle_margin(confidence: float) -> float:
    """What twice as many other particles may differ by, and leave open themselves, in their standard errors."""
    return float(ndtri(confidence)) + BETWEEN_PARTICLES


def level_shown(limit: Limit, held: Evaluation) -> float:
    """The least level of a limit that a policy with these losses keeps with that to spare."""
    if limit.chance is not None:
        return float(held.quantile(min(limit.chance + to_spare(limit, held), 1.0)))
    return held.risk + to_spare(limit, held)
