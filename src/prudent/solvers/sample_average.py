"""The default solver: deterministic descent on a fixed posterior sample, from many starts, on growing samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..arrays import Array, Stream, as_float, as_whole, is_concrete, require_kind, require_size, stream, to_numpy
from ..errors import InputError
from ..gradients import Adjoint, GradientEstimator, Problem, slopes_of
from ..policies import Parametrisation, action_tables
from ..posteriors import equally_weighted
from .descent import CONVERGED, GOING, HELD, VANISHED, Descent, allowed, begin
from .draws import Draws, Run, draw
from .judging import USUAL_DRAWS
from .natural import NaturalGradient
from .optimiser import Found, Optimiser, require_evaluation
from .polish import Losses, polish
from .progress import Progress
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .search import Answer, Samples, Search
from .solution import Solution
from .starts import PLANNED, first_parameters, linear_cost
from .units import Unit, in_units

# A sample is this many times the one before.
GROWTH = 4

# Runs whose models share a stream of chunks.
RUNS_AT_ONCE = 16

# Entries of a table up to which a step may be a linear program.
LARGEST_PROGRAM = 10_000


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
        samples = Samples(self)
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
        return [
            self._found(search, _polished(problem, run, search, steps), history, unit)
            for search, run, history in zip(searches, draws.runs, histories, strict=True)
        ]

    def _found(self, search: Search, answer: Answer, history: list, unit: Unit) -> Found:
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


def _polished(problem: Problem, run: Run, search: Search, steps: tuple[Descent, ...]) -> Answer:
    """The answer of a run, on the atoms of a posterior to the last digits where it has converged."""
    answer, policy, atoms = search.answer(), problem.policy, run.belief.as_atoms()
    if search.done != CONVERGED or atoms is None or not isinstance(steps[search.turn], ProxLinear):
        return answer
    rows, table = policy.rows(), np.asarray(action_tables(policy, answer.parameters))[0]
    assert rows is not None
    found = polish(Losses(problem, run.risk, atoms), table, rows)
    if found is None:
        return answer
    parameters = to_numpy(policy.from_table(found.table[None]))
    return dataclasses.replace(answer, parameters=parameters, in_sample=found.value)


def _entries(solution: Solution) -> list:
    history = solution.history
    return list(
        np.stack([np.asarray(part) for part in (history.objective, history.gradient_norm, history.step)], axis=1)
    )
