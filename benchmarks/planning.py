"""Exact planning on a slippery lake of 1e3 to 1e5 states, against two planners in wide use.

Time to values off by at most 1e-6 (each answer is checked against one of much higher accuracy); building the
model and turning it into each planner's own input are left out for all alike.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

import prudent as pr

from .measuring import console, ratio, report, verdict

SIZES = (1_000, 10_000, 100_000)
TRUTH, DISCOUNT, HOLES, ERROR = (0.3, 0.02), 0.97, 0.1, 1e-6

# A contender slower than this in its first round is measured once.
PATIENCE = 5.0


def random_lake(states: int, seed: int = 0, discount: float = DISCOUNT) -> pr.MDP:
    """A square lake of about that many states with holes at random, start and goal in opposite corners."""
    side = round(states**0.5)
    tile = np.where(np.random.default_rng(seed).random((side, side)) < HOLES, "H", "F")
    tile[0, 0], tile[-1, -1] = "S", "G"
    return pr.envs.frozen_lake("\n".join("".join(row) for row in tile), discount).at(TRUTH)


@dataclasses.dataclass
class Contender:
    """`prepare` makes the planner's own input afresh (not timed), `solve` plans, `values` reads the answer."""

    prepare: Callable[[], object]
    solve: Callable
    values: Callable


def _prudent(mdp: pr.MDP) -> Contender:
    return Contender(lambda: mdp, lambda mdp: pr.plan(mdp, tolerance=ERROR), lambda plan: plan.values)


def _quantecon(mdp: pr.MDP) -> Contender:
    quantecon = importlib.import_module("quantecon")
    states, actions, successors = mdp.kernel.support.shape
    pair = np.repeat(np.arange(states * actions), successors)
    kernel = csr_matrix(
        (np.asarray(mdp.kernel.probability).ravel(), (pair, mdp.kernel.support.index().ravel())),
        shape=(states * actions, states),
    )
    numbers = np.divmod(np.arange(states * actions), actions)
    program = quantecon.markov.DiscreteDP(-np.asarray(mdp.cost).ravel(), kernel, float(mdp.discount), *numbers)

    # Its values end in the middle of an interval of length epsilon.
    def solve(program):
        return program.solve(method="modified_policy_iteration", epsilon=2 * ERROR, max_iter=100_000)

    return Contender(lambda: program, solve, lambda result: -result.v)


def _mdpsolver(mdp: pr.MDP, algorithm: str, parallel: bool) -> Contender:
    mdpsolver = importlib.import_module("mdpsolver")
    probabilities, columns = _merged(mdp)
    rewards = (-np.asarray(mdp.cost)).tolist()

    # Afresh each time: a model that has been solved starts from its last answer.
    def prepare():
        model = mdpsolver.model()
        model.mdp(discount=float(mdp.discount), rewards=rewards, tranMatProbs=probabilities, tranMatColumns=columns)
        return model

    def solve(model):
        model.solve(algorithm=algorithm, tolerance=ERROR, parallel=parallel)
        return model

    return Contender(prepare, solve, lambda model: -np.array(model.getValueVector()))


def _merged(mdp: pr.MDP) -> tuple[list, list]:
    """Probabilities and next states as nested lists, each next state once and none of probability 0."""
    probabilities, columns = [], []
    table = zip(np.asarray(mdp.kernel.probability).tolist(), mdp.kernel.support.index().tolist(), strict=True)
    for chances, successors in table:
        rows: list[dict[int, float]] = []
        for chance, successor in zip(chances, successors, strict=True):
            row: dict[int, float] = {}
            for value, state in zip(chance, successor, strict=True):
                if value > 0:
                    row[state] = row.get(state, 0.0) + value
            rows.append(row)
        probabilities.append([list(row.values()) for row in rows])
        columns.append([list(row) for row in rows])
    return probabilities, columns


RIVALS: dict[str, tuple[str, Callable[[pr.MDP], Contender]]] = {
    "quantecon": ("quantecon", _quantecon),
    "mdpsolver, mpi": ("mdpsolver", lambda mdp: _mdpsolver(mdp, "mpi", parallel=False)),
    "mdpsolver, parallel mpi": ("mdpsolver", lambda mdp: _mdpsolver(mdp, "mpi", parallel=True)),
    "mdpsolver, parallel vi": ("mdpsolver", lambda mdp: _mdpsolver(mdp, "vi", parallel=True)),
}


def _installed() -> dict[str, Callable[[pr.MDP], Contender]]:
    found = {}
    for name, (package, make) in RIVALS.items():
        if importlib.util.find_spec(package) is None:
            console.print(f"{name} is left out: {package} is not installed; pip install 'prudent[bench]'")
        else:
            found[name] = make
    return found


def _measure(contenders: dict[str, Contender], reference: np.ndarray, rounds: int) -> tuple[dict, dict]:
    """Seconds by round and largest value error of each contender, after one unmeasured round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    errors: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            slow = bool(seconds[name]) and seconds[name][0] > PATIENCE
            if slow:
                continue
            problem = contender.prepare()
            clock = time.perf_counter()
            answer = contender.solve(problem)
            passed = time.perf_counter() - clock
            if number or passed > PATIENCE:
                seconds[name].append(passed)
            errors[name] = float(np.abs(np.asarray(contender.values(answer)) - reference).max())
    return {name: np.array(values) for name, values in seconds.items()}, errors


def run(rounds: int, sizes: tuple[int, ...] = SIZES) -> None:
    makers = {"prudent": _prudent, **_installed()}
    for size in sizes:
        mdp, rows = random_lake(size), []
        reference = pr.plan(mdp, tolerance=1e-10).values
        seconds, errors = _measure({name: make(mdp) for name, make in makers.items()}, reference, rounds)
        for name, values in seconds.items():
            own = seconds["prudent"][: len(values)]
            share = ratio(own, values)
            aim = verdict(share, 0.6) if name != "prudent" and size > SIZES[0] else ""
            met = "" if errors[name] <= ERROR else " MISSED"
            rows.append((name, f"{np.median(values):.3g}", f"{errors[name]:.1e}{met}", f"{share:.2g}", aim))
        title = f"Planning a slippery lake of {size:.0e} states to a value error of {ERROR:g}, median of {rounds}"
        report(title, ("planner", "seconds", "error", "prudent's share", "aim"), rows)
    console.print()
