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
from ..policies import Box, Direct, Everywhere, Parametrisation, Softmax
from ..posteriors import Invertible, Posterior, Sobol
from ..risks import Risk
from .descent import CONVERGED, GOING, MERGED, NON_FINITE, Climb, Descent, advance, begin, merged, only, trial_tables
from .draws import Draws, Run, draw
from .judging import known_of
from .natural import NaturalGradient
from .optimiser import Found, Optimiser
from .progress import Progress
from .quasi_newton import LBFGS
from .solution import Checkpoint, Solution, Status
from .starts import first_parameters

# A sample is this many times the one before.
GROWTH = 4

# Iterations of all starts on the first sample; the best one goes on.
EXPLORATION = 30

# Draws that rank the starts, and tell whether a larger sample has moved the answer.
HELD_OUT = 1000

# Starts that end further behind the best, as a share of the loss, are not ranked.
BEHIND = 0.02

# Up to this many uniform numbers a draw, Sobol points spread better than independent ones.
LARGEST_SOBOL = 64

# Posterior draws whose plans may become starts.
PLANNED_DRAWS = 32

# Runs whose models share a stream of chunks.
RUNS_AT_ONCE = 16


class SampleAverage(Optimiser):
    """Sample-average optimisation: the objective on a fixed posterior sample, minimised to a tolerance.

    Many starts (the run's own, plans of posterior draws, of the mean, of the maximum likelihood, against the worst of
    many draws, and random policies) descend on a first sample; the best of them on held-out draws goes on. Then the
    sample grows, four times each time, until the answer moves by less than its standard error. Samples are scrambled
    Sobol points where the posterior allows.

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
        step: `NaturalGradient()` or `LBFGS()`; when left out, the former for `Direct` policies and for `Softmax` ones,
            free or in a `Box`, and the latter for any other.
        tolerance: stop when the gain that is left to first order is at most this share of the loss.
        evaluation: fresh posterior draws on which the answer's risk is reported.
    """

    samples: int = eqx.field(static=True, converter=as_whole, default=128)
    largest: int = eqx.field(static=True, converter=as_whole, default=8192)
    starts: int = eqx.field(static=True, converter=as_whole, default=8)
    iterations: int = eqx.field(static=True, converter=as_whole, default=300)
    step: Descent | None = None
    tolerance: Float[Array, ""] = eqx.field(converter=as_float, default=1e-4)
    evaluation: int = eqx.field(static=True, converter=as_whole, default=1000)

    def __check_init__(self) -> None:
        for name, least in (("samples", 1), ("starts", 1), ("iterations", 0), ("evaluation", 1)):
            require_size(f"SampleAverage {name}", getattr(self, name), least)
        require_size("SampleAverage largest", self.largest, self.samples)
        if self.step is not None:
            require_kind("step", self.step, Descent, "NaturalGradient() or LBFGS()")
        if is_concrete(self.tolerance) and not (self.tolerance.shape == () and self.tolerance >= 0):
            raise InputError(f"SampleAverage tolerance must be one number >= 0, got {self.tolerance}")

    def check(self, policy: Parametrisation, gradient: GradientEstimator) -> None:
        """It needs the exact gradient, and natural steps need a table."""
        require_kind("gradient", gradient, Adjoint, "Adjoint() for a SampleAverage solver; estimators go with BRPG()")
        if isinstance(self.step, NaturalGradient) and not isinstance(policy, Softmax | Direct):
            raise InputError(
                f"NaturalGradient() needs a Softmax() or Direct() policy, got {type(policy).__name__}; use LBFGS()"
            )

    def sizes(self) -> set[int]:
        """All samples it may come to, and the held-out one."""
        stages = range(self.stages())
        return {self.evaluation, HELD_OUT, *(self.size(stage) for stage in stages)}

    def stages(self) -> int:
        """How many samples there are at most."""
        return 1 + sum(self.samples * GROWTH**stage <= self.largest for stage in range(1, 32))

    def size(self, stage: int) -> int:
        """Draws of one sample."""
        return self.samples * GROWTH**stage

    def runs_at_once(self, problem: Problem) -> int:
        """A few: their models fill the same chunks."""
        return RUNS_AT_ONCE

    def step_for(self, policy: Parametrisation) -> Descent:
        """The step asked for, or the one that suits the policy."""
        if self.step is not None:
            return self.step
        tabular = isinstance(policy, Softmax) and isinstance(policy.within, Everywhere | Box)
        return NaturalGradient() if tabular or isinstance(policy, Direct) else LBFGS()

    def optimise(
        self,
        problem: Problem,
        gradient: GradientEstimator,
        draws: Draws,
        before: Sequence[Solution] | None,
        progress: bool | None,
    ) -> list[Found]:
        """All runs side by side: in each round the models of all of them go through one stream of chunks."""
        searches = (
            [self._begin(problem, run) for run in draws.runs]
            if before is None
            else [self._resumed(solution, run) for solution, run in zip(before, draws.runs, strict=True)]
        )
        histories: list[list] = [[] for _ in searches] if before is None else [list(_entries(old)) for old in before]
        limits = [search.iterations + self.iterations for search in searches]
        samples = Samples(self)
        step = self.step_for(problem.policy)
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
                    searches[g] = searches[g].receive(self, step, problem.policy, draws.runs[g].risk, request, found)
                    if not scoring:
                        histories[g].append(searches[g].entry())
                trace = np.array([history[-1] for history in histories if history])
                bar.advance(max(search.iterations for search in searches), trace.T[None])
        answers = [search.answer() for search in searches]
        return [
            Found(
                parameters=jax.tree.map(lambda leaf: np.asarray(leaf)[0], answer.parameters),
                status=search.status(),
                history=np.array(history).reshape(-1, 3),
                iterations=search.iterations,
                models=search.models,
                in_sample=answer.in_sample,
                state=search,
            )
            for search, answer, history in zip(searches, answers, histories, strict=True)
        ]

    def _begin(self, problem: Problem, run: Run) -> Search:
        random = stream(run.words, Stream.SAMPLE)
        thetas = draw(run.belief, random, PLANNED_DRAWS)
        starts = first_parameters(problem, run.belief, run.start, self.starts, thetas, random)
        states, actions = problem.family.support.shape[:2]
        return Search(begin(to_numpy(starts), states, actions))

    def _resumed(self, solution: Solution, run: Run) -> Search:
        assert isinstance(solution.checkpoint, Checkpoint)
        search = solution.checkpoint.state
        if not isinstance(search, Search):
            raise InputError("resume needs the solver of the first call; its checkpoint is of another one")
        if solution.checkpoint.key != run.words:
            raise InputError("resume needs the seed of the first call, so that the draws go on where they stopped")
        left = np.asarray(search.climb.left)
        if search.done == CONVERGED and np.any(left > float(self.tolerance) * np.asarray(search.climb.scale)):
            # At a lower tolerance a point that had converged goes on.
            finished = np.where(search.climb.finished == CONVERGED, GOING, search.climb.finished)
            search = dataclasses.replace(search, climb=dataclasses.replace(search.climb, finished=finished), done=GOING)
        return search


def _entries(solution: Solution) -> np.ndarray:
    history = solution.history
    return np.stack([np.asarray(column) for column in (history.objective, history.gradient_norm, history.step)], axis=1)


class Samples:
    """The samples of a batch of runs; runs that share belief and key share them."""

    def __init__(self, settings: SampleAverage):
        self.settings = settings
        self.made: dict[tuple, np.ndarray] = {}

    def fitted(self, run: Run, stage: int) -> np.ndarray:
        return self._make(run, self.settings.size(stage), Stream.SAMPLE, stage + 1)

    def held_out(self, run: Run) -> np.ndarray:
        return self._make(run, HELD_OUT, Stream.HELD_OUT)

    def _make(self, run: Run, n: int, *path: int) -> np.ndarray:
        name = (id(run.belief), run.words, path)
        if name not in self.made:
            self.made[name] = draw(evenly(run.belief), stream(run.words, *path), n)
        return self.made[name]


def evenly(belief: Posterior) -> Posterior:
    """The belief driven by Sobol points, where it is a function of few uniform numbers."""
    if isinstance(belief, Invertible) and 0 < belief.uniform_dimension <= LARGEST_SOBOL:
        return Sobol(belief)
    return belief


class Answer(eqx.Module):
    """The best point after a sample: parameters (with an axis of length 1), objectives, and losses held out."""

    parameters: Any
    in_sample: float
    held_out: Float[Array, " R"]


class Search(eqx.Module):
    """One run: the points that descend on the sample of its stage, and the best answer so far.

    Attributes:
        climb: the points.
        stage: which sample they are on.
        scoring: whether they are about to be looked at on the held-out sample.
        incumbent: the best answer of the samples before.
        done: how the run ended, or `GOING`.
        moved: whether the largest sample still moved the answer.
        iterations, models: made so far.
    """

    climb: Climb
    stage: int = 0
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
        return Sample(trial_tables(policy, self.climb), samples.fitted(run, self.stage), run.risk, going)

    def receive(
        self,
        settings: SampleAverage,
        step: Descent,
        policy: Parametrisation,
        risk: Risk,
        request: Sample,
        found: Slopes,
    ) -> Search:
        """The search after an answer."""
        now = dataclasses.replace(self, models=self.models + found.models)
        if self.scoring:
            return now._scored(settings, risk, request, found)
        climb = advance(step, policy, self.climb, request.tables, found, float(settings.tolerance))
        several = len(climb.value) > 1
        if several:
            climb = merged(climb, float(settings.tolerance))
        over = bool(np.all(climb.finished != GOING)) or (several and climb.rounds >= EXPLORATION)
        # With one start and one sample there is nothing to rank.
        alone = not several and settings.stages() == 1
        lost = bool(np.all(climb.finished == NON_FINITE))
        done = int(climb.finished[0]) if over and (alone or lost) else GOING
        return dataclasses.replace(
            now, climb=climb, scoring=over and done == GOING, done=done, iterations=self.iterations + 1
        )

    def _scored(self, settings: SampleAverage, risk: Risk, request: Sample, found: Slopes) -> Search:
        """Keep the best point; go on with a larger sample while that moves the answer."""
        scores = np.where(request.active & np.isfinite(found.value), found.value, np.inf)
        best = int(np.argmin(scores))
        climb = jax.tree.map(lambda leaf: leaf[best : best + 1] if np.ndim(leaf) else leaf, self.climb)
        here = Answer(climb.parameters, float(climb.value[0]), found.losses[best])
        moved, better = True, True
        if self.incumbent is not None:
            ours, before = np.asarray(here.held_out), np.asarray(self.incumbent.held_out)
            now, then = known_of(risk, ours), known_of(risk, before)
            change, noise = now.value - then.value, now.error_of_difference(then, ours, before)
            moved = not abs(change) <= max(noise, float(settings.tolerance) * float(climb.scale[0]))
            better = change <= 0
        incumbent = here if better else self.incumbent
        last = self.stage + 1 >= settings.stages()
        if self.incumbent is not None and (last or not moved):
            done, grown = int(climb.finished[0]), False
        elif last:
            # One sample alone: the best start goes on until it is done.
            done, grown = int(climb.finished[0]), False
        else:
            done, grown = GOING, True
        assert incumbent is not None
        if grown:
            climb = begin(incumbent.parameters, *climb.tables.shape[1:])
        return Search(
            climb=climb,
            stage=self.stage + grown,
            incumbent=incumbent,
            done=done,
            moved=moved and self.incumbent is not None and not grown,
            iterations=self.iterations,
            models=self.models,
        )

    def _contenders(self) -> np.ndarray:
        """Points that may be the best: others are too far behind on the fitted sample to catch up on another."""
        climb = self.climb
        sound = (climb.finished != NON_FINITE) & (climb.finished != MERGED) & np.isfinite(climb.value)
        best = self._leader()
        return sound & (climb.value <= climb.value[best] + BEHIND * climb.scale[best])

    def _leader(self) -> int:
        """The point with the least objective on the fitted sample."""
        return int(np.argmin(np.where(np.isfinite(self.climb.value), self.climb.value, np.inf)))

    def entry(self) -> tuple[float, float, float]:
        """The newest line of the history: of the leading point."""
        best = self._leader()
        return float(self.climb.value[best]), float(self.climb.norm[best]), float(self.climb.length[best])

    def answer(self) -> Answer:
        """The best held-out answer of a run that is done; otherwise where the leading point is."""
        if self.incumbent is not None and (self.done != GOING or self.climb.rounds == 0):
            return self.incumbent
        best = self._leader()
        return Answer(only(self.climb, best), float(self.climb.value[best]), np.zeros(0))

    def status(self) -> Status:
        """How the run ended."""
        if self.done == NON_FINITE:
            return Status.NON_FINITE
        if self.done == GOING:
            return Status.ITERATION_LIMIT
        if self.moved:
            return Status.SAMPLE_LIMIT
        return Status.CONVERGED if self.done == CONVERGED else Status.STALLED
