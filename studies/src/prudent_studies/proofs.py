"""How far the gap closes, and how fast: proofs on the lake's posteriors and on three other families, by atoms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

import prudent as pr

LEVELS = (0.0, 0.5, 0.9)

# Posteriors of the lake's slip and escape probabilities, as parameters of two beta distributions: true escape 0.02 and
# 0.7, after 5 and after 50 trials.
LAKE_POSTERIORS = (
    ((2.5, 4.5), (1.0, 6.0)),
    ((16.0, 36.0), (2.0, 50.0)),
    ((2.5, 4.5), (4.5, 2.5)),
    ((16.0, 36.0), (36.0, 16.0)),
)
MIDPOINTS = 6

# The gap that a proof stops at; times at which it is noted on the way.
CLOSED = 1e-4
TIMES = (1.0, 10.0, 60.0, 600.0)

# Atoms of the other families' posteriors.
ATOMS = 64


class Cell(NamedTuple):
    """One posterior of atoms under one risk."""

    name: str
    model: Any
    atoms: Float[np.ndarray, "R ..."]
    level: float


class ProofRow(NamedTuple):
    """What was proved of one cell; gaps are shares of the risk.

    Attributes:
        name, level: of the cell.
        risk, bound: of the best policy, and below every policy.
        known_gap: if theta were known, the bound that a certificate has.
        gaps: after each of `TIMES` as far as they were reached, then at the end.
        nodes, seconds: boxes and wall time of the search.
        better: how much the policy gained on the one that `solve` gave, as a share of the risk.
    """

    name: str
    level: float
    risk: float
    bound: float
    known_gap: float
    gaps: tuple[float, ...]
    nodes: int
    seconds: float
    better: float


def lake_atoms(slip: tuple[float, float], escape: tuple[float, float]) -> Float[np.ndarray, "36 2"]:
    """The quantile midpoints of both posteriors, crossed."""
    middle = (np.arange(MIDPOINTS) + 0.5) / MIDPOINTS
    return np.array(list(itertools.product(stats.beta(*slip).ppf(middle), stats.beta(*escape).ppf(middle))))


def cells(seed: int = 0) -> list[Cell]:
    """The lake's twelve, and one of each other family with a conjugate posterior."""
    lake = pr.envs.frozen_lake()
    found = [
        Cell("lake Beta({:g}, {:g}) x Beta({:g}, {:g})".format(*slip, *escape), lake, lake_atoms(slip, escape), level)
        for slip, escape in LAKE_POSTERIORS
        for level in LEVELS
    ]
    others = {
        "river swim": pr.envs.river_swim(),
        "machine replacement": pr.envs.machine_replacement(),
        "inventory": pr.envs.inventory(),
    }
    found += [
        Cell(f"{name}, {ATOMS} atoms", family, np.asarray(family.prior.sample(seed, ATOMS)), 0.9)
        for name, family in others.items()
    ]
    return found


def proofs(seconds: float, lake_only: bool = False, seed: int = 0) -> Iterator[ProofRow]:
    """Prove each cell."""
    for cell in cells(seed):
        if lake_only and not cell.name.startswith("lake"):
            continue
        risk, belief = pr.CVaR(cell.level), pr.Draws(cell.atoms)
        solution = pr.solve(cell.model, belief, risk=risk, progress=False, certify=False)
        proof = pr.prove(cell.model, belief, risk=risk, start=solution, gap=CLOSED, seconds=seconds)
        yield _row(cell, solution, proof)


def _row(cell: Cell, solution: pr.Solution, proof: pr.Proof) -> ProofRow:
    history, size = proof.history, abs(proof.risk)
    gaps = [
        next((moment.risk - moment.bound for moment in reversed(history) if moment.seconds <= when), np.nan) / size
        for when in TIMES
        if when <= history[-1].seconds
    ]
    return ProofRow(
        cell.name,
        cell.level,
        proof.risk,
        proof.lower_bound,
        (proof.risk - proof.known_bound) / size,
        (*gaps, proof.gap / size),
        proof.nodes,
        history[-1].seconds,
        max(0.0, (float(solution.risk) - proof.risk) / size),
    )
