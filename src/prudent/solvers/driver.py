"""`solve` and `solve_many`: check everything, run the compiled blocks, report on fresh draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..arrays import as_key, in_float64, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, Problem, assess, losses_on
from ..losses import ExpectedCost, Loss
from ..models import AbstractFamily
from ..occupancies import Exact, Method
from ..policies import Parametrisation, Softmax, TabularPolicy, action_tables
from ..posteriors import Posterior
from ..risks import CVaR, Risk
from .brpg import BRPG, CONVERGED, GOING, NON_FINITE, State, begin, run_block
from .checks import check_parts, check_start
from .progress import Progress
from .solution import Checkpoint, History, Solution, Status

# Draws of a block of iterations are made together on the host; this bounds the block.
BLOCK_ITERATIONS = 32
BLOCK_BYTES = 64 * 2**20

# Names of the independent random streams under a run's key.
ITERATION, HELD_OUT, EVALUATION, OUTPUT = range(4)


def solve(
    model: AbstractFamily,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    gradient: Adjoint | None = None,
    solver: BRPG | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    resume: Solution | None = None,
    progress: bool | None = None,
) -> Solution:
    """Minimise `rho_theta( F(lambda, P_theta) )` over policies, theta following the belief.

    Args:
        model: the family of MDPs.
        belief: posterior of theta, anything with `draw`.
        risk: coherent risk over the belief; `CVaR(0.9)` when left out.
        loss: `(occupancy, mdp) -> scalar`, convex in the occupancy; expected discounted cost when left out.
        policy: how parameters become probabilities; tabular softmax when left out.
        gradient: how the gradient is found; exact when left out.
        solver: settings, the paper's when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        seed: whole number or `jax.random.key`; the same seed gives the same bits.
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
    gradient: Adjoint | None = None,
    solver: BRPG | None = None,
    occupancy: Method | None = None,
    seed: int | jax.Array = 0,
    resume: Sequence[Sequence[Solution]] | None = None,
    progress: bool | None = None,
) -> list[list[Solution]]:
    """Every belief (data set) under every risk, `solutions[i][j]`, in one compiled call a kind of risk.

    Belief i uses `jax.random.fold_in(key, i)`, the same posterior draws for each of its risks; its
    solutions agree with `solve` under that key to rounding. Arguments are those of `solve`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> beliefs = [lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=s)) for s in range(3)]
    >>> grid = pr.solve_many(lake, beliefs, [pr.CVaR(0.0), pr.CVaR(0.9)], solver=pr.BRPG(iterations=20))
    >>> len(grid), len(grid[0])
    (3, 2)
    """
    if len(beliefs) == 0 or len(risks) == 0:
        raise InputError(f"solve_many needs at least one belief and one risk, got {len(beliefs)} and {len(risks)}")
    keys = [jax.random.fold_in(as_key(seed), i) for i in range(len(beliefs))]
    return _solve_grid(
        model, beliefs, risks, keys, _Parts(loss, policy, gradient, solver, occupancy), resume, progress
    )


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
    resume: Sequence[Sequence[Solution]] | None,
    progress: bool | None,
) -> list[list[Solution]]:
    check_parts(model, beliefs, risks, parts.loss, parts.policy, parts.gradient, parts.settings, parts.occupancy)
    if resume is not None and (len(resume) != len(beliefs) or any(len(row) != len(risks) for row in resume)):
        raise InputError("resume must hold one solution for each belief and risk, in the same order")
    words = [tuple(int(word) for word in np.asarray(jax.random.key_data(key)).ravel()) for key in keys]
    grid: list[list[Solution | None]] = [[None] * len(risks) for _ in beliefs]
    for columns in _alike(risks):
        stacked = _stack([risks[j] for _ in beliefs for j in columns])
        problem = Problem(model, parts.loss, stacked, parts.policy, parts.occupancy.resolve(model.support))
        before = None if resume is None else [row[j] for row in resume for j in columns]
        solutions = _run(problem, beliefs, words, len(columns), parts, before, progress)
        for g, solution in enumerate(solutions):
            grid[g // len(columns)][columns[g % len(columns)]] = solution
    return grid  # pyright: ignore[reportReturnType]


def _alike(risks: Sequence[Risk]) -> list[list[int]]:
    """Indices of risks that differ in numbers only, and so can share one compiled call."""
    groups: dict[Any, list[int]] = {}
    for j, risk in enumerate(risks):
        leaves, structure = jax.tree.flatten(risk)
        groups.setdefault((structure, *(np.shape(leaf) for leaf in leaves)), []).append(j)
    return list(groups.values())


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


class _Draws:
    """Posterior draws for the G runs of a batch; runs of one belief share them."""

    def __init__(self, beliefs: Sequence[Posterior], words: Sequence[tuple[int, ...]], copies: int):
        self.beliefs, self.words, self.copies = beliefs, words, copies

    def _each(self, make: Callable[[Posterior, np.random.Generator], np.ndarray], *path: int) -> np.ndarray:
        rows = [
            make(belief, np.random.default_rng([*words, *path]))
            for belief, words in zip(self.beliefs, self.words, strict=True)
        ]
        return np.repeat(np.stack(rows), self.copies, axis=0)

    def thetas(self, n: int, *path: int) -> np.ndarray:
        """`[G, n, ...]`."""
        return self._each(lambda belief, random: np.asarray(belief.draw(random, n), dtype=np.float64), *path)

    def block(self, length: int, samples: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws `[T, G, R, ...]` and uniform numbers `[T, G]` of block `number`."""
        thetas = self.thetas(length * samples, ITERATION, number)
        thetas = np.moveaxis(thetas.reshape(len(thetas), length, samples, *thetas.shape[2:]), 1, 0)
        uniforms = self._each(lambda _, random: random.random(length), OUTPUT, number)
        return thetas, uniforms.T


def _run(
    problem: Problem,
    beliefs: Sequence[Posterior],
    words: list[tuple[int, ...]],
    copies: int,
    parts: _Parts,
    before: list[Solution] | None,
    progress: bool | None,
) -> list[Solution]:
    clock = time.perf_counter()
    settings, support = parts.settings, problem.family.support
    groups = len(beliefs) * copies
    draws = _Draws(beliefs, words, copies)
    initial = parts.policy.initial(support.states, support.actions)
    if before is None:
        check_start(problem, initial, draws.thetas(min(settings.samples, 8), ITERATION, 0)[:: copies])
        state = begin(settings, jax.tree.map(lambda leaf: np.broadcast_to(leaf, (groups, *leaf.shape)), initial), groups)
        histories = [np.empty((0, 3))] * groups
        start = 0
    else:
        state, histories, start = _restore(before, settings, words, copies)
    held_out = draws.thetas(settings.output.held_out, HELD_OUT) if settings.output.held_out else np.zeros((groups, 0))

    size = draws.thetas(1, EVALUATION)[0, 0].size
    length = int(np.clip(BLOCK_BYTES // (8 * groups * settings.samples * size), 1, BLOCK_ITERATIONS))
    end = start + settings.iterations
    traces = [np.empty((0, 3, groups))]
    iteration = start
    with Progress(progress, start, end) as bar:
        while iteration < end and np.any(np.asarray(state.finished) == GOING):
            number, offset = divmod(iteration, length)
            thetas, uniforms = draws.block(length, settings.samples, number)
            first, last = number * length, min((number + 1) * length, end)
            while iteration < last and np.any(np.asarray(state.finished) == GOING):
                stop = min(last, iteration + bar.stride)
                span = (np.int32(iteration - first), np.int32(stop - first))
                state, position, trace = run_block(
                    problem, parts.gradient, settings, state, thetas, uniforms, held_out, np.int32(first), span
                )
                reached = first + int(position)
                traces.append(np.asarray(trace)[iteration - first : reached - first])
                iteration = reached
                bar.advance(iteration, traces[-1])
    state = to_numpy(state)
    trace = np.concatenate(traces)
    outcome = _outcome(problem, settings, state, held_out, draws)
    seconds = time.perf_counter() - clock
    solutions = []
    for g in range(groups):
        # A run that stopped early made one evaluation more than it took steps.
        made = int(state.steps[g]) - start + (state.finished[g] != GOING) if len(trace) else 0
        history = np.concatenate([histories[g], trace[: max(0, made), :, g]])
        solutions.append(
            Solution(
                status=_status(int(state.finished[g]), history[:, 0]),
                policy=TabularPolicy(outcome["probabilities"][g]),
                risk=float(outcome["risk"][g]),
                risk_standard_error=float(outcome["standard_error"][g]),
                losses=outcome["losses"][g],
                weights=outcome["weights"][g],
                thetas=outcome["thetas"][g],
                history=History(*history.T),
                iterations=int(state.steps[g]),
                seconds=seconds,
                parameters=jax.tree.map(lambda leaf, g=g: leaf[g], outcome["parameters"]),
                checkpoint=Checkpoint(jax.tree.map(lambda leaf, g=g: leaf[g], state), words[g // copies]),
            )
        )
    return solutions


def _outcome(problem: Problem, settings: BRPG, state: State, held_out: np.ndarray, draws: _Draws) -> dict[str, Any]:
    """The output iterate of each run, and its risk on draws that no iteration has seen."""
    chosen = settings.output.choose(state.kept, state.parameters, problem, held_out)
    broken = np.asarray(state.finished) == NON_FINITE
    parameters = jax.tree.map(
        lambda good, last: np.where(broken.reshape(-1, *([1] * (np.ndim(last) - 1))), good, last), state.sound, chosen
    )
    probabilities = np.asarray(action_tables(problem.policy, parameters))
    thetas = draws.thetas(settings.evaluation, EVALUATION)
    losses = losses_on(problem, probabilities, thetas)
    risk, weights, standard_error = to_numpy(_assess(problem.risk, losses))
    return {
        "parameters": to_numpy(parameters),
        "probabilities": probabilities,
        "thetas": thetas,
        "losses": losses,
        "risk": risk,
        "weights": weights,
        "standard_error": standard_error,
    }


@eqx.filter_jit
def _assess(risk: Risk, losses: Any) -> tuple[Any, Any, Any]:
    value, weights = assess(risk, losses)
    return value, weights, jax.vmap(lambda risk, row: risk.standard_error(row))(risk, losses)


def _status(finished: int, objective: np.ndarray) -> Status:
    if finished == NON_FINITE:
        return Status.NON_FINITE
    if _rose(objective):
        return Status.DIVERGED
    return Status.CONVERGED if finished == CONVERGED else Status.ITERATION_LIMIT


def _rose(objective: np.ndarray) -> bool:
    """Whether the sampled objective ended clearly above where it began: by 5 times its recent spread."""
    if len(objective) < 20:
        return False
    tail = objective[-len(objective) // 4 :]
    return bool(tail.mean() - objective[0] > 5.0 * tail.std() + 1e-6 * abs(objective[0]))


def _restore(
    before: list[Solution], settings: BRPG, words: list[tuple[int, ...]], copies: int
) -> tuple[State, list[np.ndarray], int]:
    """The batch's state from its solutions; a run that had converged goes on only at a lower tolerance."""
    state: State = _stack([solution.checkpoint.state for solution in before])
    for g, solution in enumerate(before):
        if solution.checkpoint.key != words[g // copies]:
            raise InputError("resume needs the seed of the first call, so that the draws go on where they stopped")
    expected = jax.eval_shape(lambda: begin(settings, state.parameters, len(before)))
    if jax.tree.structure(expected) != jax.tree.structure(state):
        raise InputError("resume needs the optimiser and policy of the first call; its checkpoint holds other ones")
    last = np.array([solution.history.gradient_norm[-1] if len(solution.history) else np.inf for solution in before])
    revived = (state.finished == CONVERGED) & (last > np.asarray(settings.tolerance))
    steps = np.asarray(state.steps)
    going = (state.finished == GOING) | revived
    if np.unique(steps[going]).size > 1:
        raise InputError("these runs stopped at different iterations; resume each with solve() on its own")
    histories = [
        np.stack([np.asarray(column) for column in jax.tree.leaves(solution.history)], axis=1)[: steps[g] if going[g] else None]
        for g, solution in enumerate(before)
    ]
    state = eqx.tree_at(lambda s: s.finished, state, np.where(going, GOING, state.finished).astype(np.int32))
    return state, histories, int(steps[going][0]) if going.any() else 0
