"""The default solver: deterministic descent on a fixed posterior sample, from many starts, on growing samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..arrays import Array, as_number, as_whole, in_float64, require_kind, to_numpy
from ..errors import InputError, hinted
from ..evaluation import USUAL_DRAWS, judge, usual_draws
from ..gradients import GradientEstimator
from ..objectives import Objective, Unit
from ..parameter_sets import projected
from ..posteriors import WeightedDraws, equally_weighted
from ..records import field, tree_map
from ..seeds import Stream, generator
from ..settings import check_settings, number, whole
from .choosing import choose_point, draw_to_choose
from .descent import CONVERGED, GOING, HELD, VANISHED, Space, Step, allowed, begin, only, project_all
from .draws import Job, JobDraws, draw
from .natural import NaturalGradient
from .optimiser import EVALUATION, Optimiser, Outcome, Watch
from .polish import PointLosses, polish
from .progress import Progress, Shown
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .sample import slopes_of
from .search import Incumbent, Search, restored_search
from .solution import Solution
from .starts import PLANNED, first_parameters, plan_points
from .states import Arrays

# A sample is this many times the one before.
GROWTH = 4

# Jobs whose models share a stream of chunks.
JOBS_AT_ONCE = 16

# Entries of a table up to which a step may be a linear program.
LARGEST_PROGRAM = 10_000


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
        """It needs the exact gradient, and steps in a table need one."""
        if not gradient.exact:
            raise InputError(
                f"gradient must be Adjoint() for a SampleAverage solver; estimators go with BRPG(), got "
                f"{type(gradient).__name__}"
            )
        if self.step is None or not self.step.needs_table:
            return
        space = space_of(objective, theta, self.step)
        if space.table is None and not space.metric:
            others = ", or the gain of a linear system" if self.step.takes_metric else ""
            raise InputError(
                f"{type(self.step).__name__}() needs a policy whose rows can be chosen one by one, such as Softmax() "
                f"or Direct(){others}; use LBFGS()"
            )

    def sizes(self) -> set[int]:
        """All samples it may come to, and the held-out one."""
        stages = range(self.stages())
        return {self.evaluation or USUAL_DRAWS, USUAL_DRAWS, *(self.size(stage) for stage in stages)}

    def stages(self) -> int:
        """How many samples there are at most."""
        return 1 + sum(self.samples * GROWTH**stage <= self.largest for stage in range(1, 32))

    def size(self, stage: int) -> int:
        """Draws of one sample."""
        return self.samples * GROWTH**stage

    @in_float64
    def state_from(self, arrays: Arrays, objective: Objective, theta: np.ndarray) -> Search:
        """The job's search."""
        space = space_of(objective, theta, self.step)
        initial = to_numpy(projected(objective.within, objective.initial()))
        steps = (ProxLinear(), NaturalGradient(), LBFGS()) if self.step is None else (self.step,)
        return restored_search(arrays, space, tree_map(lambda leaf: np.asarray(leaf)[None], initial), steps, self)

    def jobs_at_once(self, objective: Objective) -> int:
        """A few: their models fill the same chunks."""
        del objective
        return JOBS_AT_ONCE

    def steps_for(self, space: Space, entries: int) -> tuple[Step, ...]:
        """The step asked for, or those that suit policy and loss; the next one takes over where one has stalled."""
        if self.step is not None:
            return (self.step,)
        if space.table is None:
            return (LBFGS(),)
        if entries > LARGEST_PROGRAM:
            return (NaturalGradient(),)
        if not space.table.bends:
            return (ProxLinear(),)
        # Where the loss itself bends, steps along its slope get further than programs that see none of the bend.
        return (NaturalGradient(), ProxLinear())

    def optimise(
        self,
        objective: Objective,
        gradient: GradientEstimator,
        draws: JobDraws,
        before: Sequence[Solution] | None,
        progress: Shown,
        watch: Watch | None = None,
    ) -> list[Outcome]:
        """All jobs side by side: in each round the models of all of them go through one stream of chunks."""
        del gradient
        thetas = draws.first(4)
        objective, unit = objective.in_units(thetas)
        space = space_of(objective, thetas[0], self.step)
        entries = int(np.prod(space.shape(tree_map(lambda leaf: np.asarray(leaf)[None], draws.jobs[0].start))))
        steps = self.steps_for(space, entries)
        searches = (
            [self._begin(space, job, steps) for job in draws.jobs]
            if before is None
            else [self._resumed(solution) for solution in before]
        )
        histories: list[list] = [[] for _ in searches] if before is None else [_entries(old) for old in before]
        limits = [search.iterations + self.iterations for search in searches]
        first = max(search.iterations for search in searches)
        with Progress(progress, first, max(limits)) as bar:
            while True:
                active = [
                    g
                    for g, search in enumerate(searches)
                    if search.done == GOING and (search.iterations < limits[g] or search.scoring)
                ]
                if not active:
                    break
                requests = [searches[g].request(space, self, draws.jobs[g], draws) for g in active]
                for g, request, found in zip(active, requests, slopes_of(objective, requests), strict=True):
                    scoring = searches[g].scoring
                    searches[g] = searches[g].receive(self, steps, space, request, found)
                    if not scoring:
                        histories[g].append(searches[g].entry(unit))
                trace = np.array([history[-1] for history in histories if history])
                stage = max(search.stage for search in searches)
                name = f"growing the sample to {self.size(stage)} draws" if stage else "searching"
                bar.advance(max(search.iterations for search in searches), trace.T[None], name)
                if watch is not None:
                    watch(lambda: self._outcome(searches[0], searches[0].answer(), histories[0], unit))
        found = []
        for search, job, history in zip(searches, draws.jobs, histories, strict=True):
            answer = _polished(space, job, search, steps)
            chosen = self._chosen(space, job, answer)
            outcome = self._outcome(search, answer if chosen is None else chosen, history, unit)
            found.append(outcome if chosen is None else outcome._replace(status=outcome.status.with_plan))
        return found

    def _chosen(self, space: Space, job: Job, answer: Incumbent) -> Incumbent | None:
        """Return the plan, or the answer with one action a state, that is better than the answer; or None.

        With `starts=1` nothing but the start is looked at. Plans of losses that are not linear, and of models too large
        to be kept, take too long to be looked at again.
        """
        objective = space.objective
        large = objective.averages() is not None or job.risk.is_program
        if self.starts == 1 or space.table is None or space.table.bends or large:
            return None
        table = objective.points(answer.parameters)[0]
        others = np.stack([np.eye(table.shape[1])[table.argmax(axis=1)], *plan_points(objective, job, _planned(job))])
        # A policy class that leaves some tables out keeps what it has of them.
        kept = to_numpy(project_all(space.within, objective.from_point(others)))
        points = [table, *objective.points(kept)]
        reported = self.evaluation or usual_draws(objective, job.risk)
        draws = draw_to_choose(objective, job.belief, job.words, reported)
        place = choose_point(objective, job.risk, points, draws)
        if place == 0:
            return None
        value = judge(objective, job.risk, points[place], draws).risk
        return dataclasses.replace(
            answer, parameters=tree_map(lambda leaf: leaf[place - 1 : place], kept), in_sample=value
        )

    def _outcome(self, search: Search, answer: Incumbent, history: list, unit: Unit) -> Outcome:
        return Outcome(
            parameters=tree_map(lambda leaf: np.asarray(leaf)[0], answer.parameters),
            status=search.status(),
            history=np.array(history).reshape(-1, 3),
            iterations=search.iterations,
            models=search.models,
            in_sample=float(unit.loss(answer.in_sample)),
            state=search,
        )

    def _begin(self, space: Space, job: Job, steps: tuple[Step, ...]) -> Search:
        random = generator(job.words, Stream.SAMPLE)
        draws = _planned(job, random)
        starts, floor = first_parameters(space, job, self.starts, draws, steps[0].needs_table, random)
        iterates = begin(space, to_numpy(starts))
        if job.given:
            held = np.zeros(len(iterates.finished), np.int64)
            held[-1] = HELD
            iterates = dataclasses.replace(iterates, finished=held)
        if self.step is None and steps[0].keeps_risk:
            return Search(begin(space, only(iterates, 0)), floor, waiting=iterates)
        return Search(iterates, floor)

    def _resumed(self, solution: Solution) -> Search:
        assert solution.checkpoint is not None
        search: Search = solution.checkpoint.state
        iterates = search.iterates
        if search.done in (CONVERGED, VANISHED) and np.any(iterates.gap > allowed(iterates, float(self.tolerance))):
            # At a lower tolerance a point that had converged goes on.
            ended = np.isin(iterates.finished, (CONVERGED, VANISHED))
            iterates = dataclasses.replace(iterates, finished=np.where(ended, GOING, iterates.finished))
            search = dataclasses.replace(search, iterates=iterates, done=GOING)
        return search


def _planned(job: Job, random: np.random.Generator | None = None) -> WeightedDraws:
    """Return the draws that the starts are planned at, those of a new generator where none is given."""
    atoms = job.belief.as_atoms()
    if atoms is not None:
        return atoms
    random = generator(job.words, Stream.SAMPLE) if random is None else random
    return equally_weighted(draw(job.belief, random, PLANNED))


def space_of(objective: Objective, theta: np.ndarray, step: Step | None = None) -> Space:
    """The space of an objective's points, as one draw of theta tells it; with its metric where the step takes one."""
    table = objective.table(theta)
    if table is not None and table.free:
        return Space(objective, table)
    return Space(objective, None, objective.metric() if step is not None and step.takes_metric else 0)


def _polished(space: Space, job: Job, search: Search, steps: tuple[Step, ...]) -> Incumbent:
    """The answer of a job, on the atoms of a posterior to the last digits where it has converged."""
    answer, atoms = search.answer(), job.belief.as_atoms()
    if search.done != CONVERGED or atoms is None or not steps[search.kind].keeps_risk:
        return answer
    assert space.table is not None
    table = space.objective.points(answer.parameters)[0]
    found = polish(PointLosses(space.objective, job.risk, atoms), table, space.table.rows)
    if found is None:
        return answer
    parameters = to_numpy(space.objective.from_point(found.table[None]))
    return dataclasses.replace(answer, parameters=parameters, in_sample=found.value)


def _entries(solution: Solution) -> list:
    history = solution.history
    return list(
        np.stack([np.asarray(part) for part in (history.objective, history.gradient_norm, history.step)], axis=1)
    )
