"""Event families of 1e2 to 1e6 states: time and memory of a gradient, planning, and a certified answer, checked.

`python -m benchmarks.large growth`, `brief`, `planning` or `certified --states 1000000`. Each prints a table; growth
writes a figure with `--figure`. Seconds of the processor stand beside those of the clock, which other programs share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numba
import numpy as np
from scipy import sparse
from scipy.sparse.linalg import bicgstab

import prudent as pr

from . import planning
from .measuring import console, peak_memory, report

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
DISCOUNT, HOLES, GOALS, DRAWS = 0.97, 0.1, 0.002, 32

# Slope of the log-log line of time and memory against states, from the first size that is solved by sweeps.
STEEPEST, FROM = 1.15, 10_000

# What the losses that are found again may be off by.
OFF = 1e-8


def big_lake(states: int, goals: float = GOALS, seed: int = 0) -> pr.envs.FrozenLake:
    """A square lake with holes and goals at random; it starts in a corner."""
    side = round(states**0.5)
    random = np.random.default_rng(seed).random((side, side))
    tile = np.where(random < HOLES, "H", np.where(random > 1.0 - goals, "G", "F"))
    tile[0, 0], tile[-1, -1] = "S", "G"
    return pr.envs.frozen_lake("\n".join("".join(row) for row in tile), DISCOUNT)


def random_sparse(states: int, seed: int = 0) -> pr.EventFamily:
    """Four actions, three events, successors anywhere; two classes of pairs as on the lake, any start."""
    random = np.random.default_rng(seed)
    successors = random.integers(0, states, (states, 4, 3))
    classes = (random.random((states, 4)) < HOLES).astype(int)

    def chances(theta):
        slip, escape = theta[0], theta[1]
        zero = jnp.zeros_like(slip)
        return jnp.stack([jnp.stack([1 - slip, slip / 2, slip / 2]), jnp.stack([escape, 1 - escape, zero])])

    start = np.full(states, 1.0 / states)
    return pr.EventFamily(successors, chances, random.random((states, 4)), start, DISCOUNT, classes=classes)


FAMILIES = {"lake": big_lake, "random": random_sparse}


def belief(draws: int = DRAWS, seed: int = 0) -> pr.Draws:
    """What is known of slip and escape: so many draws, each as probable as the others."""
    random = np.random.default_rng(seed)
    return pr.Draws(np.stack([random.beta(4.0, 8.0, draws), random.beta(2.0, 30.0, draws)], axis=1))


def one_gradient(name: str, states: int) -> dict:
    """Seconds of the processor and the clock of a gradient of CVaR on 8 draws, and the peak of memory in GiB."""
    family = FAMILIES[name](states)
    objective = family.objective(occupancy=pr.Exact(pr.Sweeps.of(family.support)))
    thetas, (count, actions, _) = belief(8).as_atoms().thetas, family.support.shape
    policy = np.random.default_rng(1).dirichlet(np.ones(actions), size=count)
    seconds = []
    with jax.enable_x64(True):
        for _ in range(2):  # the first compiles
            clock, cpu = time.perf_counter(), time.process_time()
            objective.averages().slopes(policy, np.asarray(thetas), lambda losses: np.ones(8) / 8)
            seconds.append((time.process_time() - cpu, time.perf_counter() - clock))
    return {"states": count, "cpu": seconds[-1][0], "clock": seconds[-1][1], "peak": peak_memory()}


def growth(sizes: tuple[int, ...], figure: str | None) -> None:
    """A gradient at each size, each in a process of its own, so that peaks are its own."""
    rows, found = [], {}
    for name in FAMILIES:
        found[name] = []
        for size in sizes:
            command = [sys.executable, "-m", "benchmarks.large", "gradient", "--family", name, "--states", str(size)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[name].append(answer)
            console.print(f"{name} {answer}")
            if figure:
                # After each, so that a run that is stopped leaves what it has found.
                _draw(found, figure)
        large = [part for part in found[name] if part["states"] >= FROM]
        slopes = {}
        for key in ("cpu", "peak"):
            if len(large) > 1:
                x, y = np.log([part["states"] for part in large]), np.log([part[key] for part in large])
                slopes[key] = float(np.polyfit(x, y, 1)[0])
        for part in found[name]:
            rows.append(
                (f"{name} {part['states']:.0e}", f"{part['cpu']:.3g}", f"{part['clock']:.3g}", f"{part['peak']:.2f}")
            )
        said = ", ".join(
            f"{key} {value:.2f} ({'ok' if value <= STEEPEST else 'MISSED'})" for key, value in slopes.items()
        )
        console.print(f"{name}: slope of the log-log line from {FROM:.0e} states: {said}")
    report("A gradient on 8 draws", ("family, states", "processor s", "clock s", "peak GiB"), rows)


def _draw(found: dict, figure: str) -> None:
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for axis, key, label in zip(axes, ("cpu", "peak"), ("seconds of the processor", "peak memory, GiB"), strict=True):
        for name, parts in found.items():
            axis.loglog([part["states"] for part in parts], [part[key] for part in parts], "o-", label=name)
        axis.set(xlabel="states", ylabel=label)
        axis.legend()
    drawing.savefig(figure, dpi=120)
    plt.close(drawing)


def run(rounds: int) -> None:
    """What `make bench` has time for: a few iterations and a certificate at 1e4 states, gradients to 1e5."""
    del rounds
    brief()
    certified(10_000, DRAWS)
    growth(SIZES[:4], None)


def brief() -> None:
    """Ten iterations on 8 draws of 10,000 states, compiled before."""
    lake, posterior = big_lake(10_000), belief(8)
    solver = pr.SampleAverage(samples=8, largest=8, starts=1, iterations=10)
    for _ in range(2):
        clock, cpu = time.perf_counter(), time.process_time()
        pr.solve(lake, posterior, risk=pr.CVaR(0.9), solver=solver, progress=False, certify=False)
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    console.print(f"10,000 states, 10 iterations on 8 draws: {clock:.1f} s, {cpu:.1f} s of the processor (aim 3 s)")


def certified(states: int, draws: int) -> None:
    """The certified answer on a big lake, and both of its numbers found again without the library."""
    lake, posterior = big_lake(states), belief(draws)
    clock, cpu = time.perf_counter(), time.process_time()
    solver = pr.SampleAverage(samples=draws, largest=draws, starts=2, iterations=25)
    solution = pr.solve(lake, posterior, risk=pr.CVaR(0.9), solver=solver, progress=False)
    clock, cpu, peak = time.perf_counter() - clock, time.process_time() - cpu, peak_memory()
    console.print(str(solution))
    certificate = solution.certificate
    assert certificate is not None and certificate.lower_bound is not None
    table, thetas = np.asarray(solution.policy.probabilities), np.asarray(solution.evaluation.thetas)
    began, near = time.perf_counter(), _near(lake)
    ours = np.array([_independent_loss(near, table, theta) for theta in thetas])
    best = np.array([_value_iteration(near, theta) for theta in thetas])
    risk, bound = (float(pr.CVaR(0.9)(values).value) for values in (ours, best))
    rows = [
        ("clock s", f"{clock:.0f}", ""),
        ("processor s", f"{cpu:.0f}", ""),
        ("peak GiB", f"{peak:.2f}", "ok" if peak <= 6 else "MISSED"),
        ("risk, by scipy", f"{risk:.9f}", "ok" if abs(risk - solution.risk) <= 1e-6 * abs(risk) else "MISSED"),
        ("risk", f"{solution.risk:.9f}", ""),
        ("bound", f"{certificate.lower_bound:.9f}", "ok" if certificate.lower_bound <= bound + OFF else "MISSED"),
        ("risk of value iteration's values", f"{bound:.9f}", ""),
        ("clock s and peak GiB with these checks", f"{time.perf_counter() - began:.0f}, {peak_memory():.2f}", ""),
    ]
    report(f"Certified: {table.shape[0]} states, {draws} draws", ("", "found", ""), rows)


class Near(NamedTuple):
    """The states that the discount lets matter, and one more, free and never left, for all others.

    Attributes:
        states: their numbers on the lake.
        successor: among themselves, the last for those beyond.
        hole, goal, start: of each; the last is a goal.
    """

    states: np.ndarray
    successor: np.ndarray
    hole: np.ndarray
    goal: np.ndarray
    start: np.ndarray


def _near(lake: pr.envs.FrozenLake) -> Near:
    """Costs are from 0 to 2: beyond so many steps they add less than `OFF`, and leaving them out takes it off."""
    successor, start = np.asarray(lake.support.successor), np.asarray(lake.start)
    steps = int(np.ceil(np.log(OFF * (1.0 - DISCOUNT) / 2.0) / np.log(DISCOUNT)))
    reached, newest = start > 0, np.flatnonzero(start)
    for _ in range(steps):
        newest = np.unique(successor[newest])
        newest = newest[~reached[newest]]
        reached[newest] = True
    states = np.flatnonzero(reached)
    number = np.full(len(start), len(states))
    number[states] = np.arange(len(states))
    inside = np.concatenate([number[successor[states]], np.full((1, 4, 3), len(states))])
    ends = (np.append(part[states], last) for part, last in ((lake.hole, False), (lake.goal, True), (start, 0.0)))
    return Near(states, inside, *ends)


def _kernel(near: Near, theta: np.ndarray) -> np.ndarray:
    """Probabilities `[S, A, 3]` from the rules of the lake."""
    slip, escape = theta
    row = np.where(near.hole[:, None, None], [escape, 1.0 - escape, 0.0], [1.0 - slip, slip / 2, slip / 2])
    return np.broadcast_to(row, near.successor.shape)


def _costs(near: Near, theta: np.ndarray) -> np.ndarray:
    return np.where(near.goal, 0.0, np.where(near.hole, 2.0 - theta[1], 1.0))


def _independent_loss(near: Near, table: np.ndarray, theta: np.ndarray) -> float:
    """`start^T (I - discount P)^-1 c` by SciPy's BiCGSTAB on a sparse matrix."""
    states = len(near.start)
    weight = np.concatenate([table[near.states], np.full((1, 4), 0.25)])[:, :, None] * _kernel(near, theta)
    rows = np.repeat(np.arange(states), 12)
    chain = sparse.csr_matrix((weight.ravel(), (rows, near.successor.ravel())), shape=(states, states))
    system = sparse.eye(states, format="csr") - DISCOUNT * chain
    scale = sparse.diags(1.0 / system.diagonal())
    cost = _costs(near, theta)
    values, failed = bicgstab(scale @ system, scale @ cost, rtol=1e-11, maxiter=5000)
    # BiCGSTAB may stall; the fixed point cannot.
    while np.abs(left := cost + DISCOUNT * (chain @ values) - values).max() > 1e-9:
        values = values + left
    del failed
    return float(near.start @ values)


@numba.njit(parallel=True)
def _backup(successor: np.ndarray, kernel: np.ndarray, cost: np.ndarray, values: np.ndarray, better: np.ndarray):
    for state in numba.prange(len(cost)):
        least = np.inf
        for action in range(successor.shape[1]):
            after = 0.0
            for event in range(successor.shape[2]):
                after += kernel[state, action, event] * values[successor[state, action, event]]
            least = min(least, after)
        better[state] = cost[state] + DISCOUNT * least


def _value_iteration(near: Near, theta: np.ndarray) -> float:
    """The least cost from the start by plain value iteration."""
    successor, kernel, cost = near.successor, _kernel(near, theta), _costs(near, theta)
    values, better = np.zeros(len(cost)), np.empty(len(cost))
    while True:
        _backup(successor, kernel, cost, values, better)
        low, high = (better - values).min(), (better - values).max()
        values, better = better, values
        if (high - low) * DISCOUNT / (1.0 - DISCOUNT) <= OFF:
            # The middle of the interval that MacQueen's bounds leave.
            return float(near.start @ values) + (high + low) / 2 * DISCOUNT / (1.0 - DISCOUNT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("part", choices=("brief", "growth", "gradient", "planning", "certified"))
    parser.add_argument("--states", type=int, default=None, help="one size; certified: 1,000,000 when left out")
    parser.add_argument("--family", choices=FAMILIES, default="lake")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--figure", default=None, help="growth: where the figure is written")
    given = parser.parse_args()
    if given.part == "gradient":
        print(json.dumps(one_gradient(given.family, given.states or 10_000)))
    elif given.part == "brief":
        brief()
    elif given.part == "growth":
        growth(SIZES if given.states is None else (given.states,), given.figure)
    elif given.part == "planning":
        planning.run(3, (100_000, 1_000_000) if given.states is None else (given.states,))
    else:
        certified(given.states or 1_000_000, given.draws)


if __name__ == "__main__":
    main()
