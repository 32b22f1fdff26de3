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

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse

from ...objectives import slopes_on, weigh_together
from ...programs import solve_program
from ..question import Question

# Rounds at most; a bound this close to the master's value, and planes this close to the risks, as a share of what the
# losses differ by, are good enough.
ROUNDS, CLOSE, CUT = 40, 1e-4, 1e-5

# What a breach costs that is too dear to pay, in units of the objective for one of the limit.
DEAR = 1e5

# Draws whose own mixtures of plans are looked at.
OWN_MIXTURES = 6


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

    def mixtures(self) -> list[np.ndarray]:
        """Tables that visit pairs as mixtures of plans do: of all draws, under the risks' weights, of the heaviest."""
        if self.visits.shape[1] == 0:
            heavy = np.argsort(-self.share, kind="stable")[:OWN_MIXTURES]
            return [self.points[k] for k in heavy]
        draws = self.weights.shape[1]
        mass = np.bincount(self.owner, self.share, minlength=draws)
        each = self.share / np.where(mass[self.owner] > 0, mass[self.owner], 1.0)
        weightings = [mass, *(row for row in self.weights if row.sum() > 0), self.weights.sum(axis=0)]
        heavy = np.argsort(-self.weights.sum(axis=0), kind="stable")[:OWN_MIXTURES]
        weightings += [np.eye(draws)[k] for k in heavy]
        return [self._table(each * weighting[self.owner]) for weighting in weightings if weighting.sum() > 0]

    def _table(self, share: np.ndarray) -> np.ndarray:
        visits = share[:, None] * self.visits
        met = np.einsum("ps,psa->sa", visits, self.points)
        total = met.sum(axis=1, keepdims=True)
        plain = np.einsum("p,psa->sa", share / share.sum(), self.points)
        return np.where(total > 1e-14 * total.max(), met / np.where(total > 0, total, 1.0), plain)


class Columns:
    """Plans found so far with all their losses; each belongs to a draw."""

    def __init__(self, question: Question, point: np.ndarray):
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
    question: Question,
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
    plans = [plan for plan in (objective.plans() for objective in question.objectives) if plan is not None]
    if len(plans) < len(question.objectives) or not all(r.coherent and r.monotone for r in question.risks):
        return None
    draws, groups = len(question.draws), len(plans)
    columns = Columns(question, point)
    if len(columns.owner) < draws:
        return None
    # A plan of each loss by itself: the objective's would be best without limits, a limit's keeps it best.
    weigh = weigh_together(plans, question.draws.thetas)
    if weigh is None:
        return None
    for g in range(groups):
        columns.add(weigh(np.repeat(np.eye(groups)[g][:, None], draws, axis=1)).points, np.ones(draws, bool))
    planes = [(g, question.density(g, columns.losses[g, :draws])) for g in range(groups)]
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
            own = question.density(g, mixed[g])
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
    answer = solve_program(
        np.concatenate([np.zeros(count), [0.0 if feasibility else 1.0], np.zeros(limits), dear]),
        A_ub=sparse.vstack([upper, below]).tocsr(),
        b_ub=np.concatenate([reference[group] / units[group], np.zeros(limits)]),
        A_eq=sparse.hstack([simplex, sparse.csr_matrix((draws, groups + limits))]).tocsr(),
        b_eq=np.ones(draws),
        bounds=np.stack([low, np.full(len(low), np.inf)], axis=1),
        method="highs",
    )
    if answer is None:
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
