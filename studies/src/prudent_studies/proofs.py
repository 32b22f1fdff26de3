"""How far the gap closes, and how fast: proofs on the lake's posteriors and on three other families, by atoms."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

import prudent as pr
import prudent_verifier
from prudent.plots import finish, pyplot

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

    @property
    def label(self) -> str:
        """Name and level."""
        return f"{self.name}, {self.level:g}"


class ProofRow(NamedTuple):
    """What was proved of one cell; gaps are shares of the risk.

    Attributes:
        name, level: of the cell.
        risk, bound: of the best policy, and below every policy.
        known_gap: if theta were known, the bound that a certificate has.
        gaps: after each of `TIMES` as far as they were reached, then at the end.
        nodes, seconds: boxes and wall time of the search.
        processor: seconds of the processors' time, with what comes before the search; less than the wall time where
            other work had them.
        verified: the bound that `prudent_verifier` found in the proof's file; None where it was not asked.
        better: how much the policy gained on the one that `solve` gave, as a share of the risk.
        course: seconds and gap, round by round.
    """

    name: str
    level: float
    risk: float
    bound: float
    known_gap: float
    gaps: tuple[float, ...]
    nodes: int
    seconds: float
    processor: float
    verified: float | None
    better: float
    course: Float[np.ndarray, "T 2"]


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


def proofs(seconds: float, only: str = "", verify: bool = False, seed: int = 0) -> Iterator[ProofRow]:
    """Prove each cell whose name and level have `only` in them; with `verify`, have the proof's file checked."""
    for cell in cells(seed):
        if only not in cell.label:
            continue
        risk, belief = pr.CVaR(cell.level), pr.Draws(cell.atoms)
        solution = pr.solve(cell.model, belief, risk=risk, progress=False, certify=False)
        began = time.process_time()
        proof = pr.prove(cell.model, belief, risk=risk, start=solution, gap=CLOSED, seconds=seconds)
        processor = time.process_time() - began
        verified = _verified(proof) if verify else None
        yield _row(cell, solution, proof, processor, verified)


def _verified(proof: pr.Proof) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return prudent_verifier.verify(pr.write_proof(proof, Path(folder) / "proof.safetensors")).lower_bound


def _row(cell: Cell, solution: pr.Solution, proof: pr.Proof, processor: float, verified: float | None) -> ProofRow:
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
        processor,
        verified,
        max(0.0, (float(solution.risk) - proof.risk) / size),
        np.array([(moment.seconds, (moment.risk - moment.bound) / size) for moment in history]),
    )


# Before this many seconds nothing is drawn: the axis is logarithmic.
FIRST_MOMENT = 0.05

STYLES = {0.0: "-", 0.5: "--", 0.9: ":"}


def gap_figure(rows: Sequence[ProofRow], path: str | Path) -> Any:
    """The gap over the seconds of the search: a colour for each posterior, a line for each level, as a PNG."""
    plot = pyplot()
    figure, axes = plot.subplots(figsize=(8.0, 4.8), layout="constrained")
    names = list(dict.fromkeys(row.name for row in rows))
    colours = plot.colormaps["tab10"].colors
    for row in rows:
        course = np.maximum(row.course, (FIRST_MOMENT, CLOSED / 10.0))
        label = f"{row.name}, CVaR {row.level:g}"
        axes.step(
            *course.T, STYLES[row.level], where="post", color=colours[names.index(row.name)], label=label, linewidth=1.4
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="seconds of search",
        ylabel="proved gap, share of the risk",
        title="How much better any stationary policy could be",
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3%}".replace("0%", "%").replace("0%", "%"))
    axes.axhline(CLOSED, color="grey", linewidth=0.8)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=7)
    return finish(figure, path)
