"""The default solver: deterministic descent on a fixed posterior sample, from many starts, on growing samples."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_number, as_whole, in_float64, require_kind, to_numpy
from ..errors import InputError, hinted
from ..evaluation import USUAL_DRAWS, judge, usual_draws
from ..gradients import GradientEstimator
from ..objectives import Objective
from ..parameter_sets import projected
from ..posteriors import WeightedDraws, equally_weighted
from ..records import field, tree_map
from ..seeds import Stream, generator
from ..settings import check_settings, number, whole
from .choosing import choose_point, draw_to_choose
from .descent import CONVERGED, GOING, HELD, VANISHED, Step, allowed, begin
from .draws import Job, JobDraws, draw
from .limits.adjusting import first_adjustment
from .limits.answer import LimitFindings, LimitsAsked
from .limits.pricing import BROKEN, evaluate_choice, prices_beside, within_prices
from .limits.starting import choose_starts, prepare_starts
from .natural import NaturalGradient
from .optimiser import EVALUATION, Optimiser, Outcome, Watch
from .polish import polish
from .progress import Progress, Shown
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .question import Question
from .search import (
    Candidate,
    Problem,
    Search,
    advance_search,
    answer_of,
    history_line,
    question_of,
    restore_search,
    settle_points,
    status_of,
)
from .solution import Solution, Status
from .space import Space, select, space_of
from .starts import PLANNED, first_parameters, plan_points
from .states import Arrays

# A sample is this many times the one before.
GROWTH = 4

# Entries of a table up to which a step may be a linear program.
LARGEST_PROGRAM = 10_000

# Aims are this far below a limit from the first, in units of its loss, so that rounding breaks none.
NUDGE = 1e-9


@hinted
class SampleAverage(Optimiser):
    """Sample-average optimisation: the objective on a fixed posterior sample, minimised to a tolerance.

    Many starts (the caller's own, plans of posterior draws, of the mean, of the maximum likelihood, against the worst
    of many draws, and random policies) descend on a first sample; the best of them on held-out draws goes on. Then the
    sample grows, four times each time, until the answer moves by less than its standard error. Samples are scrambled
    Sobol points where the posterior allows. A posterior of few atoms is its own sample, used whole.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solution = pr.solve(lake, lake.prior, solver=pr.SampleAverage(samples=64, starts=4))
    >>> solution.status.ok, solution.certificate.gap >= 0
    (True, True)

    Args:
        samples: posterior draws of the first sample.
        largest: most draws of a sample.
        starts: points the search begins from, the caller's own among them.
        iterations: most iterations of this call, over all samples; each evaluates the gradient of every start that
            still moves.
        step: `ProxLinear()`, `NaturalGradient()` or `LBFGS()`. When left out, for `Direct` policies and for `Softmax`
            ones, free or in a `Box`: the first where the loss is linear in the occupancy, the second followed by the
            first where it is not, the second alone from 10,000 entries on; and the third for any other policy.
        tolerance: stop when the predicted decrease, what any change of the policy gains to first order, is at most this
            share of the spread of the losses over the draws, or of what knowing theta would gain if that is more. On
            large models with at most 32 atoms, also when no policy at all gains more.
        evaluation: fresh posterior draws on which the answer's risk is reported; when left out, 1000, or as many as
            put a hundred into the risk's tail where that is cheap.
    """

    samples: int = field(
        static=True, converter=as_whole, default=128, metadata=whole(1, "posterior draws of the first sample")
    )
    largest: int = field(static=True, converter=as_whole, default=8192, metadata=whole(1, "most draws of a sample"))
    starts: int = field(
        static=True, converter=as_whole, default=8, metadata=whole(1, "policies the search begins from")
    )
    iterations: int = field(
        static=True, converter=as_whole, default=300, metadata=whole(0, "iterations at most, over all samples")
    )
    step: Step | None = None
    tolerance: Float[Array, ""] = field(
        converter=as_number,
        default=1e-4,
        metadata=number("[0, inf)", "converged when so small a share is left to gain"),
    )
    evaluation: int | None = field(static=True, converter=as_whole, default=None, metadata=whole(1, EVALUATION))

    def __check_init__(self) -> None:
        check_settings(self)
        if self.largest < self.samples:
            raise InputError(
                f"SampleAverage largest is {self.largest}, below samples, which is {self.samples}; lower samples, too"
            )
        if self.step is not None:
            require_kind("step", self.step, Step, "ProxLinear(), NaturalGradient() or LBFGS()")

    def check(self, objective: Objective, gradient: GradientEstimator, theta: np.ndarray) -> None:
        """Refuse estimators of the gradient, and steps in a table where there is none."""
        if not gradient.exact:
            raise InputError(
                f"gradient must be Adjoint() for a SampleAverage solver; estimators go with BRPG(), got "
                f"{type(gradient).__name__}"
            )
        if self.step is None or not self.step.needs_table:
            return
        space = space_of(objective, theta, self.step.takes_metric)
        if space.table is None and not space.metric:
            others = ", or the gain of a linear system" if self.step.takes_metric else ""
            raise InputError(
                f"{type(self.step).__name__}() needs a policy whose rows can be chosen one by one, such as Softmax() "
                f"or Direct(){others}; use LBFGS()"
            )

    def sizes(self) -> set[int]:
        """Return the numbers of draws of all samples there may be, and of the held-out one."""
        stages = range(self.stages())
        return {self.evaluation or USUAL_DRAWS, USUAL_DRAWS, *(self.size(stage) for stage in stages)}

    def stages(self) -> int:
        """Return how many samples there are at most."""
        return 1 + sum(self.samples * GROWTH**stage <= self.largest for stage in range(1, 32))

    def size(self, stage: int) -> int:
        """Return the number of draws of one sample."""
        return self.samples * GROWTH**stage

    def steps_for(self, space: Space, entries: int, limits: int = 0) -> tuple[Step, ...]:
        """Return the step asked for, or those that suit policy and loss; the next takes over where one has stalled."""
        if self.step is not None:
            return (self.step,)
        if entries > LARGEST_PROGRAM and space.table is not None:
            return (NaturalGradient(),)
        if limits:
            return (ProxLinear(),)
        if space.table is None:
            return (LBFGS(),)
        # Where the loss itself bends, steps along its slope get further than programs that see none of the bend.
        return (NaturalGradient(), ProxLinear()) if space.table.nonlinear else (ProxLinear(),)

    @in_float64
    def state_from(self, arrays: Arrays, objective: Objective, theta: np.ndarray, limits: int = 0) -> Search:
        """Return the search whose leaves were these."""
        space = space_of(objective, theta, self.step is not None and self.step.takes_metric)
        initial = to_numpy(projected(objective.within, objective.initial()))
        steps = (ProxLinear(), NaturalGradient(), LBFGS()) if self.step is None else (self.step,)
        one = tree_map(lambda leaf: np.asarray(leaf)[None], initial)
        nothing = dataclasses.replace(first_adjustment((), np.zeros(limits)), levels=np.full(limits, np.nan))
        return restore_search(arrays, space, one, steps, self, nothing)

    def jobs_at_once(self, objective: Objective) -> int:
        """Return 1: a job fills chunks of models by itself."""
        del objective
        return 1

    def optimise(
        self,
        objective: Objective,
        gradient: GradientEstimator,
        draws: JobDraws,
        progress: Shown,
        watch: Watch | None = None,
        limits: LimitsAsked | None = None,
    ) -> list[Outcome]:
        """Return the answer of the one job there is."""
        del gradient
        problem = self._problem(objective, draws, limits)
        before = problem.job.before
        search = self._begin(problem) if before is None else self._resume(before)
        history = [] if before is None else before.history.lines()
        most = search.iterations + self.iterations
        with Progress(progress, search.iterations, most) as bar:
            while search.done == GOING and search.iterations < most:
                search = advance_search(problem, search)
                history.append(history_line(problem, search))
                search = settle_points(problem, search)
                name = f"growing the sample to {self.size(search.stage)} draws" if search.stage else "searching"
                bar.advance(search.iterations, np.array(history[-1:]).T[None], name)
                if watch is not None:
                    watch(partial(_so_far, problem, search, history))
        answer, status = self._finish(problem, search)
        outcome = _outcome(problem, search, answer, history)._replace(status=status)
        return [outcome if limits is None else outcome._replace(limits=_limit_findings(problem, search, answer))]

    def _problem(self, objective: Objective, draws: JobDraws, asked: LimitsAsked | None) -> Problem:
        """Return what stays the same during the search."""
        (job,) = draws.jobs
        limits = () if asked is None else asked.limits
        several = (objective,) if asked is None else (objective, *asked.objectives)
        thetas = draws.first(4)
        objectives, units = zip(*(each.in_units(thetas) for each in several), strict=True)
        space = space_of(objectives[0], thetas[0], self.step is not None and self.step.takes_metric)
        entries = int(np.prod(space.shape(tree_map(lambda leaf: np.asarray(leaf)[None], job.start))))
        steps = self.steps_for(space, entries, len(limits))
        problem = Problem(self, objectives, units, job, draws, space, steps)
        if asked is None:
            return problem
        pairs = zip(limits, units[1:], strict=True)
        bounds = np.array([(float(limit.at_most) - unit.offset) / unit.scale for limit, unit in pairs])
        problem = problem._replace(limits=limits, bounds=bounds, hopeless=asked.hopeless, held_out=asked.held_out)
        risks = problem.risks(first_adjustment(limits, problem.bounds).levels)
        rough = Question(objectives, risks, problem.sample(0), problem.bounds, np.ones(len(objectives)))
        return problem._replace(starts=prepare_starts(space, job, rough, self.starts))

    def _begin(self, problem: Problem) -> Search:
        """Return the search before its first iteration."""
        space, job, limited = problem.space, problem.job, problem.starts
        if limited is not None:
            units, own = limited.units[1:], tree_map(lambda leaf: np.asarray(leaf)[None], job.start)
            adjustment = first_adjustment(problem.limits, problem.bounds - NUDGE * units)
            question = question_of(problem, Search(begin(space, own, limited.prices), float("nan"), adjustment))
            starts = choose_starts(space, question, limited.candidates, limited.prices, self.starts)
            if job.given:
                starts = tree_map(lambda *parts: np.concatenate(parts), own, starts)
            return Search(begin(space, starts, limited.prices), float("nan"), adjustment)
        random = generator(job.seed, Stream.SAMPLE)
        pure = problem.steps[0].needs_table or problem.steps[0].keeps_risk
        starts, floor = first_parameters(space, job, self.starts, _planned(job, random), pure, random)
        iterates, adjustment = begin(space, to_numpy(starts)), first_adjustment((), np.zeros(0))
        if job.given:
            held = np.zeros(len(iterates.finished), np.int64)
            held[-1] = HELD
            iterates = dataclasses.replace(iterates, finished=held)
        if self.step is None and problem.steps[0].keeps_risk:
            first = begin(space, select(iterates.parameters, [0]))
            return Search(first, floor, adjustment, waiting=iterates)
        return Search(iterates, floor, adjustment)

    def _resume(self, solution: Solution) -> Search:
        assert solution.checkpoint is not None
        search: Search = solution.checkpoint.state
        iterates = search.iterates
        if search.done in (CONVERGED, VANISHED) and np.any(iterates.gap > allowed(iterates, float(self.tolerance))):
            # At a lower tolerance a point that had converged goes on.
            ended = np.isin(iterates.finished, (CONVERGED, VANISHED))
            iterates = dataclasses.replace(iterates, finished=np.where(ended, GOING, iterates.finished))
            search = dataclasses.replace(search, iterates=iterates, done=GOING)
        return search

    def _finish(self, problem: Problem, search: Search) -> tuple[Candidate, Status]:
        """Return the answer, polished where it has converged on atoms, or another plan's policy if that is better."""
        answer, status = answer_of(search), status_of(search)
        if problem.limits:
            return answer, status
        question, space = question_of(problem, search), problem.space
        if search.done == CONVERGED and question.draws.exact and problem.steps[search.kind].keeps_risk:
            polished = polish(space, question, answer.parameters, answer.prices)
            if polished is not None:
                answer = dataclasses.replace(answer, parameters=polished.parameters, values=polished.values)
        chosen = self._choose_plan(problem, answer)
        return (answer, status) if chosen is None else (chosen, status.with_plan)

    def _choose_plan(self, problem: Problem, answer: Candidate) -> Candidate | None:
        """Return the plan, or the answer with one action a state, that is better than the answer; or None.

        With `starts=1` nothing but the start is looked at. Plans of losses that are not linear, and of models too large
        to be kept, take too long to be looked at again.
        """
        space, job, objective = problem.space, problem.job, problem.objectives[0]
        large = objective.averages() is not None or job.risk.is_program
        if self.starts == 1 or space.table is None or space.table.nonlinear or large:
            return None
        table = objective.points(answer.parameters)[0]
        others = np.stack([np.eye(table.shape[1])[table.argmax(axis=1)], *plan_points(objective, job, _planned(job))])
        # A policy class that leaves some tables out keeps what it has of them.
        kept = space.parameters_of(others)
        points = [table, *objective.points(kept)]
        reported = self.evaluation or usual_draws(objective, job.risk)
        draws = draw_to_choose(objective, job.belief, job.seed, reported)
        place = choose_point(objective, job.risk, points, draws)
        if place == 0:
            return None
        value = judge(objective, job.risk, points[place], draws).risk
        return dataclasses.replace(answer, parameters=select(kept, [place - 1]), values=np.array([value]))


def _so_far(problem: Problem, search: Search, history: list) -> Outcome:
    """Return where a search is between two iterations."""
    return _outcome(problem, search, answer_of(search), history)


def _outcome(problem: Problem, search: Search, answer: Candidate, history: list) -> Outcome:
    return Outcome(
        parameters=tree_map(lambda leaf: np.asarray(leaf)[0], answer.parameters),
        status=status_of(search),
        history=np.array(history).reshape(-1, 3),
        iterations=search.iterations,
        models=search.models,
        in_sample=float(problem.units[0].loss(answer.values[0])),
        state=search,
    )


def _planned(job: Job, random: np.random.Generator | None = None) -> WeightedDraws:
    """Return the draws that the starts are planned at, those of a new generator where none is given."""
    atoms = job.belief.as_atoms()
    if atoms is not None:
        return atoms
    random = generator(job.seed, Stream.SAMPLE) if random is None else random
    return equally_weighted(draw(job.belief, random, PLANNED))


def _limit_findings(problem: Problem, search: Search, answer: Candidate) -> LimitFindings:
    """Return multipliers and prices on both sides, in the user's units: of the objective for one of the limit.

    NaN where a limit is broken on the sample itself, or no policy keeps them. A CVaR that stands in for a chance need
    not be kept: then it is priced where it is.
    """
    assert problem.starts is not None
    scales = np.array([unit.scale for unit in problem.units])
    ratio, told = scales[0] / scales[1:], problem.starts.relaxation
    nothing = np.full(len(problem.limits), np.nan)
    known = LimitFindings(
        levels=np.where([limit.chance is None for limit in problem.limits], np.nan, search.adjustment.levels),
        multipliers=nothing,
        prices=np.stack([nothing, nothing], axis=1),
        told=None if told is None else told.multipliers * ratio,
        code=answer.code,
        moved=search.moved,
    )
    if answer.shown is None:
        return known
    adjustment = dataclasses.replace(search.adjustment, aims=answer.shown.aims, levels=answer.shown.levels)
    asked = question_of(problem, dataclasses.replace(search, stage=answer.stage, adjustment=adjustment))
    known = known._replace(levels=answer.shown.levels)
    over = asked.breach(answer.values) > BROKEN * asked.units[1:]
    chances = np.array([limit.chance is not None for limit in problem.limits])
    if problem.hopeless or np.any(over & ~chances):
        return known
    asked = asked._replace(aims=np.where(over, answer.values[1:], asked.aims))
    found = evaluate_choice(problem.space, asked, answer.parameters)
    prices = prices_beside(problem.space, asked, found, answer.parameters, answer.prices)
    multipliers = np.where(over, 0.0, np.maximum(answer.multipliers, 0.0))
    multipliers = within_prices(multipliers, prices) if np.all(np.isfinite(prices[:, 0])) else multipliers
    return known._replace(multipliers=multipliers * ratio, prices=prices * ratio[:, None])
