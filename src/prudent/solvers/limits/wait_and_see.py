"""What no policy that keeps the limits can beat: the same problem for one who is told theta before acting.

For densities xi, zeta_j of the risks' envelopes and multipliers mu >= 0, every policy that keeps the limits has

    rho_0(C) >= E[xi C] + sum_j mu_j (E[zeta_j D_j] - d_j) >= E[ min_pi (xi C + sum_j mu_j zeta_j D_j) ] - mu d.

The right side needs one plan at each draw and holds for any xi, zeta, mu: a bound, whether or not strong duality does.
The best of them is found by columns and planes. A master program mixes, at each draw by itself, the losses of plans
found so far, under planes of the risks; its multipliers are densities and mu; the plans for them are new columns, and
prove the bound. The same with the breach alone in the place of the objective proves that no policy keeps all limits
together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ...objectives import slopes_on
from .problem import LimitQuestion

# Rounds at most; a bound this close to the master's value, and planes this close to the risks, as a share of what the
# losses differ by, are good enough.
ROUNDS, CLOSE, CUT = 40, 1e-4, 1e-5


class RelaxedLimits(NamedTuple):
    """The problem of one who is told theta.

    Attributes:
        bound: no policy that keeps the limits has a smaller risk on these draws; -inf where none was found.
        multipliers: `[L]` behind it.
        weights: `[G, R]` behind it: `p xi` of the objective, `mu_j p zeta_j` of each limit.
        points: of plans, some for each draw; `owner` says of which draw each is and `share` how much of its mixture.
        visits: `[P, S]` of the plans' rows; empty without a table.
        breach: `[L]` what is left of each limit's breach in the master program.
    """

    bound: float
    multipliers: Float[np.ndarray, " L"]
    weights: Float[np.ndarray, "G R"]
    points: Float[np.ndarray, "P ..."]
    owner: np.ndarray
    share: Float[np.ndarray, " P"]
    visits: Float[np.ndarray, "P S"]
    breach: Float[np.ndarray, " L"]


class Columns:
    """Plans found so far with all their losses; each belongs to a draw."""

    def __init__(self, question: LimitQuestion):
        self.question = question
        self.points: list[np.ndarray] = []
        self.visits: list[np.ndarray] = []
        self.losses: list[np.ndarray] = []
        self.owner: list[np.ndarray] = []
        self.known: set[tuple[int, bytes]] = set()

    def add(self, points: Float[np.ndarray, "R ..."], wanted: np.ndarray | None = None) -> int:
        """A plan for each draw, or for those that are wanted; how many were new."""
        rows = [(r, np.asarray(point).tobytes()) for r, point in enumerate(points)]
        wanted = np.ones(len(rows), bool) if wanted is None else wanted
        new = np.array([r for r, name in enumerate(rows) if wanted[r] and name not in self.known], int)
        if not len(new):
            return 0
        self.known.update(rows[r] for r in new)
        thetas, here = self.question.draws.thetas[new], np.arange(len(new))
        found = [slopes_on(objective, points[new], thetas, here, here) for objective in self.question.objectives]
        finite = np.all([np.isfinite(each.losses) for each in found], axis=0)
        self.losses.append(np.stack([each.losses for each in found])[:, finite])
        self.points.append(points[new][finite])
        self.visits.append(found[0].visits[finite])
        self.owner.append(new[finite])
        return int(finite.sum())

    def all(self) -> tuple[Float[np.ndarray, "G P"], np.ndarray]:
        """Losses and draws of all."""
        return np.concatenate(self.losses, axis=1), np.concatenate(self.owner)


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
    draws, groups = question.draws, len(plans)
    share, objective = draws.probabilities, 0.0 if feasibility else 1.0
    columns = Columns(question)
    columns.add(np.repeat(point[None], len(draws), axis=0))
    if not columns.losses or len(columns.owner[0]) < len(draws):
        return None
    # A plan of each loss by itself: the objective's would be best without limits, a limit's keeps it best.
    weigh = lead.weighted(plans[1:], draws.thetas)
    if weigh is None:
        return None
    for g in range(groups):
        columns.add(weigh(np.repeat(np.eye(groups)[g][:, None], len(draws), axis=1)).points)
    losses, owner = columns.all()
    planes: list[tuple[int, np.ndarray]] = [(g, question.weights(g, losses[g, : len(draws)])) for g in range(groups)]
    best, kept, mixture, breach = -np.inf, (np.zeros(groups - 1), np.zeros((groups, len(draws)))), None, None
    for _ in range(rounds):
        master = _master(question, losses, owner, planes, objective, multipliers)
        if master is None:
            break
        mixed, mixture, breach, weights, mu, value = master
        total = weights.sum(axis=0)
        scaled = weights / np.where(total > 0, total, 1.0)
        found = weigh(scaled)
        bound = float((total * found.least)[total > 0].sum() - mu @ question.aims)
        if bound > best:
            best, kept = bound, (mu, weights)
        # Planes below the risks of the mixtures: until they are none the master's own value is too low.
        cuts = []
        for g in range(groups):
            own = question.weights(g, mixed[g])
            below = max(float(w @ mixed[g]) for group, w in planes if group == g)
            cuts += [(g, own)] if below < own @ mixed[g] - CUT * question.units[g] else []
        gain = max(question.units[0] if objective else float(question.units[1:].max()), 1e-300)
        if value - best <= CLOSE * gain and not cuts:
            break
        planes += cuts
        if not columns.add(found.points, total > 0) and not cuts:
            break
        losses, owner = columns.all()
    if mixture is None or breach is None:
        return None
    padded = np.concatenate([mixture, np.zeros(len(owner) - len(mixture))])
    points, visits = np.concatenate(columns.points), np.concatenate(columns.visits)
    return RelaxedLimits(best, *kept, points, owner, padded * share[owner], visits, breach)


def _master(
    question: LimitQuestion,
    losses: Float[np.ndarray, "G P"],
    owner: np.ndarray,
    planes: list[tuple[int, np.ndarray]],
    objective: float,
    multipliers: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float] | None:
    """Mixtures of each draw's plans: losses, shares, breaches; weights and multipliers of the program; its value.

    Variables are the shares, then what each loss's planes are at most, above a reference, then each limit's breach.
    """
    draws, groups, count = len(question.draws), len(losses), losses.shape[1]
    units, limits = question.units, len(losses) - 1
    reference = np.concatenate([[float(losses[0].mean())], question.aims])
    level = np.zeros((len(planes), groups))
    level[np.arange(len(planes)), [g for g, _ in planes]] = -1.0
    rows = np.stack([w[owner] * losses[g] / units[g] for g, w in planes])
    upper: Any = sparse.hstack([sparse.csr_matrix(rows), level, sparse.csr_matrix((len(planes), limits))])
    right = np.array([reference[g] / units[g] for g, _ in planes])
    # A limit's level is at most its breach, which has a price; a priced limit has its level in the objective.
    below = sparse.hstack([sparse.csr_matrix((limits, count + 1)), sparse.eye(limits), -sparse.eye(limits)])
    upper = sparse.vstack([upper, below]).tocsr()
    right = np.concatenate([right, np.zeros(limits)])
    ratio = units[1:] / units[0]
    priced = multipliers is not None
    # Without a price that is too high to pay, a limit that cannot be kept would leave the program without a solution.
    dear = np.ones(limits) if objective == 0.0 else multipliers * ratio if priced else np.full(limits, 1e5)
    cost = np.concatenate([np.zeros(count), [objective], np.zeros(limits), dear])
    simplex = sparse.csr_matrix((np.ones(count), (owner, np.arange(count))), shape=(draws, count))
    free = np.full(groups, -np.inf)
    low = np.concatenate([np.zeros(count), free, np.full(limits, -np.inf if priced else 0.0)])
    if objective == 0.0:
        # The objective's level is not in the program; held so that it is bounded.
        low[count] = -1e12
    from scipy.optimize import linprog  # slow to import

    answer = linprog(
        cost,
        A_ub=upper,
        b_ub=right,
        A_eq=sparse.hstack([simplex, sparse.csr_matrix((draws, groups + limits))]).tocsr(),
        b_eq=np.ones(draws),
        bounds=np.stack([low, np.full(len(low), np.inf)], axis=1),
        method="highs",
    )
    if answer.status != 0:
        return None
    shares = np.maximum(answer.x[:count], 0.0)
    mixed = np.stack([np.bincount(owner, shares * row, minlength=draws) for row in losses])
    raw = np.maximum(-np.asarray(answer.ineqlin.marginals)[: len(planes)], 0.0)
    weights, mu = np.zeros((groups, draws)), np.zeros(groups)
    for (g, w), amount in zip(planes, raw, strict=True):
        factor = amount if objective == 0.0 else amount * units[0] / units[g]
        weights[g] += factor * w
        mu[g] += factor
    if objective == 0.0:
        # Breaches in units of their own: multipliers are of one unit each.
        weights[1:] /= units[1:, None]
        mu[1:] /= units[1:]
        weights[0] = 0.0
        value = float(answer.fun)
    else:
        if not mu[0] > 0:
            return None
        weights[0] /= mu[0]
        value = float(reference[0] + units[0] * answer.fun)
        if priced:
            for j in range(limits):
                # The program's own sums to what was asked for only up to its tolerance.
                factor = multipliers[j] / mu[j + 1] if mu[j + 1] > 0 else 0.0
                weights[j + 1] *= factor
                mu[j + 1] = multipliers[j] if factor else 0.0
    return mixed, shares, answer.x[count + groups :] * units[1:], weights, mu[1:], value
