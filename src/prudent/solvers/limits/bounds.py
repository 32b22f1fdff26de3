"""What is proved beside a policy with limits: that none keeps them, and what none that does can beat.

The latter comes from the same problem for one who is told theta before acting. For densities xi, zeta_j of the risks'
envelopes and multipliers mu >= 0, every policy that keeps the limits has

    rho_0(C) >= E[xi C] + sum_j mu_j (E[zeta_j D_j] - d_j) >= E[ min_pi (xi C + sum_j mu_j zeta_j D_j) ] - mu d.

The right side needs one plan at each draw and holds for any xi, zeta, mu: a bound, whether or not strong duality does.
The best of them is found by columns and planes. A master program mixes, at each draw by itself, the losses of plans
found so far, under planes of the risks; its multipliers are densities and mu; the plans for them are new columns, and
prove the bound. The same with the breach alone in the place of the objective proves that no policy keeps all limits
together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.special import betaincinv, stdtrit

from ...evaluation import Evaluation, judged
from ...objectives import Objective, losses_on, slopes_on
from ...posteriors import WeightedDraws, equally_weighted
from ...risks import Risk
from ..certificates import Certificate, certify, least_losses
from .answer import independent, limits_of, share_interval, share_within
from .limit import Limit
from .problem import LimitQuestion

# Draws that are planned for: of each limit by itself, of the bound, and in how many batches for its confidence.
PLANNED, BOUND_DRAWS, BATCHES = 2048, 400, 8

# What a number may be off by rounding, as a share of its size.
ROUNDING = 1e-9

# Rounds at most, of a batch, too; a bound this close to the master's value, and planes this close to the risks, as a
# share of what the losses differ by, are good enough.
ROUNDS, BATCH_ROUNDS, CLOSE, CUT = 40, 12, 1e-4, 1e-5

# What a breach costs that is too dear to pay, in units of the objective for one of the limit.
DEAR = 1e5


class Least(NamedTuple):
    """What no policy gets a limit's loss below.

    Attributes:
        least: on the draws that were planned for; with a chance, the probability with which any policy could keep it.
        unreachable: levels below this are proved to be kept by no policy; NaN where nothing is.
        proved: whether the limit itself is.
    """

    least: float = float("nan")
    unreachable: float = float("nan")
    proved: bool = False


class Infeasibility(NamedTuple):
    """Whether no policy keeps the limits: for certain on atoms, else with 95 % confidence.

    Attributes:
        single: of each limit by itself.
        together: whether they are proved to contradict one another.
    """

    single: tuple[Least, ...]
    together: bool

    @property
    def proved(self) -> bool:
        """Of any limit, or of all together."""
        return self.together or any(each.proved for each in self.single)


def infeasible(
    objectives: Sequence[Objective], limits: tuple[Limit, ...], draws: WeightedDraws, point: np.ndarray
) -> Infeasibility:
    """`rho(min_pi D) > d` for a limit by itself; for several, a weighted sum of them that no policy keeps."""
    planned = draws if draws.exact else draws.first(PLANNED)
    # Each of several limits may be said to be impossible by chance: together they are no more often than one.
    confidence = 1.0 - 0.05 / (len(limits) + 1)
    pairs = zip(objectives[1:], limits, strict=True)
    single = Infeasibility(tuple(_least(*pair, planned, point, confidence) for pair in pairs), False)
    if single.proved or len(limits) == 1:
        return single
    return single._replace(together=_contradictory(objectives, limits, planned, point, confidence))


def _least(objective: Objective, limit: Limit, draws: WeightedDraws, point: np.ndarray, confidence: float) -> Least:
    lows, _ = least_losses(objective, limit.risk, draws, point)
    if lows is None:
        return Least()
    # What is below the loss's own range says nothing.
    floor = objective.loss_range(draws.thetas if draws.exact else draws.thetas[:4])[0]
    least, at_most = judged(limit.risk, lows, draws.first(len(lows))), float(limit.at_most)
    if limit.chance is not None:
        kept = share_within(least, at_most)
        most = kept if least.exact else share_interval(kept, independent(least), 2.0 * confidence - 1.0)[1]
        low = _quantile_limit(least, limit.chance, confidence)
        return Least(kept, low if low > floor else float("nan"), bool(most < limit.chance - 1e-12))
    low = limits_of(least, limit.risk, confidence)[0] - ROUNDING * float(np.abs(lows).max()) * least.exact
    return Least(least.risk, float(low) if low > floor else float("nan"), bool(low > at_most))


def _quantile_limit(least: Evaluation, chance: float, confidence: float) -> float:
    """Below this the chance is out of reach: the quantile of what is least, or its confidence limit by ranks."""
    if least.exact:
        return float(least.quantile(chance)) - ROUNDING * float(np.abs(np.asarray(least.losses)).max())
    below = np.arange(len(least.losses))
    counts = independent(least) / len(below) * np.stack([below, len(below) - below])
    # With so many losses below a level, this is the largest probability that they may have come from.
    most = betaincinv(counts[0] + 1.0, counts[1], confidence)
    out = np.flatnonzero(most < chance)
    return float(np.sort(np.asarray(least.losses))[out[-1]]) if len(out) else float("nan")


def _question(
    objectives: Sequence[Objective], limits: tuple[Limit, ...], risk: Risk, draws: WeightedDraws, point: np.ndarray
) -> LimitQuestion:
    """The limits in a risk; those with a chance have no bound of this kind and are left out, which keeps it one."""
    kept = [j for j, limit in enumerate(limits) if limit.chance is None]
    chosen = (objectives[0], *(objectives[j + 1] for j in kept))
    units = []
    for objective in chosen:
        losses = losses_on(objective, point[None], draws.thetas)[0]
        units.append(max(float(np.ptp(losses)), 1e-6 * float(np.abs(losses).max())) or 1.0)
    risks = (risk, *(limits[j].risk for j in kept))
    return LimitQuestion(chosen, risks, draws, np.array([float(limits[j].at_most) for j in kept]), np.array(units))


def _contradictory(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    draws: WeightedDraws,
    point: np.ndarray,
    confidence: float,
) -> bool:
    """Whether a weighted sum of the limits is more than any policy can keep."""
    few = draws if draws.exact else draws.first(BOUND_DRAWS)
    question = _question(objectives, limits, limits[0].risk, few, point)
    if question.limits < 2:
        return False
    half = len(few) if few.exact else len(few) // 2
    found = relaxed(question._replace(draws=few.first(half)), point, feasibility=True)
    if found is None or (not few.exact and not (found.bound > 0 and _biased_low(question))):
        return False
    if few.exact:
        return found.bound > ROUNDING * float(found.multipliers @ np.abs(question.aims) + 1.0)
    # The weights of the limits come from other draws than those that judge them.
    rest, prices = equally_weighted(few.thetas[half:], few.behind), found.multipliers
    low = _batched(question._replace(draws=rest), confidence, lambda batch: _priced_breach(batch, point, prices))
    return low is not None and low > 0.0


def _biased_low(question: LimitQuestion) -> bool:
    return all(risk.biased_low for risk in question.risks)


def _batched(
    question: LimitQuestion, confidence: float, bound_on: Callable[[LimitQuestion], float | None]
) -> float | None:
    """A lower confidence limit of the bound at fixed multipliers, from batches; None where there is none.

    On a batch of draws the Lagrangian of any one policy is on average at most what it is under the posterior, for risks
    that are biased low. So the mean over batches of what no policy can beat there is below what none can beat there.
    """
    size, found = len(question.draws) // BATCHES, []
    for b in range(BATCHES):
        batch = equally_weighted(question.draws.thetas[b * size : (b + 1) * size])
        bound = bound_on(question._replace(draws=batch))
        if bound is None or not np.isfinite(bound):
            return None
        found.append(bound)
    values = np.array(found)
    error = float(values.std(ddof=1)) / np.sqrt(BATCHES) * question.draws.stretch
    return float(values.mean() - stdtrit(BATCHES - 1, confidence) * error)


def _priced(question: LimitQuestion, point: np.ndarray, multipliers: np.ndarray) -> float | None:
    """`min_pi rho_0(C) + sum_j mu_j (rho_j(D_j) - d_j)` from below, on a batch."""
    found = relaxed(question, point, multipliers=multipliers, rounds=BATCH_ROUNDS)
    return None if found is None else found.bound


def _priced_breach(question: LimitQuestion, point: np.ndarray, multipliers: np.ndarray) -> float | None:
    """`min_pi sum_j mu_j (rho_j(D_j) - d_j)` from below: the first priced limit takes the objective's place."""
    lead = int(np.argmax(multipliers))
    if not multipliers[lead] > 0:
        return None
    others = [j for j in range(len(multipliers)) if j != lead]
    order = [lead + 1, *(j + 1 for j in others)]
    turned = question._replace(
        objectives=tuple(question.objectives[g] for g in order),
        risks=tuple(question.risks[g] for g in order),
        aims=question.aims[others],
        units=question.units[order],
    )
    bound = _priced(turned, point, multipliers[others] / multipliers[lead])
    return None if bound is None else multipliers[lead] * (bound - question.aims[lead])


def certified(
    objectives: Sequence[Objective],
    limits: tuple[Limit, ...],
    risk: Risk,
    point: np.ndarray,
    answer: Evaluation,
    in_sample: float,
    multipliers: Float[np.ndarray, " L"] | None,
    proved: bool,
) -> Certificate:
    """The certificate of a policy with limits: no policy that keeps them has a smaller risk than its bound.

    Args:
        objectives: of the loss that is minimised, then of each limit.
        limits: what is to be kept.
        risk: that was minimised.
        point: the policy's.
        answer: the policy on fresh draws.
        in_sample: the objective on the draws the policy was fitted to.
        multipliers: from other draws, at which a bound for the whole posterior is asked for.
        proved: whether no policy keeps the limits.
    """
    plain = certify(objectives[0], point, answer, risk, None, in_sample)
    if proved:
        nothing = dict.fromkeys(("lower_bound", "lower_bound_standard_error", "gap", "gap_limit"))
        return dataclasses.replace(plain, **nothing, reason="no policy keeps the limits, so there is nothing to bound")
    draws = answer.draws if answer.exact else answer.draws.first(BOUND_DRAWS)
    question = _question(objectives, limits, risk, draws, point)
    found = relaxed(question, point) if question.limits and risk.coherent else None
    if found is None or not np.isfinite(found.bound):
        return plain
    ours = judged(risk, np.asarray(answer.losses)[: len(draws)], draws)
    # The policy may break a limit on these draws, and then be below what no policy that keeps it can beat.
    bound = found.bound
    if plain.lower_bound is not None and plain.draws == len(draws):
        bound = max(bound, plain.lower_bound)
    limit = max(ours.risk - bound, 0.0) if draws.exact else None
    if not draws.exact and multipliers is not None and _biased_low(question) and question.limits == len(limits):
        low = _batched(question, 0.975, lambda batch: _priced(batch, point, multipliers))
        high = limits_of(answer, risk, 0.975)[1]
        limit = None if low is None or not np.isfinite(high) else max(high - low, ours.risk - bound)
    return dataclasses.replace(
        plain,
        lower_bound=bound,
        lower_bound_standard_error=0.0 if draws.exact else float("nan"),
        reason="",
        risk=ours.risk,
        gap=max(ours.risk - bound, 0.0),
        gap_limit=limit,
        confidence="exact" if draws.exact else answer.confidence,
        draws=len(draws),
        exact=draws.exact,
        limited=True,
    )


class RelaxedLimits(NamedTuple):
    """The problem of one who is told theta.

    Attributes:
        bound: no policy that keeps the limits has a smaller risk on these draws; -inf where none was found.
        multipliers: `[L]` behind it.
        weights: `[G, R]` behind it: `p xi` of the objective, `mu_j p zeta_j` of each limit.
        points: of plans, some for each draw; `owner` says of which draw each is and `share` how much of its mixture.
        visits: `[P, S]` of the plans' rows; empty without a table.
    """

    bound: float
    multipliers: Float[np.ndarray, " L"]
    weights: Float[np.ndarray, "G R"]
    points: Float[np.ndarray, "P ..."]
    owner: np.ndarray
    share: Float[np.ndarray, " P"]
    visits: Float[np.ndarray, "P S"]


class Columns:
    """Plans found so far with all their losses; each belongs to a draw."""

    def __init__(self, question: LimitQuestion, point: np.ndarray):
        """Begun with one point at every draw."""
        self.question = question
        self.known: set[tuple[int, bytes]] = set()
        draws = len(question.draws)
        self.losses, self.owner = np.zeros((len(question.objectives), 0)), np.zeros(0, int)
        self.points, self.visits = np.zeros((0, *point.shape)), None
        self.add(np.repeat(point[None], draws, axis=0), np.ones(draws, bool))

    def add(self, points: Float[np.ndarray, "R ..."], wanted: np.ndarray) -> int:
        """A plan for each of the draws that are wanted; how many were new."""
        rows = [(r, np.asarray(point).tobytes()) for r, point in enumerate(points)]
        new = np.array([r for r, name in enumerate(rows) if wanted[r] and name not in self.known], int)
        if not len(new):
            return 0
        self.known.update(rows[r] for r in new)
        thetas, here = self.question.draws.thetas[new], np.arange(len(new))
        found = [slopes_on(objective, points[new], thetas, here, here) for objective in self.question.objectives]
        finite = np.all([np.isfinite(each.losses) for each in found], axis=0)
        self.losses = np.concatenate([self.losses, np.stack([each.losses for each in found])[:, finite]], axis=1)
        self.points = np.concatenate([self.points, points[new][finite]])
        visits = found[0].visits[finite]
        self.visits = visits if self.visits is None else np.concatenate([self.visits, visits])
        self.owner = np.concatenate([self.owner, new[finite]])
        return int(finite.sum())


def relaxed(
    question: LimitQuestion,
    point: np.ndarray,
    *,
    multipliers: np.ndarray | None = None,
    feasibility: bool = False,
    rounds: int = ROUNDS,
) -> RelaxedLimits | None:
    """The relaxation on the question's draws; None where weighted sums of the losses cannot be planned for.

    Args:
        question: whose `aims` are the limits themselves.
        point: a policy to begin at.
        multipliers: with these the breach is priced, not forbidden; they are then those behind the bound.
        feasibility: whether the objective is left out, so that a bound above 0 proves that no policy keeps all limits.
        rounds: at most.
    """
    plans = [objective.plans() for objective in question.objectives]
    if any(each is None for each in plans) or not all(r.coherent and r.monotone for r in question.risks):
        return None
    lead: Any = plans[0]
    draws, groups = len(question.draws), len(plans)
    columns = Columns(question, point)
    if len(columns.owner) < draws:
        return None
    # A plan of each loss by itself: the objective's would be best without limits, a limit's keeps it best.
    weigh = lead.weighted(plans[1:], question.draws.thetas)
    if weigh is None:
        return None
    for g in range(groups):
        columns.add(weigh(np.repeat(np.eye(groups)[g][:, None], draws, axis=1)).points, np.ones(draws, bool))
    planes = [(g, question.weights(g, columns.losses[g, :draws])) for g in range(groups)]
    gain = max(float(question.units[1:].max()) if feasibility else question.units[0], 1e-300)
    best, kept, mixture = -np.inf, (np.zeros(groups - 1), np.zeros((groups, draws))), None
    for _ in range(rounds):
        master = _master(columns, planes, feasibility, multipliers)
        if master is None:
            break
        mixture, weights, mu, value = master
        mixed = np.stack([np.bincount(columns.owner, mixture * row, minlength=draws) for row in columns.losses])
        total = weights.sum(axis=0)
        found = weigh(weights / np.where(total > 0, total, 1.0))
        bound = float((total * found.least)[total > 0].sum() - mu @ question.aims)
        if bound > best:
            best, kept = bound, (mu, weights)
        # Planes below the risks of the mixtures: until they are none the master's own value is too low.
        cuts = []
        for g in range(groups):
            own = question.weights(g, mixed[g])
            below = max(float(w @ mixed[g]) for group, w in planes if group == g)
            cuts += [(g, own)] if below < own @ mixed[g] - CUT * question.units[g] else []
        if value - best <= CLOSE * gain and not cuts:
            break
        planes += cuts
        if not columns.add(found.points, total > 0) and not cuts:
            break
    if mixture is None:
        return None
    owner = columns.owner
    share = np.concatenate([mixture, np.zeros(len(owner) - len(mixture))]) * question.draws.probabilities[owner]
    return RelaxedLimits(best, *kept, columns.points, owner, share, np.asarray(columns.visits))


def _master(
    columns: Columns, planes: list[tuple[int, np.ndarray]], feasibility: bool, multipliers: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float] | None:
    """Mixtures of each draw's plans: their shares, the weights and multipliers of the program, its value.

    Variables are the shares, then what each loss's planes are at most, above a reference, then each limit's breach.
    """
    question, losses, owner = columns.question, columns.losses, columns.owner
    draws, groups, count, units = len(question.draws), len(losses), losses.shape[1], question.units
    limits, group = groups - 1, np.array([g for g, _ in planes])
    reference = np.concatenate([[float(losses[0].mean())], question.aims])
    level = -np.eye(groups)[group]
    rows = np.stack([w[owner] * losses[g] / units[g] for g, w in planes])
    upper = sparse.hstack([sparse.csr_matrix(rows), level, sparse.csr_matrix((len(planes), limits))])
    # A limit's level is at most its breach, which has a price; a priced limit has its level in the objective.
    below = sparse.hstack([sparse.csr_matrix((limits, count + 1)), sparse.eye(limits), -sparse.eye(limits)])
    simplex = sparse.csr_matrix((np.ones(count), (owner, np.arange(count))), shape=(draws, count))
    low = np.concatenate([np.zeros(count), np.full(groups, -np.inf), np.zeros(limits)])
    if feasibility:
        # The objective's level is not in the program; held so that it is bounded.
        low[count], dear = -1e12, np.ones(limits)
    elif multipliers is None:
        # With no price at all, a limit that cannot be kept would leave the program without a solution.
        dear = np.full(limits, DEAR)
    else:
        low[count + groups :], dear = -np.inf, multipliers * (units[1:] / units[0])
    from scipy.optimize import linprog  # slow to import

    answer = linprog(
        np.concatenate([np.zeros(count), [0.0 if feasibility else 1.0], np.zeros(limits), dear]),
        A_ub=sparse.vstack([upper, below]).tocsr(),
        b_ub=np.concatenate([reference[group] / units[group], np.zeros(limits)]),
        A_eq=sparse.hstack([simplex, sparse.csr_matrix((draws, groups + limits))]).tocsr(),
        b_eq=np.ones(draws),
        bounds=np.stack([low, np.full(len(low), np.inf)], axis=1),
        method="highs",
    )
    if answer.status != 0:
        return None
    shares = np.maximum(answer.x[:count], 0.0)
    raw = np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(planes)], 0.0)
    weights, mu = np.zeros((groups, draws)), np.zeros(groups)
    for (g, w), amount in zip(planes, raw, strict=True):
        factor = amount if feasibility else amount * units[0] / units[g]
        weights[g] += factor * w
        mu[g] += factor
    if feasibility:
        # Breaches in units of their own: multipliers are of one unit each.
        weights[1:] /= units[1:, None]
        weights[0] = 0.0
        return shares, weights, mu[1:] / units[1:], float(answer.fun)
    if not mu[0] > 0:
        return None
    weights[0] /= mu[0]
    if multipliers is not None:
        # The program's own sums to what was asked for only up to its tolerance.
        factor = np.where(mu[1:] > 0, multipliers / np.where(mu[1:] > 0, mu[1:], 1.0), 0.0)
        weights[1:] *= factor[:, None]
        mu[1:] = np.where(factor != 0.0, multipliers, 0.0)
    return shares, weights, mu[1:], float(reference[0] + units[0] * answer.fun)
