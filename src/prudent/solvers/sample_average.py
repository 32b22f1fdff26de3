"""The default solver: deterministic descent on a fixed posterior sample, from many starts, on growing samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, Stream, as_float, as_whole, is_concrete, require_kind, require_size, stream, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, GradientEstimator, Problem, Sample, Slopes, slopes_of
from ..policies import Parametrisation
from ..posteriors import Invertible, Posterior, Sobol, WeightedDraws, equally_weighted
from ..risks import Risk
from .descent import (
    CONVERGED,
    GOING,
    HELD,
    MERGED,
    NON_FINITE,
    STALLED,
    UNFINISHED,
    VANISHED,
    Climb,
    Descent,
    advance,
    allowed,
    begin,
    merged,
    only,
    trial_tables,
)
from .draws import Draws, Run, draw
from .judging import USUAL_DRAWS, judgement, usual_draws
from .natural import NaturalGradient
from .optimiser import Found, Optimiser, require_evaluation
from .progress import Progress
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .solution import Solution, Status
from .starts import PLANNED, first_parameters, linear_cost
from .units import Unit, in_units

# A sample is this many times the one before.
GROWTH = 4

# Iterations of all starts on the first sample; the best one goes on.
EXPLORATION = 30

# Most draws that rank the starts, and tell whether a larger sample has moved the answer.
MOST_HELD_OUT = 8192

# Starts that end further behind the best, as a share of the spread of losses, are not ranked.
BEHIND = 0.1

# Up to this many uniform numbers a draw, Sobol points spread better than independent ones.
LARGEST_SOBOL = 64

# Runs whose models share a stream of chunks.
RUNS_AT_ONCE = 16

# Entries of a table up to which a step may be a linear program.
LARGEST_PROGRAM = 10_000

STATUSES = {
    CONVERGED: Status.CONVERGED,
    STALLED: Status.STALLED,
    VANISHED: Status.GRADIENT_VANISHED,
    HELD: Status.START_KEPT,
    NON_FINITE: Status.NON_FINITE,
    GOING: Status.ITERATION_LIMIT,
    UNFINISHED: Status.SAMPLE_LIMIT,
}


class SampleAverage(Optimiser):
    """Sample-average optimisation: the objective on a fixed posterior sample, minimised to a tolerance.

    Many starts (the run's own, plans of posterior draws, of the mean, of the maximum likelihood, against the worst of
    many draws, and random policies) descend on a first sample; the best of them on held-out draws goes on. Then the
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
        starts: points the search begins from, the run's own among them.
        iterations: most iterations of this call, over all samples; each evaluates the gradient of every start that
            still moves.
        step: `ProxLinear()`, `NaturalGradient()` or `LBFGS()`. When left out, for `Direct` policies and for `Softmax`
            ones, free or in a `Box`: the first where the loss is linear in the occupancy, the second followed by the
            first where it is not, the second alone from 10,000 entries on; and the third for any other policy.
        tolerance: stop when the predicted decrease, what any change of the policy gains to first order, is at most this
            share of the spread of the losses over the draws, or of what knowing theta would gain if that is more.
        evaluation: fresh posterior draws on which the answer's risk is reported; when left out, 1000, or as many as
            put a hundred into the risk's tail where that is cheap.
    """

    samples: int = eqx.field(static=True, converter=as_whole, default=128)
    largest: int = eqx.field(static=True, converter=as_whole, default=8192)
    starts: int = eqx.field(static=True, converter=as_whole, default=8)
    iterations: int = eqx.field(static=True, converter=as_whole, default=300)
    step: Descent | None = None
    tolerance: Float[Array, ""] = eqx.field(converter=as_float, default=1e-4)
    evaluation: int | None = eqx.field(static=True, converter=as_whole, default=None)

    def __check_init__(self) -> None:
        for name, least in (("samples", 1), ("starts", 1), ("iterations", 0)):
            require_size(f"SampleAverage {name}", getattr(self, name), least)
        require_evaluation("SampleAverage", self.evaluation)
        require_size("SampleAverage largest", self.largest, self.samples)
        if self.step is not None:
            require_kind("step", self.step, Descent, "ProxLinear(), NaturalGradient() or LBFGS()")
        if is_concrete(self.tolerance) and not (self.tolerance.shape == () and self.tolerance >= 0):
            raise InputError(f"SampleAverage tolerance must be one number >= 0, got {self.tolerance}")

    def check(self, policy: Parametrisation, gradient: GradientEstimator) -> None:
        """It needs the exact gradient, and steps in the table need one."""
        require_kind("gradient", gradient, Adjoint, "Adjoint() for a SampleAverage solver; estimators go with BRPG()")
        if isinstance(self.step, NaturalGradient | ProxLinear) and policy.rows() is None:
            raise InputError(
                f"{type(self.step).__name__}() needs a policy whose rows can be chosen one by one, such as Softmax() "
                f"or Direct(), got {type(policy).__name__}; use LBFGS()"
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

    def runs_at_once(self, problem: Problem) -> int:
        """A few: their models fill the same chunks."""
        return RUNS_AT_ONCE

    def steps_for(self, problem: Problem, theta: np.ndarray) -> tuple[Descent, ...]:
        """The step asked for, or those that suit policy and loss; the next one takes over where one has stalled."""
        if self.step is not None:
            return (self.step,)
        if problem.policy.rows() is None:
            return (LBFGS(),)
        if int(np.prod(problem.family.support.shape[:2])) > LARGEST_PROGRAM:
            return (NaturalGradient(),)
        if linear_cost(problem.loss, problem.family.at(theta)) is not None:
            return (ProxLinear(),)
        # Where the loss itself bends, steps along its slope get further than programs that see none of the bend.
        return (NaturalGradient(), ProxLinear())

    def optimise(
        self,
        problem: Problem,
        gradient: GradientEstimator,
        draws: Draws,
        before: Sequence[Solution] | None,
        progress: bool | None,
    ) -> list[Found]:
        """All runs side by side: in each round the models of all of them go through one stream of chunks."""
        thetas = draws.first(4)
        problem, unit = in_units(problem, thetas)
        steps = self.steps_for(problem, thetas[0])
        searches = (
            [self._begin(problem, run, steps) for run in draws.runs]
            if before is None
            else [self._resumed(solution) for solution in before]
        )
        histories: list[list] = [[] for _ in searches] if before is None else [_entries(old) for old in before]
        limits = [search.iterations + self.iterations for search in searches]
        samples = Samples(self, problem)
        with Progress(progress, 0, self.iterations) as bar:
            while True:
                active = [
                    g
                    for g, search in enumerate(searches)
                    if search.done == GOING and (search.iterations < limits[g] or search.scoring)
                ]
                if not active:
                    break
                requests = [searches[g].request(problem.policy, draws.runs[g], samples) for g in active]
                for g, request, found in zip(active, requests, slopes_of(problem, requests), strict=True):
                    scoring = searches[g].scoring
                    searches[g] = searches[g].receive(self, steps, problem.policy, request, found)
                    if not scoring:
                        histories[g].append(searches[g].entry(unit))
                trace = np.array([history[-1] for history in histories if history])
                bar.advance(max(search.iterations for search in searches), trace.T[None])
        return [self._found(search, history, unit) for search, history in zip(searches, histories, strict=True)]

    def _found(self, search: Search, history: list, unit: Unit) -> Found:
        answer = search.answer()
        return Found(
            parameters=jax.tree.map(lambda leaf: np.asarray(leaf)[0], answer.parameters),
            status=search.status(),
            history=np.array(history).reshape(-1, 3),
            iterations=search.iterations,
            models=search.models,
            in_sample=float(unit.loss(answer.in_sample)),
            state=search,
        )

    def _begin(self, problem: Problem, run: Run, steps: tuple[Descent, ...]) -> Search:
        random = stream(run.words, Stream.SAMPLE)
        atoms = run.belief.as_atoms()
        draws = equally_weighted(draw(run.belief, random, PLANNED)) if atoms is None else atoms
        pure = not isinstance(steps[0], LBFGS)
        starts, floor = first_parameters(problem, run, self.starts, draws, pure, random)
        climb = begin(to_numpy(starts), *problem.family.support.shape[:2])
        if run.given:
            held = np.zeros(len(climb.finished), np.int64)
            held[-1] = HELD
            climb = dataclasses.replace(climb, finished=held)
        return Search(climb, floor)

    def _resumed(self, solution: Solution) -> Search:
        assert solution.checkpoint is not None
        search: Search = solution.checkpoint.state
        left = np.asarray(search.climb.left)
        if search.done in (CONVERGED, VANISHED) and np.any(left > allowed(search.climb, float(self.tolerance))):
            # At a lower tolerance a point that had converged goes on.
            ended = np.isin(search.climb.finished, (CONVERGED, VANISHED))
            finished = np.where(ended, GOING, search.climb.finished)
            search = dataclasses.replace(search, climb=dataclasses.replace(search.climb, finished=finished), done=GOING)
        return search


def _entries(solution: Solution) -> list:
    history = solution.history
    return list(
        np.stack([np.asarray(part) for part in (history.objective, history.gradient_norm, history.step)], axis=1)
    )


class Samples:
    """The samples of a batch of runs; runs that share belief and key share them."""

    def __init__(self, settings: SampleAverage, problem: Problem):
        self.settings, self.problem = settings, problem
        self.made: dict[tuple, WeightedDraws] = {}

    def fitted(self, run: Run, stage: int) -> WeightedDraws:
        return self._make(run, self.settings.size(stage), Stream.SAMPLE, stage + 1)

    def held_out(self, run: Run) -> WeightedDraws:
        count = min(usual_draws(self.problem, run.risk), MOST_HELD_OUT)
        return self._make(run, count, Stream.HELD_OUT)

    def _make(self, run: Run, n: int, *path: int) -> WeightedDraws:
        atoms = run.belief.as_atoms()
        if atoms is not None:
            return atoms
        name = (id(run.belief), run.words, n, path)
        if name not in self.made:
            self.made[name] = equally_weighted(draw(evenly(run.belief), stream(run.words, *path), n))
        return self.made[name]


def evenly(belief: Posterior) -> Posterior:
    """The belief driven by Sobol points, where it is a function of few uniform numbers."""
    if isinstance(belief, Invertible) and 0 < belief.uniform_dimension <= LARGEST_SOBOL:
        return Sobol(belief)
    return belief


class Answer(eqx.Module):
    """The best point after a sample.

    Attributes:
        parameters: with an axis of length 1.
        in_sample: its objective on the sample.
        code: how its descent ended, which no later sample changes.
        held_out: its losses on the held-out draws.
    """

    parameters: Any
    in_sample: float
    code: int
    held_out: Float[Array, " R"]


class Search(eqx.Module):
    """One run: the points that descend on the sample of its stage, and the best answer so far.

    Attributes:
        climb: the points.
        floor: about the least risk that could be hoped for, NaN where it is not known.
        stage: which sample they are on.
        turn: which of the solver's steps they take.
        scoring: whether they are about to be judged on the held-out sample.
        incumbent: the best answer of the samples before.
        done: how the run ended, or `GOING`.
        moved: whether the largest sample still moved the answer.
        iterations, models: made so far.
    """

    climb: Climb
    floor: float
    stage: int = 0
    turn: int = 0
    scoring: bool = False
    incumbent: Answer | None = None
    done: int = GOING
    moved: bool = False
    iterations: int = 0
    models: int = 0

    def request(self, policy: Parametrisation, run: Run, samples: Samples) -> Sample:
        """What to evaluate next: trial points on the fitted sample, or current ones on the held-out one."""
        if self.scoring:
            return Sample(np.asarray(self.climb.tables), samples.held_out(run), run.risk, self._contenders())
        going = np.asarray(self.climb.finished) == GOING
        if self.climb.rounds == 0:
            going = going | (np.asarray(self.climb.finished) == HELD)
        tables, draws = trial_tables(policy, self.climb), samples.fitted(run, self.stage)
        return Sample(tables, draws, run.risk, going, self.floor)

    def receive(
        self,
        settings: SampleAverage,
        steps: tuple[Descent, ...],
        policy: Parametrisation,
        request: Sample,
        found: Slopes,
    ) -> Search:
        """The search after an answer."""
        now = dataclasses.replace(self, models=self.models + found.models)
        if self.scoring:
            return now._scored(settings, request, found)
        climb = advance(steps[self.turn], policy, self.climb, request, found, float(settings.tolerance))
        several = len(climb.value) > 1
        if several:
            climb = merged(climb, float(settings.tolerance))
        now = dataclasses.replace(now, climb=climb, iterations=self.iterations + 1)
        if bool(np.all(climb.finished == NON_FINITE)):
            return dataclasses.replace(now, done=NON_FINITE)
        over = bool(np.all(climb.finished != GOING)) or (several and climb.rounds >= EXPLORATION)
        if not over:
            return now
        best = now._leader()
        if climb.finished[best] == STALLED and self.turn + 1 < len(steps):
            again = begin(only(climb, best), *climb.tables.shape[1:])
            return dataclasses.replace(now, climb=again, turn=self.turn + 1)
        if request.draws.exact or (not several and settings.stages() == 1):
            # The sample is the posterior itself, or there is nothing to rank: the best point goes on to its end.
            alone = _alone(climb, best)
            return dataclasses.replace(now, climb=alone, done=int(alone.finished[0]))
        return dataclasses.replace(now, scoring=True)

    def _scored(self, settings: SampleAverage, request: Sample, found: Slopes) -> Search:
        """Keep the best point; go on with a larger sample while that moves the answer."""
        scores = np.where(request.active & np.isfinite(found.value), found.value, np.inf)
        best = int(np.argmin(scores))
        climb = _alone(self.climb, best)
        here = Answer(climb.parameters, float(climb.value[0]), int(climb.finished[0]), found.losses[best])
        last = self.stage + 1 >= settings.stages()
        if self.incumbent is None:
            # One sample alone: the best start goes on until it is done.
            return self._next(climb, here, False, True) if not last else self._next(climb, None, False, False)
        change, noise = _change(request.risk, request.draws, here, self.incumbent)
        moved = not abs(change) <= max(noise, float(allowed(climb, float(settings.tolerance))[0]))
        # A point whose descent was cut short gives way unless it is clearly better.
        better = change <= (noise if self.incumbent.code == GOING else 0.0)
        return self._next(climb, here if better else self.incumbent, moved, moved and not last)

    def _next(self, climb: Climb, incumbent: Answer | None, moved: bool, grown: bool) -> Search:
        if incumbent is None:
            done = int(climb.finished[0])
        elif grown:
            done, climb = GOING, begin(incumbent.parameters, *climb.tables.shape[1:])
        else:
            done = UNFINISHED if incumbent.code == GOING else incumbent.code
        return Search(
            climb=climb,
            floor=self.floor,
            stage=self.stage + grown,
            incumbent=incumbent,
            done=done,
            moved=moved and not grown,
            turn=0 if grown else self.turn,
            iterations=self.iterations,
            models=self.models,
        )

    def _contenders(self) -> np.ndarray:
        """Points that may be the best: others are too far behind on the fitted sample to catch up on another."""
        climb = self.climb
        sound = ~np.isin(climb.finished, (NON_FINITE, MERGED)) & np.isfinite(climb.value)
        best = self._leader()
        near = climb.value <= climb.value[best] + BEHIND * climb.spread[best]
        return sound & (near | (np.asarray(climb.finished) == HELD))

    def _leader(self) -> int:
        """The point with the least objective on the fitted sample."""
        return int(np.argmin(np.where(np.isfinite(self.climb.value), self.climb.value, np.inf)))

    def entry(self, unit: Unit) -> tuple[float, float, float]:
        """The newest line of the history: of the leading point, in the user's units."""
        best, climb = self._leader(), self.climb
        return float(unit.loss(climb.value[best])), float(unit.scale * climb.norm[best]), float(climb.length[best])

    def answer(self) -> Answer:
        """The best held-out answer of a run that is done; otherwise where the leading point is."""
        if self.incumbent is not None and (self.done != GOING or self.climb.rounds == 0):
            return self.incumbent
        best = self._leader()
        code = int(np.asarray(self.climb.finished)[best])
        return Answer(only(self.climb, best), float(self.climb.value[best]), code, np.zeros(0))

    def status(self) -> Status:
        """How the descent to the answer ended, on its own sample; a larger one may still have moved it."""
        if self.done in (CONVERGED, VANISHED) and self.moved:
            return Status.SAMPLE_LIMIT
        return STATUSES[self.done]


def _alone(climb: Climb, best: int) -> Climb:
    """One of the points."""
    return jax.tree.map(lambda leaf: leaf[best : best + 1] if np.ndim(leaf) else leaf, climb)


def _change(risk: Risk, draws: WeightedDraws, here: Answer, before: Answer) -> tuple[float, float]:
    """How much larger the risk of one answer is than another's on held-out draws, and the standard error of that."""
    now, then = (judgement(risk, np.asarray(answer.held_out), draws) for answer in (here, before))
    return now.risk - then.risk, now.error_of_difference(then)
