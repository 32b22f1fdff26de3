"""`solve` and `solve_many`: check everything, bring every job to its answer, report on fresh draws."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import as_float, in_float64, require_finite, require_kind, to_numpy
from ..errors import InputError, hinted
from ..evaluation import Evaluation, cheap_draws, check_question, judge, usual_draws
from ..gradients import Adjoint, GradientEstimator
from ..objectives import Objective, objective_of, point_at, relative_objective
from ..parameter_sets import projected
from ..phases import phase, status_line
from ..posteriors import Posterior, WeightedDraws
from ..records import same_structure, tree_leaves, tree_map
from ..risks import CVaR, Risk, check_envelope
from ..seeds import Seed, as_seed, child
from ..workers import mapped, workers
from .brpg import BRPG
from .certificates import Certificate, judge_closely
from .certificates import certify as certified
from .choosing import choose_point, draw_to_choose
from .descent import CONVERGED, GOING, VANISHED
from .draws import Job, JobDraws, fresh_draws
from .limits import (
    Infeasibility,
    Limit,
    LimitAnswer,
    LimitFindings,
    LimitsAsked,
    Verdict,
    checked_limits,
    infeasible,
    limit_answer,
    limit_objectives,
    refuse_idle,
)
from .limits import (
    certified as certified_within,
)
from .optimiser import Optimiser, Outcome, digest_of
from .progress import Shown, checked_progress, shown_on
from .sample_average import SampleAverage
from .solution import Checkpoint, History, Solution, SolveRequest, Status, checkpoint_of, resumable

# Told of a solution so far, which is made if it is asked for.
Keep = Callable[[Callable[[], Solution]], None]

# Fresh and held-out draws of a problem with limits, where that is cheap.
MANY_DRAWS = 8192

# Settings of a solver that a resumed run may change.
FREE_SETTINGS = ("iterations", "tolerance", "evaluation")


@hinted
def solve(
    model: Any,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Any = None,
    policy: Any = None,
    gradient: GradientEstimator | None = None,
    solver: Optimiser | None = None,
    occupancy: Any = None,
    relative_to: Any = None,
    seed: Seed = 0,
    start: Any = None,
    resume: Solution | None = None,
    progress: Shown = None,
    certify: bool = True,
    subject_to: Sequence[Limit] = (),
    keep: Keep | None = None,
) -> Solution:
    """Minimise `rho_theta( F(lambda, P_theta) )` over policies, theta following the belief.

    Args:
        model: the family of models, or any `Objective`.
        belief: posterior of theta, any `Posterior`; a user's own class supplies `draw`.
        risk: coherent risk over the belief; `CVaR(0.9)` when left out.
        loss: `(occupancy, mdp) -> scalar`, convex in the occupancy; expected discounted cost when left out.
        policy: how parameters become probabilities; tabular softmax when left out.
        gradient: how the gradient is found: `Adjoint()` (exact, when left out), `Variational()`, `ZerothOrder()`.
        solver: `SampleAverage()` when left out; `BRPG()` is the paper's algorithm, and the one used when left out
            for the other gradient estimators and for an `Envelope`, whose risk is a convex program.
        occupancy: `Exact()` or `Truncated(horizon)`.
        relative_to: a policy, such as today's practice: the loss of each draw is then the difference to that policy's
            loss. "best" stands for the best policy of each draw, so that the loss is the regret.
        seed: whole number; the same seed gives the same bits.
        start: parameters to start from, such as `solution.parameters`; the policy's own start when left out.
        resume: a solution of the same call to go on from, for `solver.iterations` more.
        progress: show a line that says what is done; when left out, only on a terminal. A function is
            called with a `RunState` after every iteration instead, in this process alone.
        certify: find the solution's `certificate` and `evidence`, for at most about what the solution cost.
        subject_to: limits that the policy has to keep; `solution.limits` says whether it does, and what each costs.
        keep: called now and then, first after the first iteration, with a function that gives the solution so far,
            which is not judged on fresh draws but can be gone on from with `resume=`; to keep, should the process end.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> solution = pr.solve(lake, belief, risk=pr.CVaR(0.9), solver=pr.BRPG(iterations=20))
    >>> solution.policy.probabilities.shape, solution.iterations
    ((4, 4), 20)
    """
    risks = [CVaR(0.9) if risk is None else risk]
    progress = checked_progress(progress)
    objective = objective_of(model, loss, policy, occupancy)
    if relative_to is not None:
        objective = relative_objective(objective, relative_to)
    with status_line(shown_on(progress)):
        phase("compiling")
        limits = checked_limits(subject_to) if subject_to else ()
        others = limit_objectives(limits, lambda own: objective_of(model, own, policy, occupancy))
        parts = Parts(objective, risks, gradient, solver, certify, limits, others)
        return solve_grid(
            [belief],
            risks,
            [as_seed(seed)],
            parts,
            None if start is None else [[start]],
            None if resume is None else [[resume]],
            progress,
            keep,
        )[0][0]


@hinted
def solve_many(
    model: Any,
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    *,
    loss: Any = None,
    policy: Any = None,
    gradient: GradientEstimator | None = None,
    solver: Optimiser | None = None,
    occupancy: Any = None,
    seed: Seed = 0,
    start: Sequence[Sequence[Any]] | None = None,
    resume: Sequence[Sequence[Solution]] | None = None,
    progress: Shown = None,
    certify: bool = True,
) -> list[list[Solution]]:
    """Every belief (data set) under every risk, `solutions[i][j]`, in one compiled call a kind of risk.

    Belief i uses `prudent.seeds.child(seed, i)`, the same posterior draws for each of its risks; its
    solutions agree with `solve` under that seed to rounding. Arguments are those of `solve`, but `start[i][j]`
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
    seeds = [child(seed, i) for i in range(len(beliefs))]
    parts = Parts(objective_of(model, loss, policy, occupancy), risks, gradient, solver, certify)
    progress = checked_progress(progress)
    with status_line(shown_on(progress)):
        phase("compiling")
        return solve_grid(beliefs, risks, seeds, parts, start, resume, progress)


def default_solver(gradient: GradientEstimator, risks: Sequence[Risk]) -> Optimiser:
    """`SampleAverage()`, or the paper's algorithm where that cannot be used or every assessment is a program."""
    return SampleAverage() if gradient.exact and not any(risk.is_program for risk in risks) else BRPG()


class Parts:
    """The parts of a call with their defaults filled in; all risks are judged on the same fresh draws."""

    def __init__(
        self,
        objective: Objective,
        risks: Sequence[Risk],
        gradient: Any,
        solver: Any,
        certify: bool,
        limits: tuple[Limit, ...] = (),
        others: tuple[Objective, ...] = (),
    ):
        self.objective, self.limits, self.others = objective, limits, others
        self.gradient = Adjoint() if gradient is None else gradient
        require_kind("gradient", self.gradient, GradientEstimator, "Adjoint(), Variational() or ZerothOrder()")
        for risk in risks:
            require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")
        self.settings = default_solver(self.gradient, risks) if solver is None else solver
        require_kind("solver", self.settings, Optimiser, "SampleAverage(...) or BRPG(...)")
        self.certify = bool(certify)
        self.evaluation = 0
        if limits and objective.no_limits():
            raise InputError(objective.no_limits())
        if limits and not (self.gradient.exact and isinstance(self.settings, SampleAverage)):
            raise InputError(
                "limits need the exact gradient and solver=SampleAverage(...); leave gradient= and solver= out. A "
                "model without derivatives cannot be solved with limits"
            )

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Return the objective of the loss, then those of the limits."""
        return (self.objective, *self.others)

    def digests(self, risk: Risk) -> tuple[tuple[str, str], ...]:
        """Return what a resumed run must share with the first call, each part by its name.

        How long it runs may differ.
        """
        settings = {name: value for name, value in vars(self.settings).items() if name not in FREE_SETTINGS}
        named = {"risk": risk, "gradient": self.gradient, "solver": (type(self.settings).__name__, settings)}
        named |= {"subject_to": list(self.limits)} if self.limits else {}
        return tuple((name, digest_of(part)) for name, part in (named | self.objective.parts()).items())


@in_float64
def solve_grid(
    beliefs: Sequence[Posterior],
    risks: Sequence[Risk],
    seeds: Sequence[Seed],
    parts: Parts,
    start: Sequence[Sequence[Any]] | None,
    resume: Sequence[Sequence[Solution]] | None,
    progress: Shown,
    keep: Keep | None = None,
) -> list[list[Solution]]:
    """`solve_many` with a seed for each belief, which may be the same for several."""
    objective = parts.objective
    for each in parts.objectives:
        check_question(each, list(beliefs), list(risks))
    for risk in risks:
        for draws in parts.settings.sizes():
            check_envelope(risk, draws)
    for row in resume or []:
        for solution in row:
            require_kind("resume", solution, Solution, "a Solution of the same call")
            checkpoint_of(solution)
    for name, several in (("resume", resume), ("start", start)):
        if several is not None and (len(several) != len(beliefs) or any(len(row) != len(risks) for row in several)):
            raise InputError(f"{name} must hold one entry for each belief and risk, in the same order")
    initial = to_numpy(projected(objective.within, objective.initial()))

    def first(i: int, j: int) -> Any:
        return initial if start is None else start_at(start[i][j], initial, objective)

    # In the order of the grid, row by row.
    jobs = [
        Job(belief, risk, seed, first(i, j), start is not None, None if resume is None else resume[i][j])
        for i, (belief, seed) in enumerate(zip(beliefs, seeds, strict=True))
        for j, risk in enumerate(risks)
    ]
    groups = _group_jobs(jobs)
    for group in groups:
        thetas = JobDraws([jobs[place] for place in group]).first(4)
        if resume is None:
            objective.check(thetas, jobs[group[0]].start, differentiable=not parts.gradient.by_values)
            _check_limits(parts, jobs[group[0]].start, thetas)
        parts.settings.check(objective, parts.gradient, thetas[0])
    parts.evaluation = parts.settings.evaluation or _usual_evaluation(parts, risks)
    fit = parts.settings.jobs_at_once(objective)
    batches = [batch.tolist() for group in groups for batch in np.array_split(group, -(-len(group) // fit))]
    if len(batches) > 1 and workers() > 1:
        progress, keep = False, None
    items = [[jobs[place] for place in batch] for batch in batches]
    work = partial(_solve_batch, progress=progress, keep=keep)
    solved = [solution for solutions in mapped(work, parts, items) for solution in solutions]
    places = [place for batch in batches for place in batch]
    in_order = [solution for _, solution in sorted(zip(places, solved, strict=True), key=lambda pair: pair[0])]
    return [in_order[i : i + len(risks)] for i in range(0, len(jobs), len(risks))]


def _group_jobs(jobs: Sequence[Job]) -> list[list[int]]:
    """Return the places of jobs that can share one call: risks of one structure, beliefs with as many atoms."""
    groups: list[tuple[Job, Any, list[int]]] = []
    for place, job in enumerate(jobs):
        atoms = job.belief.as_atoms()
        sizes = (None if atoms is None else len(atoms), [np.shape(leaf) for leaf in tree_leaves(job.risk)])
        for first, theirs, places in groups:
            if theirs == sizes and same_structure(first.risk, job.risk):
                places.append(place)
                break
        else:
            groups.append((job, sizes, [place]))
    return [places for _, _, places in groups]


def _check_limits(parts: Parts, start: Any, thetas: np.ndarray) -> None:
    """Refuse limits whose losses are no finite numbers at a few draws."""
    for number, (limit, objective) in enumerate(zip(parts.limits, parts.others, strict=True)):
        try:
            objective.check(thetas, start)
        except InputError as error:
            raise InputError(f"{limit.called(number)}: {error}") from None


def _usual_evaluation(parts: Parts, risks: Sequence[Risk]) -> int:
    """Return the number of fresh draws; with limits more where they are cheap: what is kept to spare shrinks."""
    usual = max(usual_draws(parts.objective, risk) for risk in risks)
    if not parts.limits:
        return usual
    pairs = zip(parts.others, parts.limits, strict=True)
    usual = max(usual, *(usual_draws(objective, limit.risk) for objective, limit in pairs))
    return max(usual, min(cheap_draws(parts.objective), MANY_DRAWS))


def start_at(start: Any, initial: Any, objective: Objective) -> Any:
    """Parameters given by the user, projected; refused unless finite and shaped like the policy's own."""
    start = tree_map(as_float, start)
    same = same_structure(start, initial) and all(
        np.shape(ours) == np.shape(theirs)
        for ours, theirs in zip(tree_leaves(start), tree_leaves(initial), strict=True)
    )
    if not same:
        shapes = tree_map(np.shape, initial, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))
        raise InputError(
            f"start must be parameters of this policy, shaped {shapes}, got {tree_map(np.shape, start)}; "
            "use solution.parameters of a run with the same model and policy"
        )
    for leaf in tree_leaves(start):
        require_finite("start", np.asarray(leaf))
    return to_numpy(projected(objective.within, start))


@in_float64
def _solve_batch(parts: Parts, jobs: Sequence[Job], progress: Shown, keep: Keep | None) -> list[Solution]:
    clock = time.perf_counter()
    for job in jobs:
        if job.before is not None:
            resumable(job.before, parts.digests(job.risk), job.seed)

    def reached(outcome: Callable[[], Outcome]) -> None:
        assert keep is not None
        keep(lambda: _so_far(outcome(), jobs[0], parts, time.perf_counter() - clock))

    watch = None if keep is None else reached
    if parts.limits:
        return [_solve_limited(parts, jobs[0], progress, watch, clock)]
    solutions = []
    outcomes = parts.settings.optimise(parts.objective, parts.gradient, JobDraws(jobs), progress, watch)
    for outcome, job in zip(outcomes, jobs, strict=True):
        point = point_at(parts.objective, outcome.parameters)
        answer, certificate = _judged(point, job, outcome, parts)
        judged = Judgement(answer, certificate)
        solutions.append(_assemble(outcome, job, parts, time.perf_counter() - clock, judged))
    return solutions


class Judgement(NamedTuple):
    """An answer on fresh draws, its certificate, and what it makes of each limit."""

    answer: Evaluation
    certificate: Certificate | None = None
    limits: tuple[LimitAnswer, ...] = ()
    hopeless: bool = False


def _solve_limited(parts: Parts, job: Job, progress: Shown, watch: Any, clock: float) -> Solution:
    """Return the cheapest policy that was found to keep the limits, with what can be said of it."""
    objectives, limits, own = parts.objectives, parts.limits, parts.objective
    fresh = fresh_draws(job.belief, job.seed, parts.evaluation)
    for number, (limit, objective) in enumerate(zip(limits, parts.others, strict=True)):
        refuse_idle(limit, number, *objective.loss_range(fresh.thetas if fresh.exact else fresh.thetas[:4]))
    # What no policy keeps is searched for all the same, for the policy that breaks it least.
    proofs = infeasible(objectives, limits, fresh, np.asarray(point_at(own, job.start)))
    asked = LimitsAsked(limits, parts.others, proofs.proved, parts.evaluation)
    (outcome,) = parts.settings.optimise(own, parts.gradient, JobDraws([job]), progress, watch, limits=asked)
    assert outcome.limits is not None
    phase("certifying" if parts.certify else "judging")
    point = np.asarray(point_at(own, outcome.parameters))
    answer = judge(own, job.risk, point, fresh)
    answer = dataclasses.replace(answer, notes=own.notes(job.belief, point, fresh))
    kept = _limit_answers(parts, point, fresh, outcome.limits, proofs)
    certificate = None
    if parts.certify and answer.finite():
        certificate = certified_within(
            objectives, limits, job.risk, point, answer, outcome.in_sample, outcome.limits.told, proofs.proved
        )
        answer = dataclasses.replace(answer, evidence=own.evidence(job.belief, job.risk, point, answer, job.seed))
    judged = Judgement(answer, certificate, kept, proofs.proved)
    return _assemble(outcome, job, parts, time.perf_counter() - clock, judged)


def _limit_answers(
    parts: Parts, point: np.ndarray, fresh: WeightedDraws, found: LimitFindings, proofs: Infeasibility
) -> tuple[LimitAnswer, ...]:
    """Return what a policy makes of each limit on fresh draws."""
    kept = []
    for j, (limit, objective) in enumerate(zip(parts.limits, parts.others, strict=True)):
        level = None if limit.chance is None else float(found.levels[j])
        risk = limit.risk if level is None else CVaR(level)
        kept.append(
            limit_answer(
                limit,
                judge(objective, risk, point, fresh),
                multiplier=float(found.multipliers[j]),
                prices=(float(found.prices[j, 0]), float(found.prices[j, 1])),
                level=level,
                **proofs.single[j]._asdict(),
            )
        )
    return tuple(kept)


def _judged(point: np.ndarray, job: Job, outcome: Outcome, parts: Parts) -> tuple[Evaluation, Certificate | None]:
    """Return an answer on fresh draws, and its certificate where one is wanted and can be had."""
    phase("certifying" if parts.certify else "judging")
    asked = SolveRequest(parts.objective, job.belief, job.risk, job.seed)
    fresh = fresh_draws(job.belief, job.seed, parts.evaluation)
    return _judge_closely(asked, point, fresh, outcome.in_sample, not parts.gradient.by_values, parts.certify)


def _judge_closely(
    asked: SolveRequest, point: np.ndarray, fresh: WeightedDraws, in_sample: float, sloped: bool, certify: bool
) -> tuple[Evaluation, Certificate | None]:
    objective, slopes = asked.objective, None
    if not sloped or not certify or objective.by_chance:
        answer = judge(objective, asked.risk, point, fresh)
    else:
        answer, slopes = judge_closely(objective, asked.risk, point, fresh)
    answer = dataclasses.replace(answer, notes=objective.notes(asked.belief, point, fresh))
    if not certify or not answer.finite():
        return answer, None
    certificate = certified(objective, point, answer, asked.risk, slopes, in_sample)
    evidence = objective.evidence(asked.belief, asked.risk, point, answer, asked.seed)
    return dataclasses.replace(answer, evidence=evidence), certificate


@in_float64
def replace_policy(solution: Solution, policies: Sequence[Any]) -> Solution:
    """Return the solution with one of these policies in its place, or as it is.

    A policy takes the place of the solution's own where it is better on draws that neither the search nor the
    report sees. It is then judged and certified on the solution's fresh draws. The checkpoint stays that of the search.
    """
    asked = solution.asked
    objective = asked.objective
    draws = draw_to_choose(objective, asked.belief, asked.seed, len(solution.evaluation.draws))
    points = [objective.point_from(policy) for policy in (solution.policy, *policies)]
    place = choose_point(objective, asked.risk, points, draws)
    if place == 0:
        return solution
    point, certify = points[place], solution.certificate is not None
    value = judge(objective, asked.risk, point, draws).risk
    answer, certificate = _judge_closely(asked, point, solution.evaluation.draws, value, True, certify)
    found = objective.from_point(point[None])
    parameters = solution.parameters if found is None else tree_map(lambda leaf: np.asarray(leaf)[0], found)
    return dataclasses.replace(
        solution,
        status=solution.status.with_plan,
        policy=objective.policy(point, parameters),
        parameters=parameters,
        evaluation=answer,
        certificate=certificate,
    )


def _so_far(outcome: Outcome, job: Job, parts: Parts, seconds: float) -> Solution:
    """Return what has been found, before it is judged."""
    return _assemble(outcome, job, parts, seconds, None)


def _assemble(outcome: Outcome, job: Job, parts: Parts, seconds: float, judged: Judgement | None) -> Solution:
    """Return the solution; without a judgement it can be gone on from, and no more."""
    point = point_at(parts.objective, outcome.parameters)
    asked = None if judged is None else SolveRequest(parts.objective, job.belief, job.risk, job.seed)
    return Solution(
        status=outcome.status if judged is None else _status(parts.objective, job, outcome, judged),
        policy=parts.objective.policy(point, outcome.parameters),
        evaluation=Evaluation.none() if judged is None else judged.answer,
        history=History(*outcome.history.T),
        iterations=outcome.iterations,
        seconds=seconds,
        parameters=outcome.parameters,
        checkpoint=Checkpoint(outcome.state, job.seed, parts.digests(job.risk)),
        models=outcome.models,
        certificate=None if judged is None else judged.certificate,
        iterates=outcome.iterates,
        limits=() if judged is None else judged.limits,
        asked=asked,
    )


def _status(objective: Objective, job: Job, outcome: Outcome, judged: Judgement) -> Status:
    """Return how the job ended; an answer clearly above the start's risk, on the same fresh draws, has diverged.

    The start is evaluated only if the sampled objective looks as if it had risen.
    """
    answer = judged.answer
    if answer.infinite() and objective.infinite():
        return Status.INFINITE
    if not answer.finite() or not all(each.evaluation.finite() for each in judged.limits):
        return Status.NON_FINITE
    if outcome.limits is not None:
        return _limited_status(outcome.limits, judged)
    if outcome.status is Status.NON_FINITE:
        return Status.NON_FINITE
    values = outcome.history[:, 0]
    if len(values) < 2 or values[-len(values) // 4 :].mean() <= values[0]:
        return outcome.status
    first = judge(objective, job.risk, point_at(objective, job.start), answer.draws)
    return Status.DIVERGED if answer.clearly_above(first) else outcome.status


def _limited_status(found: LimitFindings, judged: Judgement) -> Status:
    """Return how a job with limits ended: first whether they are kept, then how the descent ended."""
    if judged.hopeless:
        return Status.INFEASIBLE
    verdicts = {each.verdict for each in judged.limits}
    if verdicts != {Verdict.KEPT}:
        return Status.LIMIT_BROKEN if Verdict.BROKEN in verdicts else Status.LIMIT_OPEN
    if found.code not in (CONVERGED, VANISHED):
        return Status.ITERATION_LIMIT if found.code == GOING else Status.STALLED
    return Status.SAMPLE_LIMIT if found.moved else Status.CONVERGED_WITHIN_LIMITS
