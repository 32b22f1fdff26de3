"""The gradient by the policy's own table, model by model.

With `z = dF/dlambda` the derivative of one model's loss by the table is `mu(s) Q(s, a)`, and that of the objective is
the average over models under `xi*`. One compiled function finds both factors for a chunk of models, each with a
policy of its own. Its shape does not depend on how many runs, starts or draws there are: samples grow, runs end, and
nothing is compiled anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, to_numpy
from ..occupancies import batch_axis
from ..policies import Parametrisation
from ..posteriors import WeightedDraws
from ..risks import Risk, risk_value
from .objective import Problem, arrange, is_direct, losses_on, model_bytes, occupancies_of

# A chunk of models: in the inner cache for the direct solver, in memory for the iterative one.
CHUNK_MODELS = 512
CHUNK_BYTES = {True: 4 * 2**20, False: 64 * 2**20}

# Slopes of all models up to here are kept until their weights are known; beyond, models of the tail are met twice.
KEPT_BYTES = 512 * 2**20


class Sample(NamedTuple):
    """Policies and the draws they are judged on; draws are shared by the policies of a sample.

    Attributes:
        tables: `[K, S, A]`.
        draws: R of them.
        risk: without a batch axis.
        active: `[K]` which policies to look at; the others cost nothing, and what is said of them means nothing.
        floor: about the least risk that could be hoped for; NaN where it is not known.
    """

    tables: Float[np.ndarray, "K S A"]
    draws: WeightedDraws
    risk: Risk
    active: np.ndarray
    floor: float = float("nan")


class Slopes(NamedTuple):
    """Objectives of K policies and their derivatives by the table.

    Attributes:
        value: the risk.
        losses, weights: of each draw, and the density xi* behind the risk.
        slope: `sum_k p_k xi*_k mu_k(s) Q_k(s, a)`.
        visits: `sum_k p_k xi*_k mu_k(s)`, the metric of a natural step.
        each: `[R, S, A]` for each policy, the slopes of all draws, for steps that keep the risk; None where they were
            not kept, being too large together.
        models: how many models were solved for it.
    """

    value: Float[np.ndarray, " K"]
    losses: Float[np.ndarray, "K R"]
    weights: Float[np.ndarray, "K R"]
    slope: Float[np.ndarray, "K S A"]
    visits: Float[np.ndarray, "K S"]
    each: tuple[np.ndarray | None, ...]
    models: int


@eqx.filter_jit
def _chunk(problem: Problem, tables: Float[Array, "N S A"], thetas: Array) -> tuple[Array, Array, Array]:
    """Losses, slopes and visits of N models under N policies, at arranged draws; all begin with the batch axis."""
    axis = batch_axis(problem.occupancy, problem.family.support)

    def total(tables: Array) -> tuple[Array, tuple[Array, Array]]:
        batch = occupancies_of(problem, tables, thetas)
        losses = batch.losses(problem.loss, problem.family)
        visits = jnp.moveaxis(batch.occupancies, axis, 0).sum(axis=2)
        # Each model has a policy of its own, so the gradient of the sum holds every model's.
        return losses.sum(), (losses, visits)

    slopes, (losses, visits) = jax.grad(total, has_aux=True)(tables)
    return losses, slopes, visits


def chunk_size(problem: Problem) -> int:
    """How many models the compiled function takes at once."""
    size = model_bytes(problem.occupancy, problem.family.support)
    return int(np.clip(CHUNK_BYTES[is_direct(problem.occupancy)] // size, 1, CHUNK_MODELS))


def model_slopes(
    problem: Problem,
    tables: Float[np.ndarray, "K S A"],
    thetas: Float[np.ndarray, "R ..."],
    which: Int[np.ndarray, " M"],
    draws: Int[np.ndarray, " M"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss `[M]`, slope `[M, S, A]` and visits `[M, S]` of models: policy `which[m]` at draw `draws[m]`."""
    size, models = chunk_size(problem), len(which)
    losses = np.empty(models)
    slopes, visits = np.empty((models, *tables.shape[1:])), np.empty((models, tables.shape[1]))
    lone = alone(problem)
    for begin in range(0, models, size):
        # The last chunk is filled up with repeats: a shorter one would compile anew.
        rows = np.minimum(np.arange(begin, begin + size), models - 1)
        here = slice(begin, min(begin + size, models))
        found = to_numpy(_chunk(lone, tables[which[rows]], arrange(thetas[draws[rows]][None], lone)))
        losses[here], slopes[here], visits[here] = (part[: here.stop - begin] for part in found)
    return losses, slopes, visits


def alone(problem: Problem) -> Problem:
    """The problem without its risk, whose numbers would otherwise be traced along for nothing."""
    return eqx.tree_at(lambda p: p.risk, problem, None, is_leaf=lambda part: part is None)


def slopes_of(problem: Problem, samples: list[Sample]) -> list[Slopes]:
    """Objectives and slopes of the active policies of several samples, their models in one stream of chunks."""
    shape = samples[0].tables.shape[1:]
    wanted = [(i, int(k)) for i, sample in enumerate(samples) for k in np.flatnonzero(sample.active)]
    models = sum(len(samples[i].draws) for i, _ in wanted)
    if 8 * models * int(np.prod(shape)) > KEPT_BYTES:
        return [_in_two_passes(problem, sample) for sample in samples]
    if not wanted:
        return [_reduced(sample, {}) for sample in samples]
    tables = np.stack([samples[i].tables[k] for i, k in wanted])
    pool, places = _pool([samples[i].draws.thetas for i, _ in wanted])
    which = np.repeat(np.arange(len(wanted)), [len(place) for place in places])
    found = model_slopes(problem, tables, pool, which, np.concatenate(places))
    parts: list[dict[int, tuple]] = [{} for _ in samples]
    begin = 0
    for i, k in wanted:
        here = slice(begin, begin + len(samples[i].draws))
        parts[i][k] = tuple(part[here] for part in found)
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


def _reduced(sample: Sample, parts: dict[int, tuple]) -> Slopes:
    """The average over each policy's models under its weights."""
    count = len(sample.draws)
    losses = np.zeros((len(sample.tables), count))
    for k, (loss, _, _) in parts.items():
        losses[k] = loss
    value, weights = _active(sample, losses)
    slope, visits = np.zeros(sample.tables.shape), np.zeros(sample.tables.shape[:2])
    for k, (_, slopes, met) in parts.items():
        share = sample.draws.probabilities * weights[k]
        slope[k] = np.tensordot(share, slopes, axes=1)
        visits[k] = share @ met
    each = tuple(parts[k][1] if k in parts else None for k in range(len(losses)))
    return Slopes(value, losses, weights, slope, visits, each, count * len(parts))


def _active(sample: Sample, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Risk and xi* of the active policies, NaN and 0 for the others."""
    value, weights = np.full(len(losses), np.nan), np.zeros(losses.shape)
    if sample.active.any():
        value[sample.active], weights[sample.active] = assessed(
            sample.risk, losses[sample.active], sample.draws.probabilities
        )
    return value, weights


def _in_two_passes(problem: Problem, sample: Sample) -> Slopes:
    """For models too large to keep every slope: losses first, then only the models that have a weight."""
    draws = sample.draws
    losses = np.zeros((len(sample.tables), len(draws)))
    slope, visits = np.zeros(sample.tables.shape), np.zeros(sample.tables.shape[:2])
    active, size = np.flatnonzero(sample.active), chunk_size(problem)
    for k in active:
        losses[k] = losses_on(alone(problem), sample.tables[k][None], draws.thetas[None])[0]
    value, weights = _active(sample, losses)
    for k in active:
        share = draws.probabilities * weights[k]
        tail = np.flatnonzero(share)
        for begin in range(0, len(tail), size):
            rows = tail[begin : begin + size]
            _, slopes, met = model_slopes(problem, sample.tables[k][None], draws.thetas, np.zeros(len(rows), int), rows)
            slope[k] += np.tensordot(share[rows], slopes, axes=1)
            visits[k] += share[rows] @ met
    return Slopes(value, losses, weights, slope, visits, (None,) * len(losses), len(draws) * len(active))


def assessed(
    risk: Risk, losses: Float[np.ndarray, "K R"], probabilities: Float[np.ndarray, " R"]
) -> tuple[np.ndarray, np.ndarray]:
    """Risk and xi* of each row under one risk; row by row, so that the number of rows compiles nothing again."""
    rows = [to_numpy(_assess(risk, row, probabilities)) for row in losses]
    return np.array([value for value, _ in rows]), np.stack([weights for _, weights in rows])


_assess = eqx.filter_jit(risk_value)


@eqx.filter_jit
def pulled_back(policy: Parametrisation, parameters: Any, slopes: Float[Array, "K S A"]) -> Any:
    """Gradients by the parameters of K policies, from those by their tables."""

    def one(parameters: Any, slope: Array) -> Any:
        _, pull = jax.vjp(policy.probabilities, parameters)
        return pull(slope)[0]

    return jax.vmap(one)(parameters, slopes)
