"""`solve` and `solve_many`: check everything, run the compiled blocks, report on fresh draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..arrays import as_key, in_float64, key_words, require_kind, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, GradientEstimator, Problem, arrange, is_direct, model_bytes
from ..losses import ExpectedCost, Loss
from ..models import AbstractFamily
from ..occupancies import Exact, Method
from ..policies import Parametrisation, Softmax, TabularPolicy, action_tables, projected
from ..posteriors import Posterior
from ..risks import CVaR, Risk
from .brpg import BRPG, CONVERGED, GOING, NON_FINITE, State, begin, run_block
from .checks import check_method, check_parts, check_start, start_at
from .draws import Draws, Run
from .judging import Judgement, judge
from .outputs import where
from .progress import Progress
from .solution import Checkpoint, History, Solution, Status

# A batch of runs: in cache for the direct solver (beyond it each model takes twice as long), else in memory.
BATCH_BYTES = {True: 10 * 2**20, False: 256 * 2**20}


def solve(
    model: AbstractFamily,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    gradient: GradientEstimator | None = None,
    solver: BRPG | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    start: Any = None,
    resume: Solution | None = None,
    progress: bool | None = None,
) -> Solution:
    """Minimise `rho_theta( F(lambda, P_theta) )` over policies, theta following the belief.

    Args:
        model: the family of MDPs.
        belief: posterior of theta, any `Posterior`; a user's own class supplies `draw`.
        risk: coherent risk over the belief; `CVaR(0.9)` when left out.
        loss: `(occupancy, mdp) -> scalar`, convex in the occupancy; expected discounted cost when left out.
        policy: how parameters become probabilities; tabular softmax when left out.
        gradient: how the gradient is found: `Adjoint()` (exact, when left out), `Variational()`, `ZerothOrder()`.
        solver: settings, the paper's when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        seed: whole number or `jax.random.key`; the same seed gives the same bits.
        start: parameters to start from, such as `solution.parameters`; the policy's own start when left out.
        resume: a solution of the same call to go on from, for `solver.iterations` more.
        progress: show a bar; when left out, only on a terminal and only if the run takes a while.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> solution = pr.solve(lake, belief, risk=pr.CVaR(0.9), solver=pr.BRPG(iterations=20))
    >>> solution.policy.probabilities.shape, solution.iterations
    ((4, 4), 20)
    """
    return _solve_grid(
        model,
        [belief],
        [CVaR(0.9) if risk is None else risk],
        [as_key(seed)],
        _Parts(loss, policy, gradient, solver, occupancy),
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
    solver: BRPG | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    start: Sequence[Sequence[Any]] | None = None,
    resume: Sequence[Sequence[Solution]] | None = None,
    progress: bool | None = None,
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
    parts = _Parts(loss, policy, gradient, solver, occupancy)
    return _solve_grid(model, beliefs, risks, keys, parts, start, resume, progress)


class _Parts:
    """The parts of a call with their defaults filled in."""

    def __init__(self, loss: Any, policy: Any, gradient: Any, solver: Any, occupancy: Any):
        self.loss = ExpectedCost() if loss is None else loss
        self.policy = Softmax() if policy is None else policy
        self.gradient = Adjoint() if gradient is None else gradient
        self.settings = BRPG() if solver is None else solver
        self.occupancy = Exact() if occupancy is None else occupancy


@in_float64
def _solve_grid(
    model: AbstractFamily,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    keys: Sequence[jax.Array],
    parts: _Parts,
    start: Sequence[Sequence[Any]] | None,
    resume: Sequence[Sequence[Solution]] | None,
    progress: bool | None,
) -> list[list[Solution]]:
    check_parts(model, beliefs, risks, parts.loss, parts.occupancy)
    check_method(parts.policy, parts.gradient, parts.settings, risks)
    for row in resume or []:
        for solution in row:
            require_kind("resume", solution, Solution, "a Solution of the same call")
            _checkpoint(solution)
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
    grid: list[list[Any]] = [[None] * len(risks) for _ in beliefs]
    for columns in _alike(risks):
        alike = [run for run in runs if run[1] in columns]
        for batch in _batches(alike, method, model, parts.settings):
            before = None if resume is None else [resume[i][j] for i, j, _ in batch]
            solutions = _solve_batch(model, method, [run for _, _, run in batch], parts, before, progress)
            for (i, j, _), solution in zip(batch, solutions, strict=False):
                grid[i][j] = solution
    return grid


def _batches(runs: list[tuple], method: Method, model: AbstractFamily, settings: BRPG) -> list[list[tuple]]:
    """Cut many runs into equal batches that fit the cache or memory; one compiled function serves all.

    The last batch is filled up with repeats of its last run, whose answers are dropped, because a
    shorter batch would be compiled anew.
    """
    fit = max(1, BATCH_BYTES[is_direct(method)] // (settings.samples * model_bytes(method, model.support)))
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


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _solve_batch(
    model: AbstractFamily,
    method: Method,
    runs: Sequence[Run],
    parts: _Parts,
    before: list[Solution] | None,
    progress: bool | None,
) -> list[Solution]:
    clock = time.perf_counter()
    settings = parts.settings
    problem = Problem(model, parts.loss, _stack([run.risk for run in runs]), parts.policy, method)
    draws = Draws(runs)
    initial = _stack([run.start for run in runs])
    beginning = begin(settings.for_loop(), initial, len(runs))
    if before is None:
        check_start(problem, jax.tree.map(lambda leaf: leaf[0], initial), draws.first(4), parts.gradient)
        state, histories, start = beginning, [np.empty((0, 3))] * len(runs), 0
        going = np.ones(len(runs), dtype=bool)
    else:
        state, histories, start = _restore(before, settings, runs, beginning)
        going = np.asarray(state.finished) == GOING
    held_out = arrange(draws.held_out(settings.output.held_out()), problem)
    state, trace, iterates = _iterate(problem, parts, draws, state, held_out, start, progress)
    outcome = _outcome(problem, settings, state, held_out, draws)
    kept: list[Any] = []
    for g in range(len(runs)):
        # A run that stopped early made one evaluation more than it took steps.
        made = (int(state.steps[g]) - start + int(state.finished[g] != GOING)) * int(going[g])
        histories[g] = np.concatenate([histories[g], trace[: max(0, made), :, g]])
        kept.append(jax.tree.map(lambda rows, g=g, made=made: rows[: max(0, made), g], iterates))
        if before is not None and before[g].iterates is not None and iterates is not None:
            kept[g] = jax.tree.map(lambda *rows: np.concatenate(rows), before[g].iterates, kept[g])
    worse = _worse_than(problem, initial, outcome, [history[:, 0] for history in histories])
    seconds = time.perf_counter() - clock
    solutions = []
    for g, run in enumerate(runs):
        solutions.append(
            Solution(
                status=_status(int(state.finished[g]), bool(outcome.sound[g]), bool(worse[g])),
                policy=TabularPolicy(outcome.probabilities[g]),
                risk=float(outcome.judged.risk[g]),
                risk_standard_error=float(outcome.judged.standard_error[g]),
                losses=outcome.judged.losses[g],
                weights=outcome.judged.weights[g],
                thetas=outcome.judged.thetas[g],
                truncation=method.error_bound(float(model.discount)),
                history=History(*histories[g].T),
                iterations=int(state.steps[g]),
                seconds=seconds,
                parameters=jax.tree.map(lambda leaf, g=g: leaf[g], outcome.parameters),
                checkpoint=Checkpoint(jax.tree.map(lambda leaf, g=g: leaf[g], state), run.words),
                iterates=kept[g],
            )
        )
    return solutions


def _iterate(
    problem: Problem,
    parts: _Parts,
    draws: Draws,
    state: State,
    held_out: np.ndarray,
    start: int,
    progress: bool | None,
) -> tuple[State, np.ndarray, Any]:
    """Run `settings.iterations` more; the final state, the history `[T, 3, G]` and the iterates `[T, G, ...]`."""
    settings = parts.settings
    loop_settings = settings.for_loop()
    end = start + settings.iterations
    length = int(np.prod(draws.sizes(settings.samples)))
    traces = [np.empty((0, 3, len(draws.runs)))]
    iterates = [jax.tree.map(lambda leaf: np.asarray(leaf)[None][:0], state.parameters)]
    iteration = start
    with Progress(progress, start, end) as bar:
        while iteration < end and np.any(np.asarray(state.finished) == GOING):
            first = iteration - iteration % length
            last = min(first + length, end)
            thetas, chance = draws.block(settings.samples, first, iteration, last)
            thetas = np.stack([arrange(drawn, problem) for drawn in thetas])
            while iteration < last and np.any(np.asarray(state.finished) == GOING):
                span = np.array([iteration - first, min(last, iteration + bar.stride) - first], np.int32)
                state, position, trace, passed = run_block(
                    problem,
                    parts.gradient,
                    loop_settings,
                    state,
                    thetas,
                    chance,
                    held_out,
                    np.array(first, np.int32),
                    span,
                )
                reached = first + int(position)
                traces.append(np.asarray(trace)[iteration - first : reached - first])
                if settings.keep_iterates:
                    made = slice(iteration - first, reached - first)
                    iterates.append(jax.tree.map(lambda rows, made=made: np.asarray(rows)[made], passed))
                iteration = reached
                bar.advance(iteration, traces[-1])
    together = jax.tree.map(lambda *rows: np.concatenate(rows), *iterates) if settings.keep_iterates else None
    return to_numpy(state), np.concatenate(traces), together


class _Outcome(NamedTuple):
    """The output iterate of each run, and its risk on draws that no iteration has seen."""

    parameters: Any
    probabilities: np.ndarray
    judged: Judgement
    sound: np.ndarray


def _outcome(problem: Problem, settings: BRPG, state: State, held_out: np.ndarray, draws: Draws) -> _Outcome:
    chosen = settings.output.choose(state.kept, state.parameters, problem, held_out)
    sound = (np.asarray(state.finished) != NON_FINITE) & np.isfinite(np.asarray(chosen.score))
    parameters = to_numpy(where(sound, chosen.parameters, state.sound))
    probabilities = np.asarray(action_tables(problem.policy, parameters))
    judged = judge(problem, probabilities, draws.evaluation(settings.evaluation))
    return _Outcome(parameters, probabilities, judged, sound & judged.finite())


def _worse_than(problem: Problem, initial: Any, outcome: _Outcome, objectives: list[np.ndarray]) -> np.ndarray:
    """Which runs ended clearly above the risk of the policy they began with, on the same fresh draws.

    The start is evaluated only if the sampled objective of some run looks as if it had risen.
    """
    ours = outcome.judged
    if not any(
        len(objective) > 1 and objective[-len(objective) // 4 :].mean() > objective[0] for objective in objectives
    ):
        return np.zeros(len(ours.risk), dtype=bool)
    first = judge(problem, np.asarray(action_tables(problem.policy, initial)), ours.thetas)
    return ours.clearly_above(first)


def _status(finished: int, sound: bool, worse: bool) -> Status:
    if not sound:
        return Status.NON_FINITE
    if worse:
        return Status.DIVERGED
    return Status.CONVERGED if finished == CONVERGED else Status.ITERATION_LIMIT


def _checkpoint(solution: Solution) -> Checkpoint:
    if solution.checkpoint is None:
        raise InputError(
            f"resume needs a Solution of solve(); this one ({solution.status.name}) is a baseline's and has no "
            "checkpoint; leave resume= out, or begin at its policy with policy=Direct(), start=policy.probabilities"
        )
    return solution.checkpoint


def _restore(
    before: list[Solution], settings: BRPG, runs: Sequence[Run], beginning: State
) -> tuple[State, list[np.ndarray], int]:
    """The batch's state from its solutions; a run that had converged goes on only at a lower tolerance."""
    checkpoints = [_checkpoint(solution) for solution in before]
    state: State = _stack([checkpoint.state for checkpoint in checkpoints])
    for checkpoint, run in zip(checkpoints, runs, strict=True):
        if checkpoint.key != run.words:
            raise InputError("resume needs the seed of the first call, so that the draws go on where they stopped")
    same = jax.tree.structure(beginning) == jax.tree.structure(state) and all(
        np.shape(ours) == np.shape(theirs)
        for ours, theirs in zip(jax.tree.leaves(beginning), jax.tree.leaves(state), strict=True)
    )
    if not same:
        raise InputError(
            "resume needs the model, policy and optimiser of the first call; its checkpoint holds other ones"
        )
    last = np.array([solution.history.gradient_norm[-1] if len(solution.history) else np.inf for solution in before])
    revived = (state.finished == CONVERGED) & (last > np.asarray(settings.tolerance))
    steps = np.asarray(state.steps)
    going = (state.finished == GOING) | revived
    if np.unique(steps[going]).size > 1:
        raise InputError("these runs stopped at different iterations; resume each with solve() on its own")
    histories = [
        np.stack([np.asarray(column) for column in jax.tree.leaves(solution.history)], axis=1)[
            : steps[g] if going[g] else None
        ]
        for g, solution in enumerate(before)
    ]
    state = eqx.tree_at(lambda s: s.finished, state, np.where(going, GOING, state.finished).astype(np.int32))
    return state, histories, int(steps[going][0]) if going.any() else 0
