"""A policy judged on draws of theta: the one record of it, and the one function that makes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from .arrays import Array, as_float, in_float64, require_finite, require_kind, require_size
from .errors import InputError, hinted
from .objectives import Evidence, Objective, losses_on, objective_of, relative_objective, replicates_on
from .posteriors import Posterior, WeightedDraws, equally_weighted
from .records import Record
from .risks import (
    LEAST_DRAWS,
    CVaR,
    Expectation,
    Risk,
    assess_closely,
    assess_sample,
    effective_draws,
    jackknife,
    sample_interval,
    widened,
)
from .seeds import Seed, as_seed

# Fresh draws of which a risk is reported: these, or as many as put this many into its tail where that is cheap: by what
# their draws take together, what is worked through, and their number.
USUAL_DRAWS, TAIL_DRAWS = 1000, 100
CHEAP_KERNELS, CHEAP_WORK, CHEAP_DRAWS = 2**27, 2**29, 100_000

# With fewer draws in the tail an interval may hold less than it says, which its line then mentions.
FEW_IN_TAIL = 30


def plus_minus(value: float, error: float) -> str:
    """A number with its standard error, or without one where there is none."""
    return f"{value:.4f} ± {error:.4f}" if np.isfinite(error) else f"{value:.4f} ± unknown"


class Evaluation(Record):
    """A policy's losses over draws of theta, their risk, and how well that is known.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.evaluate(np.full((4, 4), 0.25), lake, pr.Point([0.3, 0.1]), samples=10)
    >>> result.quantile([0.5, 0.95]).round(3).tolist()
    [22.523, 22.523]

    Attributes:
        draws: the draws with their probabilities.
        losses: `[M]` at each.
        risk: the risk asked for.
        weights: `[M]` the density xi* that attains it.
        influence: `[M]` derivative of the risk by each draw's probability, centred; NaN where there is none.
        risk_standard_error: Monte-Carlo error of the risk, of draws and particles together; 0 where there is none.
        interval: its 95 % confidence interval; the risk itself on a whole posterior, NaN where none can be had.
        truncation: mass of the occupancy a truncated method may leave out, 0 for an exact one.
        evidence: what the risk stands on: sound, thin or unsupported; None where it was not asked.
        notes: what else the model says of the policy, such as a `Stability`; None where that is nothing.
        without: `[B, M]` losses of a simulated model without each batch of its particles; None where losses are exact.
        particle_standard_error: what the particles of a simulated model leave open of the risk, by the jackknife over
            their batches; 0 where losses are exact.
    """

    draws: WeightedDraws
    losses: Float[Array, " M"]
    risk: float
    weights: Float[Array, " M"]
    influence: Float[Array, " M"]
    risk_standard_error: float
    interval: tuple[float, float]
    truncation: float = 0.0
    evidence: Evidence | None = None
    notes: Any = None
    without: Float[Array, "B M"] | None = None
    particle_standard_error: float = 0.0

    def __repr__(self) -> str:
        risk = f"{self.risk:.4f}, exact" if self.exact else plus_minus(self.risk, self.risk_standard_error)
        if not len(self.losses):
            return "Evaluation(not judged)"
        return f"Evaluation(risk {risk}, mean {self.mean:.4f}, {len(self.losses):,} draws)"

    @staticmethod
    def none() -> Evaluation:
        """Of a policy that was not judged."""
        nothing, nan = np.zeros(0), float("nan")
        return Evaluation(WeightedDraws(nothing, nothing, False), nothing, nan, nothing, nothing, nan, (nan, nan))

    @property
    def thetas(self) -> Float[Array, "M ..."]:
        """The draws of theta."""
        return self.draws.thetas

    @property
    def probabilities(self) -> Float[Array, " M"]:
        """Of the draws: equal, or those of the posterior's atoms."""
        return self.draws.probabilities

    @property
    def exact(self) -> bool:
        """Whether the draws are the whole posterior; then there is no Monte-Carlo error."""
        return self.draws.exact

    @property
    def draw_standard_error(self) -> float:
        """What the posterior draws leave open of the risk, were the losses exact; 0 on a whole posterior."""
        return float(np.sqrt(max(0.0, self.risk_standard_error**2 - self.particle_standard_error**2)))

    @property
    def mean(self) -> float:
        """The mean loss."""
        return float(np.asarray(self.probabilities) @ np.asarray(self.losses))

    @property
    def mean_standard_error(self) -> float:
        """Monte-Carlo error of the mean loss."""
        return self.under(Expectation()).risk_standard_error

    def quantile(self, levels: Any) -> np.ndarray:
        """Quantiles of the loss distribution, the value at risk of each level."""
        shares = np.asarray(self.probabilities)
        return np.quantile(np.asarray(self.losses), levels, weights=shares, method="inverted_cdf")

    def under(self, risk: Risk) -> Evaluation:
        """Any other risk on the same draws."""
        return judged(risk, np.asarray(self.losses), self.draws, self.truncation, self.without)

    def infinite(self) -> bool:
        """Whether a loss is infinite, and none is NaN."""
        losses = np.asarray(self.losses)
        return bool(np.any(losses == np.inf) and not np.any(np.isnan(losses)))

    def finite(self) -> bool:
        """Whether the risk and all losses are numbers."""
        return bool(np.isfinite(self.risk) and np.all(np.isfinite(self.losses)))

    def error_of_difference(self, other: Evaluation) -> float:
        """Standard error of the difference of two risks on the same draws; of the losses', where a risk has none."""
        if self.infinite() or other.infinite():
            return 0.0 if self.exact else float("nan")
        share, chance = np.asarray(self.probabilities), 0.0
        if self.without is not None and other.without is not None:
            # Both met the same particles, which so hide less of the difference than of each risk.
            chance = jackknife(self.without @ (share * self.weights) - other.without @ (share * other.weights))
        if self.exact:
            return chance
        if len(self.losses) == 1:
            return float("nan")
        difference = self.influence - other.influence
        if not np.all(np.isfinite(difference)):
            difference = self.losses - other.losses
        spread = self.draws.stretch * float(np.sqrt(((share * (difference - share @ difference)) ** 2).sum()))
        return float(np.hypot(spread, chance))

    def clearly_above(self, other: Evaluation) -> bool:
        """Whether the risk is larger than another's on the same draws, beyond what chance explains."""
        noise = self.error_of_difference(other)
        noise = 0.0 if np.isnan(noise) else noise
        size = float(np.abs(np.concatenate([self.losses, other.losses])).max())
        return bool(self.risk - other.risk > 5.0 * noise + 1e-9 * size)

    def risk_rows(self) -> list[tuple[str, str]]:
        """What is known of the risk, as (label, text)."""
        count, chance = len(self.losses), self.particle_standard_error
        if self.exact and self.without is None:
            return [("risk", f"{self.risk:.4f} (exact: all {count} atoms of the posterior)")]
        low, high = self.interval
        told = bool(np.isfinite([low, high]).all())
        known = f"{low:.4f} to {high:.4f} ({self.confidence})" if told else "none can be had"
        draws = f"all {count} atoms of the posterior" if self.exact else f"{count} fresh draws"
        parts = f"{self.draw_standard_error:.4f} by posterior draws, {chance:.4f} by particles"
        return [
            ("risk", f"{plus_minus(self.risk, self.risk_standard_error)} (standard error, {draws})"),
            *([] if self.without is None else [("of which", parts)]),
            ("interval", known),
        ]

    @property
    def confidence(self) -> str:
        """What the interval holds: few draws in the tail may not show how it spreads."""
        if self.exact:
            return "exact" if self.without is None else "95 %"
        in_tail = effective_draws(self.weights, self.probabilities)
        return "95 %" if in_tail >= FEW_IN_TAIL else f"95 % nominally: only {in_tail:.0f} draws in the tail"

    def note_rows(self) -> list[tuple[str, str]]:
        """What else the model says of the policy."""
        return [] if self.notes is None else self.notes.rows()

    def truncation_rows(self) -> list[tuple[str, str]]:
        """What a truncated occupancy leaves out; nothing for an exact one."""
        left_out = f"at most {self.truncation:.3g} of the occupancy's mass left out"
        return [("truncation", left_out)] if self.truncation else []

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the printed summary, as (label, text)."""
        low, middle, high = self.quantile([0.05, 0.5, 0.95])
        known = self.exact and self.without is None
        mean = f"{self.mean:.4f}" if known else plus_minus(self.mean, self.mean_standard_error)
        return [
            ("mean loss", mean),
            *self.risk_rows(),
            *([] if self.evidence is None else self.evidence.rows()),
            *self.note_rows(),
            ("5 %, 50 %, 95 %", f"{low:.4f}, {middle:.4f}, {high:.4f}"),
            *self.truncation_rows(),
        ]

    def __str__(self) -> str:
        return in_columns(self.rows())


def in_columns(rows: list[tuple[str, str]]) -> str:
    """Labels and texts side by side."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


@in_float64
def judged(
    risk: Risk, losses: np.ndarray, draws: WeightedDraws, truncation: float = 0.0, without: Any = None
) -> Evaluation:
    """The risk of losses on draws, and how well it is known; `[B, M]` losses without a batch of particles each."""
    known = _judged(risk, losses, draws, truncation)
    if without is None:
        return known
    chance = jackknife([float(assess_sample(risk, row, draws.probabilities)[0]) for row in without])
    return dataclasses.replace(
        known,
        without=without,
        particle_standard_error=chance,
        risk_standard_error=float(np.hypot(known.risk_standard_error, chance)),
        interval=widened(known.risk, known.interval, chance, len(without)),
    )


def _judged(risk: Risk, losses: np.ndarray, draws: WeightedDraws, truncation: float) -> Evaluation:
    found, share = assess_closely(risk, losses, draws.probabilities), draws.probabilities
    value, weights, influence, _ = found
    if np.any(np.isinf(losses)):
        nan = float("nan")
        return Evaluation(draws, losses, value, weights, np.full(len(losses), nan), nan, (nan, nan), truncation)
    influence = influence - share @ influence
    if draws.exact:
        return Evaluation(draws, losses, value, weights, influence, 0.0, (value, value), truncation)
    error = draws.stretch * float(np.sqrt(((share * influence) ** 2).sum())) if len(losses) > 1 else float("nan")
    interval = (float("nan"), float("nan"))
    # The posterior's own draws must be enough for the tail: drawn again and again they only look like more.
    told = effective_draws(weights, share) / len(draws) * draws.behind >= LEAST_DRAWS
    if np.all(np.isfinite(losses)) and told:
        interval = stretched(value, sample_interval(found, losses, share), draws)
    return Evaluation(draws, losses, value, weights, influence, error, interval, truncation)


def stretched(value: float, interval: tuple[float, float], draws: WeightedDraws) -> tuple[float, float]:
    """An interval of independent draws, with the error of what they were drawn from."""
    low, high = (value + draws.stretch * (end - value) for end in interval)
    return low, high


def judge(objective: Objective, risk: Risk, point: np.ndarray, draws: WeightedDraws) -> Evaluation:
    """A point's losses on draws, and their risk."""
    if objective.by_chance:
        losses, without = replicates_on(objective, point, draws.thetas)
        return judged(risk, losses, draws, objective.truncation, without)
    return judged(risk, losses_on(objective, point[None], draws.thetas)[0], draws, objective.truncation)


def usual_draws(objective: Objective, risk: Risk) -> int:
    """How many fresh draws a risk is reported on when nobody says: its tail holds a hundred of them where cheap."""
    sample = equally_weighted(np.zeros(USUAL_DRAWS))
    _, weights, influence, _ = assess_closely(risk, np.linspace(0.0, 1.0, USUAL_DRAWS), sample.probabilities)
    if not np.all(np.isfinite(influence)):
        # Without an interval there is nothing that more draws would narrow.
        return USUAL_DRAWS
    in_tail = USUAL_DRAWS**2 / float((weights**2).sum())
    return int(max(USUAL_DRAWS, min(cheap_draws(objective), round(USUAL_DRAWS * TAIL_DRAWS / in_tail))))


def cheap_draws(objective: Objective) -> int:
    """Return the number of draws that a policy is judged on at little cost."""
    size = objective.size()
    return min(CHEAP_KERNELS // size.theta_bytes, CHEAP_WORK // size.bytes, CHEAP_DRAWS)


def check_question(objective: Objective, beliefs: list[Posterior], risks: list[Risk]) -> None:
    """Beliefs and risks are what they should be, and the beliefs are about this objective's theta."""
    for belief in beliefs:
        require_kind("belief", belief, Posterior, "a posterior such as family.prior.update(log)")
        objective.check_belief(belief)
    for risk in risks:
        require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")


@hinted
@in_float64
def evaluate(
    policy: Any,
    model: Any,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Any = None,
    occupancy: Any = None,
    relative_to: Any = None,
    samples: int | None = None,
    seed: Seed = 1,
) -> Evaluation:
    """The loss distribution of a policy over fresh posterior draws.

    Args:
        policy: for tables, a `TabularPolicy` or an array `[S, A]`, the user's own included.
        model: the family, or any `Objective`.
        belief: posterior of theta.
        risk: `CVaR(0.9)` when left out.
        loss: expected discounted cost when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        relative_to: a policy whose loss is taken off at each draw, or "best" for the least loss of each draw.
        samples: number of draws; when left out, 1000, or as many as put a hundred into the risk's tail where that is
            cheap. The atoms of a posterior that is a few of them are used whole, whatever is said here.
        seed: policies evaluated under one seed meet the same draws, so their differences are sharp.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.evaluate(np.full((4, 4), 0.25), lake, lake.prior, samples=200)
    >>> bool(result.risk > result.mean)
    True
    """
    risk = CVaR(0.9) if risk is None else risk
    objective = objective_of(model, loss=loss, occupancy=occupancy)
    if relative_to is not None:
        objective = relative_objective(objective, relative_to)
    check_question(objective, [belief], [risk])
    objective = objective.holding(policy)
    point = objective.point_from(policy)
    draws = belief.as_atoms()
    if draws is None:
        count = usual_draws(objective, risk) if samples is None else samples
        draws = equally_weighted(belief.sample(as_seed(seed), count), belief.behind)
    elif samples is not None:
        require_size("the number of draws", samples)
    objective.check(draws.thetas)
    result = judge(objective, risk, point, draws)
    notes = objective.notes(belief, point, draws)
    if result.infinite() and objective.infinite():
        return dataclasses.replace(result, notes=notes)
    if not np.all(np.isfinite(result.losses)):
        worst = int(np.argmax(~np.isfinite(result.losses)))
        where, value = draws.thetas[worst], result.losses[worst]
        raise InputError(f"the loss is {value} at the posterior draw theta = {where}; check the loss")
    evidence = objective.evidence(belief, risk, point, result, as_seed(seed))
    return dataclasses.replace(result, evidence=evidence, notes=notes)


@hinted
@in_float64
def loss_at(policies: Any, model: Any, theta: Any, *, loss: Any = None, occupancy: Any = None) -> Any:
    """The loss of a policy at one known theta, for example the truth.

    Args:
        policies: one policy, or a list of them (then an array comes back, from one compiled call).
        model: the family, or any `Objective`.
        theta: the parameter.
        loss: expected discounted cost when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.

    >>> import numpy as np, prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> round(float(pr.loss_at(np.full((4, 4), 0.25), lake, (0.3, 0.1))), 3)
    22.523
    """
    many = isinstance(policies, list | tuple)
    if many and not policies:
        raise InputError("loss_at needs at least one policy, got an empty list")
    objective = objective_of(model, loss=loss, occupancy=occupancy)
    theta = np.asarray(as_float(theta))
    require_finite("theta", theta)
    objective.check(theta[None])
    given = policies if many else [policies]
    if objective.by_chance:
        own = [objective.holding(policy) for policy in given]
        pairs = zip(own, given, strict=True)
        losses = np.array([replicates_on(one, one.point_from(policy), theta[None])[0][0] for one, policy in pairs])
    else:
        points = np.stack([objective.point_from(policy) for policy in given])
        losses = losses_on(objective, points, theta[None])[:, 0]
    return losses if many else losses[0]
