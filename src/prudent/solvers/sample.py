"""Risks of several points on a posterior sample and their derivatives by the point, draw by draw.

The derivative of one draw's loss by a table is `mu(s) Q(s, a)`, and that of the risk is the average over draws under
`xi*`. Losses and derivatives come from the objective in chunks whose shape does not depend on how many runs, starts or
draws there are: samples grow, runs end, and nothing is compiled again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..objectives import Averages, ModelSlopes, Objective, chunk_size, losses_on, slopes_on
from ..posteriors import WeightedDraws
from ..risks import Risk, assess_sample

# Slopes of all draws up to here are kept until their weights are known; beyond, draws of the tail are met twice.
KEPT_BYTES = 512 * 2**20


class Sample(NamedTuple):
    """Points and the draws they are judged on; draws are shared by the points of a sample.

    Attributes:
        points: `[K, ...]`.
        draws: R of them.
        risk: without a batch axis.
        active: `[K]` which points to evaluate; the others cost nothing, and what is said of them means nothing.
        floor: about the least risk that could be hoped for; NaN where it is not known.
        proven: whether it is a bound below the risk of every point on these draws.
        sloped: whether derivatives are wanted; else points are only ranked.
    """

    points: Float[np.ndarray, "K ..."]
    draws: WeightedDraws
    risk: Risk
    active: np.ndarray
    floor: float = float("nan")
    proven: bool = False
    sloped: bool = True


class Slopes(NamedTuple):
    """Risks of K points and their derivatives by the point.

    Attributes:
        value: the risk.
        losses, weights: of each draw, and the density xi* behind the risk.
        slope: `sum_k p_k xi*_k dC_k/dpoint`.
        visits: `sum_k p_k xi*_k mu_k(s)`, what the metric of a natural step is made of; empty without one.
        each: `[R, ...]` for each point, the slopes of all draws, for steps that keep the risk; None where they were
            not kept, being too large together.
        models: how many losses with derivatives were found for it.
    """

    value: Float[np.ndarray, " K"]
    losses: Float[np.ndarray, "K R"]
    weights: Float[np.ndarray, "K R"]
    slope: Float[np.ndarray, "K ..."]
    visits: Float[np.ndarray, "K S"]
    each: tuple[np.ndarray | None, ...]
    models: int


def slopes_of(objective: Objective, samples: list[Sample]) -> list[Slopes]:
    """Risks of the active points of several samples, with their slopes where a sample wants them."""
    sloped = [sample for sample in samples if sample.sloped]
    found = iter(_sloped(objective, sloped) if sloped else [])
    return [next(found) if sample.sloped else _ranked(objective, sample) for sample in samples]


def _ranked(objective: Objective, sample: Sample) -> Slopes:
    """Risks alone."""
    losses, active = np.zeros((len(sample.points), len(sample.draws))), np.flatnonzero(sample.active)
    if active.size:
        losses[active] = losses_on(objective, sample.points[active], sample.draws.thetas)
    nothing = np.zeros(sample.points.shape), np.zeros((len(losses), 0)), (None,) * len(losses)
    value, weights = _active(sample, losses)
    return Slopes(value, losses, weights, *nothing, models=0)


def _sloped(objective: Objective, samples: list[Sample]) -> list[Slopes]:
    """Risks and slopes of several samples, their models in one stream of chunks."""
    own = objective.averages()
    if own is not None:
        return [_averaged(own, sample) for sample in samples]
    shape = samples[0].points.shape[1:]
    wanted = [(i, int(k)) for i, sample in enumerate(samples) for k in np.flatnonzero(sample.active)]
    models = sum(len(samples[i].draws) for i, _ in wanted)
    # Backwards through a walk takes several times as long as forwards, and only the tail is asked for its slopes.
    if 8 * models * int(np.prod(shape)) > KEPT_BYTES or objective.by_chance:
        return [_in_two_passes(objective, sample) for sample in samples]
    if not wanted:
        return [_reduced(sample, {}) for sample in samples]
    points = np.stack([samples[i].points[k] for i, k in wanted])
    pool, places = _pool([samples[i].draws.thetas for i, _ in wanted])
    which = np.repeat(np.arange(len(wanted)), [len(place) for place in places])
    found = slopes_on(objective, points, pool, which, np.concatenate(places))
    parts: list[dict[int, ModelSlopes]] = [{} for _ in samples]
    begin = 0
    for i, k in wanted:
        here = slice(begin, begin + len(samples[i].draws))
        parts[i][k] = ModelSlopes(*(np.ascontiguousarray(part[here]) for part in found))
        begin = here.stop
    return [_reduced(sample, part) for sample, part in zip(samples, parts, strict=True)]


def _pool(samples: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All draws in one array, those of a sample that is there several times once; and where each sample's are."""
    different = list({id(sample): sample for sample in samples}.values())
    begins = np.concatenate([[0], np.cumsum([len(sample) for sample in different])])
    begin = {id(sample): int(where) for sample, where in zip(different, begins[:-1], strict=True)}
    # A large sample is not copied.
    pool = different[0] if len(different) == 1 else np.concatenate(different)
    return pool, [np.arange(begin[id(sample)], begin[id(sample)] + len(sample)) for sample in samples]


def _reduced(sample: Sample, parts: dict[int, ModelSlopes]) -> Slopes:
    """The average over each point's draws under its weights."""
    count = len(sample.draws)
    losses = np.zeros((len(sample.points), count))
    for k, part in parts.items():
        losses[k] = part.losses
    value, weights = _active(sample, losses)
    rows = next(iter(parts.values())).visits.shape[1] if parts else 0
    slope, visits = np.zeros(sample.points.shape), np.zeros((len(sample.points), rows))
    for k, part in parts.items():
        share = sample.draws.probabilities * weights[k]
        slope[k] = np.tensordot(share, part.slopes, axes=1)
        visits[k] = share @ part.visits
    each = tuple(parts[k].slopes if k in parts else None for k in range(len(losses)))
    return Slopes(value, losses, weights, slope, visits, each, count * len(parts))


def _active(sample: Sample, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Risk and xi* of the active points, NaN and 0 for the others."""
    value, weights = np.full(len(losses), np.nan), np.zeros(losses.shape)
    if sample.active.any():
        value[sample.active], weights[sample.active] = assessed(
            sample.risk, losses[sample.active], sample.draws.probabilities
        )
    return value, weights


def _averaged(own: Averages, sample: Sample) -> Slopes:
    """Of models that the objective works through itself, point by point."""
    draws, shape = sample.draws, (len(sample.points), len(sample.draws))
    losses, weights, value = np.zeros(shape), np.zeros(shape), np.full(len(sample.points), np.nan)
    slope, visits = np.zeros(sample.points.shape), np.zeros(sample.points.shape[:2])
    for k in np.flatnonzero(sample.active):

        def weigh(found: np.ndarray, k: int = int(k)) -> np.ndarray:
            risks, densities = assessed(sample.risk, found[None], draws.probabilities)
            value[k], weights[k] = risks[0], densities[0]
            return draws.probabilities * densities[0]

        losses[k], slope[k], visits[k] = own.slopes(sample.points[k], draws.thetas, weigh)
    return Slopes(value, losses, weights, slope, visits, (None,) * len(losses), len(draws) * int(sample.active.sum()))


def _in_two_passes(objective: Objective, sample: Sample) -> Slopes:
    """For models too large to keep every slope: losses first, then only the draws that have a weight."""
    draws, active, size = sample.draws, np.flatnonzero(sample.active), chunk_size(objective)
    ranked = _ranked(objective, sample)
    slope, visits = ranked.slope, ranked.visits
    for k in active:
        share = draws.probabilities * ranked.weights[k]
        tail = np.flatnonzero(share)
        for begin in range(0, len(tail), size):
            rows = tail[begin : begin + size]
            found = slopes_on(objective, sample.points[k][None], draws.thetas, np.zeros(len(rows), int), rows)
            if visits.shape[1] == 0:
                visits = np.zeros((len(sample.points), found.visits.shape[1]))
            slope[k] += np.tensordot(share[rows], np.ascontiguousarray(found.slopes), axes=1)
            visits[k] += share[rows] @ found.visits
    return ranked._replace(slope=slope, visits=visits, models=len(draws) * len(active))


def assessed(
    risk: Risk, losses: Float[np.ndarray, "K R"], probabilities: Float[np.ndarray, " R"]
) -> tuple[np.ndarray, np.ndarray]:
    """Risk and xi* of each row under one risk."""
    return assess_sample(risk, losses, np.broadcast_to(probabilities, losses.shape))
