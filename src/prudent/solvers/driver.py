"""`solve` and `solve_many`: check everything, run the compiled blocks, report on fresh draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays import as_key, in_float64, key_words, require_kind, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, GradientEstimator, Problem, ZerothOrder
from ..losses import ExpectedCost, Loss
from ..models import AbstractFamily
from ..occupancies import Exact, Method
from ..policies import Parametrisation, Softmax, TabularPolicy, action_tables, projected
from ..posteriors import Posterior
from ..risks import CVaR, Envelope, Risk
from .brpg import BRPG
from .certificates import certify as certified
from .checks import check_method, check_parts, check_start, start_at
from .draws import Draws, Run, stacked
from .judging import Judgement, judge, judge_closely
from .optimiser import Optimiser
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, Status, checkpoint_of


def solve(
    model: AbstractFamily,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    gradient: GradientEstimator | None = None,
    solver: Optimiser | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    start: Any = None,
    resume: Solution | None = None,
    progress: bool | None = None,
    certify: bool = True,
) -> Solution:
    """Minimise `rho_theta( F(lambda, P_theta) )` over policies, theta following the belief.

    Args:
        model: the family of MDPs.
        belief: posterior of theta, any `Posterior`; a user's own class supplies `draw`.
        risk: coherent risk over the belief; `CVaR(0.9)` when left out.
        loss: `(occupancy, mdp) -> scalar`, convex in the occupancy; expected discounted cost when left out.
        policy: how parameters become probabilities; tabular softmax when left out.
        gradient: how the gradient is found: `Adjoint()` (exact, when left out), `Variational()`, `ZerothOrder()`.
        solver: `SampleAverage()` when left out; `BRPG()` is the paper's algorithm, and the one used when left out
            for the other gradient estimators and for an `Envelope`, whose risk is a convex program.
        occupancy: `Exact()` or `Truncated(horizon)`.
        seed: whole number or `jax.random.key`; the same seed gives the same bits.
        start: parameters to start from, such as `solution.parameters`; the policy's own start when left out.
        resume: a solution of the same call to go on from, for `solver.iterations` more.
        progress: show a bar; when left out, only on a terminal and only if the run takes a while.
        certify: find the solution's `certificate`, for at most about what the solution cost.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> solution = pr.solve(lake, belief, risk=pr.CVaR(0.9), solver=pr.BRPG(iterations=20))
    >>> solution.policy.probabilities.shape, solution.iterations
    ((4, 4), 20)
    """
    risks = [CVaR(0.9) if risk is None else risk]
    return solve_grid(
        model,
        [belief],
        risks,
        [as_key(seed)],
        Parts(risks, loss, policy, gradient, solver, occupancy, certify),
        None if start is None else [[start]],
        None if resume is None else [[resume]],
        progress,
    )[0][0]


def solve_many(
    model: AbstractFamily,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    *,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    gradient: GradientEstimator | None = None,
    solver: Optimiser | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    start: Sequence[Sequence[Any]] | None = None,
    resume: Sequence[Sequence[Solution]] | None = None,
    progress: bool | None = None,
    certify: bool = True,
) -> list[list[Solution]]:
    """Every belief (data set) under every risk, `solutions[i][j]`, in one compiled call a kind of risk.

    Belief i uses `jax.random.fold_in(key, i)`, the same posterior draws for each of its risks; its
    solutions agree with `solve` under that key to rounding. Arguments are those of `solve`, but `start[i][j]`
    and `resume[i][j]` belong to belief i under risk j.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> beliefs = [lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=s)) for s in range(3)]
    >>> grid = pr.solve_many(lake, beliefs, [pr.CVaR(0.0), pr.CVaR(0.9)], solver=pr.BRPG(iterations=20))
    >>> len(grid), len(grid[0])
    (3, 2)
    """
    for name, several in (("beliefs", beliefs), ("risks", risks)):
        require_kind(name, several, Sequence, "a list, one entry a run; solve() takes a single one")
    if len(beliefs) == 0 or len(risks) == 0:
        raise InputError(f"solve_many needs at least one belief and one risk, got {len(beliefs)} and {len(risks)}")
    keys = [jax.random.fold_in(as_key(seed), i) for i in range(len(beliefs))]
    parts = Parts(risks, loss, policy, gradient, solver, occupancy, certify)
    return solve_grid(model, beliefs, risks, keys, parts, start, resume, progress)


def default_solver(gradient: GradientEstimator, risks: Sequence[Any]) -> Optimiser:
    """`SampleAverage()`, or the paper's algorithm where that cannot be used or every assessment is a program."""
    envelope = any(
        isinstance(part, Envelope)
        for risk in risks
        for part in jax.tree.leaves(risk, is_leaf=lambda node: isinstance(node, Envelope))
    )
    return SampleAverage() if isinstance(gradient, Adjoint) and not envelope else BRPG()


class Parts:
    """The parts of a call with their defaults filled in."""

    def __init__(
        self, risks: Sequence[Risk], loss: Any, policy: Any, gradient: Any, solver: Any, occupancy: Any, certify: bool
    ):
        self.loss = ExpectedCost() if loss is None else loss
        self.policy = Softmax() if policy is None else policy
        self.gradient = Adjoint() if gradient is None else gradient
        self.settings = default_solver(self.gradient, risks) if solver is None else solver
        self.occupancy = Exact() if occupancy is None else occupancy
        self.certify = bool(certify)


@in_float64
def solve_grid(
    model: AbstractFamily,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    keys: Sequence[jax.Array],
    parts: Parts,
    start: Sequence[Sequence[Any]] | None,
    resume: Sequence[Sequence[Solution]] | None,
    progress: bool | None,
) -> list[list[Solution]]:
    """`solve_many` with a random key for each belief, which may be the same for several."""
    check_parts(model, beliefs, risks, parts.loss, parts.occupancy)
    check_method(parts.policy, parts.gradient, parts.settings, risks)
    for row in resume or []:
        for solution in row:
            require_kind("resume", solution, Solution, "a Solution of the same call")
            checkpoint_of(solution)
    for name, several in (("resume", resume), ("start", start)):
        if several is not None and (len(several) != len(beliefs) or any(len(row) != len(risks) for row in several)):
            raise InputError(f"{name} must hold one entry for each belief and risk, in the same order")
    method = parts.occupancy.resolve(model.support)
    initial = parts.policy.initial(model.support.states, model.support.actions)
    initial = to_numpy(projected(parts.policy.within, initial))

    def first(i: int, j: int) -> Any:
        return initial if start is None else start_at(start[i][j], initial, parts.policy)

    runs = [
        (i, j, Run(belief, risk, key_words(key), first(i, j)))
        for i, (belief, key) in enumerate(zip(beliefs, keys, strict=True))
        for j, risk in enumerate(risks)
    ]
    question = Problem(model, parts.loss, risks[0], parts.policy, method)
    grid: list[list[Any]] = [[None] * len(risks) for _ in beliefs]
    for columns in _alike(risks):
        alike = [run for run in runs if run[1] in columns]
        for batch in _batches(alike, parts.settings.runs_at_once(question)):
            before = None if resume is None else [resume[i][j] for i, j, _ in batch]
            solutions = _solve_batch(model, method, [run for _, _, run in batch], parts, before, progress)
            for (i, j, _), solution in zip(batch, solutions, strict=False):
                grid[i][j] = solution
    return grid


def _batches(runs: list[tuple], fit: int) -> list[list[tuple]]:
    """Cut many runs into equal batches of at most `fit`; one compiled function serves all.

    The last batch is filled up with repeats of its last run, whose answers are dropped, because a
    shorter batch would be compiled anew.
    """
    number = -(-len(runs) // fit)
    size = -(-len(runs) // number)
    batches = [runs[first : first + size] for first in range(0, len(runs), size)]
    batches[-1] += batches[-1][-1:] * (size - len(batches[-1]))
    return batches


def _alike(risks: Sequence[Risk]) -> list[list[int]]:
    """Indices of risks that differ in numbers only, and so can share one compiled call."""
    groups: dict[Any, list[int]] = {}
    for j, risk in enumerate(risks):
        leaves, structure = jax.tree.flatten(risk)
        groups.setdefault((structure, *(np.shape(leaf) for leaf in leaves)), []).append(j)
    return list(groups.values())


def _solve_batch(
    model: AbstractFamily,
    method: Method,
    runs: Sequence[Run],
    parts: Parts,
    before: list[Solution] | None,
    progress: bool | None,
) -> list[Solution]:
    clock = time.perf_counter()
    problem = Problem(model, parts.loss, stacked([run.risk for run in runs]), parts.policy, method)
    draws = Draws(runs)
    initial = stacked([run.start for run in runs])
    if before is None:
        check_start(problem, jax.tree.map(lambda leaf: leaf[0], initial), draws.first(4), parts.gradient)
    found = parts.settings.optimise(problem, parts.gradient, draws, before, progress)
    tables = np.asarray(action_tables(parts.policy, stacked([run.parameters for run in found])))
    fresh = draws.evaluation(parts.settings.evaluation)
    slopes: list[Any] = [None] * len(runs)
    if parts.certify and not isinstance(parts.gradient, ZerothOrder):
        judged, slopes = judge_closely(problem, [run.risk for run in runs], tables, fresh)
    else:
        judged = judge(problem, tables, fresh)
    worse = _worse_than(problem, initial, judged, [run.history[:, 0] for run in found])
    seconds = time.perf_counter() - clock
    solutions = []
    for g, (run, answer) in enumerate(zip(runs, found, strict=True)):
        own = Judgement(*(part[g] for part in judged))
        sound = bool(judged.finite()[g])
        certificate = None
        if parts.certify and sound:
            certificate = certified(problem, run.risk, answer.parameters, tables[g], own, slopes[g], answer.in_sample)
        solutions.append(
            Solution(
                status=_status(answer.status, sound, bool(worse[g])),
                policy=TabularPolicy(tables[g]),
                risk=float(own.risk),
                risk_standard_error=float(own.standard_error),
                losses=own.losses,
                weights=own.weights,
                thetas=own.thetas,
                truncation=method.error_bound(float(model.discount)),
                history=History(*answer.history.T),
                iterations=answer.iterations,
                seconds=seconds,
                parameters=answer.parameters,
                checkpoint=Checkpoint(answer.state, run.words),
                models=answer.models,
                certificate=certificate,
                iterates=answer.iterates,
            )
        )
    return solutions


def _worse_than(problem: Problem, initial: Any, ours: Judgement, objectives: list[np.ndarray]) -> np.ndarray:
    """Which runs ended clearly above the risk of the policy they began with, on the same fresh draws.

    The start is evaluated only if the sampled objective of some run looks as if it had risen.
    """
    if not any(
        len(objective) > 1 and objective[-len(objective) // 4 :].mean() > objective[0] for objective in objectives
    ):
        return np.zeros(len(ours.risk), dtype=bool)
    first = judge(problem, np.asarray(action_tables(problem.policy, initial)), ours.thetas)
    return ours.clearly_above(first)


def _status(ended: Status, sound: bool, worse: bool) -> Status:
    if not sound or ended is Status.NON_FINITE:
        return Status.NON_FINITE
    return Status.DIVERGED if worse else ended
