"""One gradient of a larger problem: 30 draws, 400 and 1000 states, successor lists and dense kernels."""

from __future__ import annotations

import tracemalloc

import numpy as np

import prudent as pr
from prudent.gradients import Adjoint, SampledRisk
from prudent.solvers.draws import stacked

from .lapack_floor import make_floor
from .measuring import console, ratio, report, side_by_side, verdict

DRAWS, ACTIONS, SUCCESSORS, DISCOUNT = 30, 4, 4, 0.97
LIMITS = {400: 1.6, 1000: 1.2}
MEMORY_LIMIT = 3.0


def _problem(states: int, dense: bool) -> tuple[tuple[pr.Objective, pr.Risk], np.ndarray]:
    random = np.random.default_rng(states)
    successors = states if dense else SUCCESSORS
    support = (
        pr.Support.dense(states, ACTIONS)
        if dense
        else pr.Support.lists(random.integers(states, size=(states, ACTIONS, SUCCESSORS)))
    )
    tables = random.exponential(size=(1, DRAWS, states, ACTIONS, successors))
    tables /= tables.sum(axis=-1, keepdims=True)
    family = pr.TabularFamily(support, random.uniform(size=(states, ACTIONS)), 0, DISCOUNT)
    return (family.objective(), stacked([pr.CVaR(0.5)])), tables


def _gradient(problem: tuple[pr.Objective, pr.Risk], tables: np.ndarray):
    """A call that finds the gradient, and the bytes that NumPy takes for it at its peak, the draws included."""
    logits = np.random.default_rng(0).normal(size=(1, *problem[0].shape))
    sampled = SampledRisk.on(*problem, tables)

    def call():
        return Adjoint()(sampled, logits)[1]

    call()
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return call, peak + tables.nbytes


def run(rounds: int) -> None:
    rows = []
    for states, limit in LIMITS.items():
        for dense in (False, True):
            problem, tables = _problem(states, dense)
            call, peak = _gradient(problem, tables)
            kernel_bytes = tables.nbytes
            del tables
            seconds = side_by_side(
                {
                    "prudent": call,
                    "one": make_floor(states, DRAWS, threads=1),
                    "all": make_floor(states, DRAWS),
                },
                rounds,
            )
            floor = np.minimum(seconds["one"], seconds["all"])
            value = ratio(seconds["prudent"], floor)
            memory = peak / kernel_bytes
            rows.append(
                (
                    f"S = {states}, {'dense' if dense else f'B = {SUCCESSORS}'}",
                    f"{1e3 * np.median(seconds['prudent']):.1f}",
                    f"{1e3 * np.median(floor):.1f}",
                    f"{value:.2f}",
                    verdict(value, limit),
                    f"{memory:.2f}",
                    verdict(memory, MEMORY_LIMIT),
                )
            )
    report(
        f"One gradient, {DRAWS} draws, {ACTIONS} actions, discount {DISCOUNT}, median of {rounds}",
        ("problem", "prudent ms", "LAPACK floor ms", "ratio", "aim", "peak / kernel batch", "aim"),
        rows,
    )
    console.print("peak: what NumPy asked for, and the draws\n")
