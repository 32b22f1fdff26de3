"""What is asked on a sample of draws, and the risks of points there with their derivatives.

Find the point x with the least `rho_0(C(x, theta))` among those that keep L >= 0 limits, `rho_j(D_j(x, theta)) <=
aim_j`. A search minimises the merit, an exact penalty: `rho_0(C) + sum_j price_j max(0, rho_j(D_j) - aim_j)`; without
limits it is the risk itself. By the envelope theorem the derivative of `rho_g` is `sum_k p_k xi*_k dC_k/dx`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..objectives import Averages, Objective, chunk_size, losses_on, slopes_on
from ..posteriors import WeightedDraws
from ..risks import Risk, assess_sample, weights_of

# Slopes of all draws up to here are kept until their weights are known; beyond, draws of the tail are met twice.
KEPT_BYTES = 512 * 2**20


class Question(NamedTuple):
    """The losses of a problem on a sample: G of them, the objective's first, then those of the limits.

    Attributes:
        objectives: of each loss.
        risks: of each.
        draws: the sample.
        aims: `[L]` what each limit's risk is to be at most.
        units: `[G]` what each loss is measured in, so that none drowns beside another; 0 where there are no limits.
        floor: about the least risk that could be hoped for; NaN where it is not known.
        proven: whether the floor is a bound below the risk of every point on these draws.
    """

    objectives: tuple[Objective, ...]
    risks: tuple[Risk, ...]
    draws: WeightedDraws
    aims: Float[np.ndarray, " L"]
    units: Float[np.ndarray, " G"]
    floor: float = float("nan")
    proven: bool = False

    @staticmethod
    def unlimited(objective: Objective, risk: Risk, draws: WeightedDraws) -> Question:
        """Return the question without limits."""
        return Question((objective,), (risk,), draws, np.zeros(0), np.zeros(1))

    @property
    def limits(self) -> int:
        """Return how many limits there are."""
        return len(self.objectives) - 1

    def density(self, g: int, losses: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
        """Return `p xi*` of one of the risks; it sums to 1."""
        return self.draws.probabilities * weights_of(self.risks[g], losses, self.draws.probabilities)

    def values(self, points: Float[np.ndarray, "K ..."]) -> Float[np.ndarray, "K G"]:
        """Return all risks of K points."""
        found = [losses_on(objective, points, self.draws.thetas) for objective in self.objectives]
        rows = zip(self.risks, found, strict=True)
        return np.stack([assess_rows(risk, each, self.draws.probabilities)[0] for risk, each in rows], axis=1)

    def breach(self, values: Float[np.ndarray, "*K G"]) -> Float[np.ndarray, "*K L"]:
        """Return by how much each limit's risk is above its aim."""
        return np.maximum(values[..., 1:] - self.aims, 0.0)

    def merit(self, values: Float[np.ndarray, "*K G"], prices: Float[np.ndarray, "*#K L"]) -> Any:
        """Return the objective's risk and the price of each breach together, `[*K]`."""
        if not self.limits:
            return values[..., 0]
        return values[..., 0] + (prices * self.breach(values)).sum(axis=-1)

    def shares(
        self, values: Float[np.ndarray, "*K G"], prices: Float[np.ndarray, "*#K L"]
    ) -> Float[np.ndarray, "*K G"]:
        """Return the derivative of the merit by each risk: 1, and the price of each limit that is broken."""
        ones = np.ones(values[..., :1].shape)
        return np.concatenate([ones, np.where(values[..., 1:] > self.aims, prices, 0.0)], axis=-1)


class Found(NamedTuple):
    """Losses of K points on a sample, and what follows from them; points that are not active have NaN and 0.

    Attributes:
        values: `[K, G]` risks.
        losses: `[K, G, R]` of each draw.
        weights: `[K, G, R]` the density xi* behind each risk.
        slopes: `[K, G, ...]` derivative of each risk by the point.
        visits: `[K, G, S]` `sum_k p_k xi*_k mu_k(s)`, what the metric of a natural step is made of; empty without one.
        each: for each loss the derivatives of all draws at the active points, `[active, R, ...]`, for steps that keep
            the risk; empty where they were not kept, being too large together.
        place: `[K]` where each active point is in `each`.
        models: how many losses with derivatives were found for it.
    """

    values: Float[np.ndarray, "K G"]
    losses: Float[np.ndarray, "K G R"]
    weights: Float[np.ndarray, "K G R"]
    slopes: Float[np.ndarray, "K G ..."]
    visits: Float[np.ndarray, "K G S"]
    each: tuple[Float[np.ndarray, "active R ..."], ...]
    place: np.ndarray
    models: int


class _OneLoss(NamedTuple):
    """What is found of one of the losses: as in `Found`, without the axis G."""

    values: np.ndarray
    losses: np.ndarray
    weights: np.ndarray
    slopes: np.ndarray
    visits: np.ndarray
    each: np.ndarray | None = None


def evaluate_points(question: Question, points: Float[np.ndarray, "K ..."], active: Bool[np.ndarray, " K"]) -> Found:
    """Return the risks of the active points with their derivatives."""
    draws, here = question.draws, np.flatnonzero(active)
    models = len(here) * len(draws)
    pairs = list(zip(question.objectives, question.risks, strict=True))
    # Backwards through a walk takes several times as long as forwards, so that only the tail is asked for its slopes.
    # With limits all draws are: the step has to see the kinks of the merit.
    kept = 8 * models * points[0].size * len(pairs) <= KEPT_BYTES
    kept = kept and (question.limits > 0 or not any(each.by_chance for each, _ in pairs))
    parts = []
    for objective, risk in pairs:
        own = objective.averages()
        if own is not None:
            parts.append(_average(own, risk, draws, points, here))
        elif kept and len(here):
            parts.append(_keep_slopes(objective, risk, draws, points, here))
        else:
            parts.append(_pass_twice(objective, risk, draws, points, here))
    columns = [_beside([getattr(part, name) for part in parts]) for name in _OneLoss._fields[:-1]]
    each = tuple(part.each for part in parts if part.each is not None)
    return Found(*columns, each=each if len(each) == len(parts) else (), place=np.cumsum(active) - 1, models=models)


def _beside(parts: list[np.ndarray]) -> np.ndarray:
    """Return arrays `[K, ...]` as `[K, G, ...]`; one alone is not copied."""
    return parts[0][:, None] if len(parts) == 1 else np.stack(parts, axis=1)


def _rank(objective: Objective, risk: Risk, draws: WeightedDraws, points: np.ndarray, here: np.ndarray) -> _OneLoss:
    losses = np.zeros((len(points), len(draws)))
    if here.size:
        losses[here] = losses_on(objective, points[here], draws.thetas)
    return _assess(risk, draws, points, here, losses)


def _assess(risk: Risk, draws: WeightedDraws, points: np.ndarray, here: np.ndarray, losses: np.ndarray) -> _OneLoss:
    values, weights = np.full(len(losses), np.nan), np.zeros(losses.shape)
    if here.size:
        values[here], weights[here] = assess_rows(risk, losses[here], draws.probabilities)
    return _OneLoss(values, losses, weights, np.zeros(points.shape), np.zeros((len(points), 0)))


def _keep_slopes(
    objective: Objective, risk: Risk, draws: WeightedDraws, points: np.ndarray, here: np.ndarray
) -> _OneLoss:
    """Return what one pass finds, the slopes of all draws among it."""
    count = len(draws)
    which, order = np.divmod(np.arange(len(here) * count), count)
    found = slopes_on(objective, points[here], draws.thetas, which, order)
    losses = np.zeros((len(points), count))
    losses[here] = found.losses.reshape(-1, count)
    known = _assess(risk, draws, points, here, losses)
    each = np.ascontiguousarray(found.slopes).reshape(-1, count, *points.shape[1:])
    passed = found.visits.reshape(len(here), count, -1)
    slopes, visits = known.slopes, np.zeros((len(points), passed.shape[2]))
    for place, k in enumerate(here):
        share = draws.probabilities * known.weights[k]
        slopes[k] = np.tensordot(share, each[place], axes=1)
        visits[k] = share @ passed[place]
    return known._replace(slopes=slopes, visits=visits, each=each)


def _pass_twice(
    objective: Objective, risk: Risk, draws: WeightedDraws, points: np.ndarray, here: np.ndarray
) -> _OneLoss:
    """Return what two passes find: losses first, then the slopes of the draws that have a weight."""
    known, size = _rank(objective, risk, draws, points, here), chunk_size(objective)
    slopes, visits = known.slopes, known.visits
    for k in here:
        share = draws.probabilities * known.weights[k]
        tail = np.flatnonzero(share)
        for begin in range(0, len(tail), size):
            rows = tail[begin : begin + size]
            found = slopes_on(objective, points[k][None], draws.thetas, np.zeros(len(rows), int), rows)
            if visits.shape[1] == 0:
                visits = np.zeros((len(points), found.visits.shape[1]))
            slopes[k] += np.tensordot(share[rows], np.ascontiguousarray(found.slopes), axes=1)
            visits[k] += share[rows] @ found.visits
    return known._replace(slopes=slopes, visits=visits)


def _average(own: Averages, risk: Risk, draws: WeightedDraws, points: np.ndarray, here: np.ndarray) -> _OneLoss:
    """Return what an objective finds that works through its models itself, point by point."""
    shape = (len(points), len(draws))
    losses, weights, values = np.zeros(shape), np.zeros(shape), np.full(len(points), np.nan)
    slopes, visits = np.zeros(points.shape), np.zeros(points.shape[:2])
    for k in here:

        def weigh(found: np.ndarray, k: int = int(k)) -> np.ndarray:
            risks, densities = assess_rows(risk, found[None], draws.probabilities)
            values[k], weights[k] = risks[0], densities[0]
            return draws.probabilities * densities[0]

        losses[k], slopes[k], visits[k] = own.slopes(points[k], draws.thetas, weigh)
    return _OneLoss(values, losses, weights, slopes, visits)


def assess_rows(
    risk: Risk, losses: Float[np.ndarray, "K R"], probabilities: Float[np.ndarray, " R"]
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "K R"]]:
    """Return risk and xi* of each row of losses."""
    return assess_sample(risk, losses, np.broadcast_to(probabilities, losses.shape))
