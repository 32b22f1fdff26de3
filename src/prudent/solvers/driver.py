"""`solve` and `solve_many`: check everything, run the compiled blocks, report on fresh draws."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays import as_key, in_float64, key_words, require_kind, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, GradientEstimator, Problem, ZerothOrder, alone
from ..losses import ExpectedCost, Loss
from ..models import AbstractFamily
from ..occupancies import Exact, Method
from ..policies import Parametrisation, Softmax, TabularPolicy, action_table, projected
from ..posteriors import Posterior
from ..risks import CVaR, Envelope, Risk
from .brpg import BRPG
from .certificates import Certificate
from .certificates import certify as certified
from .checks import check_method, check_parts, check_start, start_at
from .draws import Draws, Run, fresh_draws, stacked
from .footing import Footing, footing_of
from .judging import Judgement, judge, judge_closely, usual_draws
from .optimiser import Found, Optimiser, digest_of
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, Status, checkpoint_of, resumable

# Settings of a solver that a resumed run may change.
FREE_SETTINGS = ("iterations", "tolerance", "evaluation")


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
    """The parts of a call with their defaults filled in; all risks are judged on the same fresh draws."""

    def __init__(
        self, risks: Sequence[Risk], loss: Any, policy: Any, gradient: Any, solver: Any, occupancy: Any, certify: bool
    ):
        self.loss = ExpectedCost() if loss is None else loss
        self.policy = Softmax() if policy is None else policy
        self.gradient = Adjoint() if gradient is None else gradient
        self.settings = default_solver(self.gradient, risks) if solver is None else solver
        self.occupancy = Exact() if occupancy is None else occupancy
        self.certify = bool(certify)
        self.evaluation = 0

    def digests(self, risk: Risk) -> tuple[tuple[str, str], ...]:
        """What a resumed run must share with the first call, each part by its name; how long it runs may differ."""
        settings = {name: value for name, value in vars(self.settings).items() if name not in FREE_SETTINGS}
        named = {"risk": risk, "loss": self.loss, "policy": self.policy, "gradient": self.gradient}
        named |= {"solver": (type(self.settings).__name__, settings), "occupancy": self.occupancy}
        return tuple((name, digest_of(part)) for name, part in named.items())


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
        (i, j, Run(belief, risk, key_words(key), first(i, j), start is not None))
        for i, (belief, key) in enumerate(zip(beliefs, keys, strict=True))
        for j, risk in enumerate(risks)
    ]
    question = Problem(model, parts.loss, None, parts.policy, method)
    groups = _alike(runs)
    if resume is None:
        for alike in groups:
            check_start(question, alike[0][2].start, Draws([run for _, _, run in alike]).first(4), parts.gradient)
    parts.evaluation = parts.settings.evaluation or max(usual_draws(question, risk) for risk in risks)
    grid: list[list[Any]] = [[None] * len(risks) for _ in beliefs]
    for alike in groups:
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


def _alike(runs: list[tuple]) -> list[list[tuple]]:
    """Runs that can share one compiled call: their risks differ in numbers only, their beliefs have as many atoms."""
    groups: dict[Any, list[tuple]] = {}
    for run in runs:
        leaves, structure = jax.tree.flatten(run[2].risk)
        atoms = run[2].belief.as_atoms()
        name = (structure, *(np.shape(leaf) for leaf in leaves), None if atoms is None else len(atoms))
        groups.setdefault(name, []).append(run)
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
    for solution, run in zip(before or (), runs, strict=False):
        resumable(solution, parts.digests(run.risk), run.words)
    found = parts.settings.optimise(problem, parts.gradient, draws, before, progress)
    # The risk's numbers would otherwise be traced along for nothing.
    problem = alone(problem)
    solutions = []
    for answer, run in zip(found, runs, strict=True):
        judged, certificate = _judged(problem, run, answer, parts)
        footing = None if certificate is None else _stands_on(problem, run, answer, judged)
        seconds = time.perf_counter() - clock
        solutions.append(_solution(problem, run, answer, judged, certificate, footing, parts, seconds))
    return solutions


def _judged(problem: Problem, run: Run, answer: Found, parts: Parts) -> tuple[Judgement, Certificate | None]:
    """An answer on fresh draws, and its certificate where one is wanted and can be had."""
    table = np.asarray(action_table(problem.policy, answer.parameters))
    fresh = fresh_draws(run.belief, run.words, parts.evaluation)
    if not parts.certify:
        return judge(problem, run.risk, table, fresh), None
    slopes = None
    if isinstance(parts.gradient, ZerothOrder):
        judged = judge(problem, run.risk, table, fresh)
    else:
        judged, slopes = judge_closely(problem, run.risk, table, fresh)
    certificate = certified(problem, table, judged, run.risk, slopes, answer.in_sample) if judged.finite() else None
    return judged, certificate


def _stands_on(problem: Problem, run: Run, answer: Found, judged: Judgement) -> Footing:
    table = np.asarray(action_table(problem.policy, answer.parameters))
    return footing_of(problem, run.belief, run.risk, table, judged, run.words)


def _solution(
    problem: Problem,
    run: Run,
    answer: Found,
    judged: Judgement,
    certificate: Certificate | None,
    footing: Footing | None,
    parts: Parts,
    seconds: float,
) -> Solution:
    return Solution(
        status=_status(problem, run, answer, judged),
        policy=TabularPolicy(np.asarray(action_table(problem.policy, answer.parameters))),
        risk=judged.risk,
        risk_standard_error=judged.standard_error,
        interval=judged.interval,
        losses=judged.losses,
        weights=judged.weights,
        thetas=judged.draws.thetas,
        probabilities=judged.draws.probabilities,
        exact=judged.draws.exact,
        truncation=problem.occupancy.error_bound(float(problem.family.discount)),
        history=History(*answer.history.T),
        iterations=answer.iterations,
        seconds=seconds,
        parameters=answer.parameters,
        checkpoint=Checkpoint(answer.state, run.words, parts.digests(run.risk)),
        models=answer.models,
        certificate=certificate,
        footing=footing,
        iterates=answer.iterates,
    )


def _status(problem: Problem, run: Run, answer: Found, judged: Judgement) -> Status:
    """How the run ended; an answer clearly above the start's risk, on the same fresh draws, has diverged.

    The start is evaluated only if the sampled objective looks as if it had risen.
    """
    if not judged.finite() or answer.status is Status.NON_FINITE:
        return Status.NON_FINITE
    objective = answer.history[:, 0]
    if len(objective) < 2 or objective[-len(objective) // 4 :].mean() <= objective[0]:
        return answer.status
    first = judge(problem, run.risk, np.asarray(action_table(problem.policy, run.start)), judged.draws)
    return Status.DIVERGED if judged.clearly_above(first) else answer.status
