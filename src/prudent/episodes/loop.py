"""Episodic BR-PG (Algorithm 2 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Required, TypedDict, Unpack

import numpy as np

from ..arrays import in_float64, require_kind, require_size, to_numpy
from ..errors import InputError, hinted
from ..evaluation import check_question, plus_minus
from ..gradients import Adjoint, GradientEstimator
from ..linear import CutOff, LinearFamily
from ..models import AbstractFamily
from ..objectives import Objective, objective_of, point_at
from ..occupancies import Horizon
from ..parameter_sets import projected
from ..posteriors import Posterior, WithinBox
from ..records import Record, field
from ..risks import CVaR, Risk, check_envelope
from ..seeds import Seed, Stream, as_seed, child, generator
from ..solvers import Optimiser, Solution, default_solver, solve_many
from ..transitions import Trials
from .worlds import World


class Episode(Record):
    """One episode: the policy that was deployed, what it saw, what is believed since, and the next policy.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=2, solver=pr.BRPG(iterations=3))
    >>> result.episodes[1].solution.iterations
    3

    Attributes:
        deployed: the policy that gathered the log.
        log: what was observed; None if nothing was.
        belief: the posterior with this and all earlier logs.
        solution: from the deployed policy's parameters under that belief.
    """

    deployed: Any
    log: Any
    belief: Posterior
    solution: Solution


class Episodes(Record):
    """All episodes so far; pass it as `resume=` to go on.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> settings = {"solver": pr.BRPG(iterations=3)}
    >>> two = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=2, **settings)
    >>> len(pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=1, resume=two, **settings))
    3

    Attributes:
        episodes: in order.
        seed: of the draws.
    """

    episodes: tuple[Episode, ...]
    seed: Seed = field(static=True)

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def policy(self) -> Any:
        """The policy of the last episode."""
        return self.episodes[-1].solution.policy

    @property
    def belief(self) -> Posterior:
        """The belief after the last episode."""
        return self.episodes[-1].belief

    def __str__(self) -> str:
        lines = ["episode  observations  iterations  risk"]
        for number, episode in enumerate(self.episodes, start=1):
            seen, solution = _observations(episode.log), episode.solution
            lines.append(
                f"{number:>7}  {'unknown' if seen is None else seen:>12}  {solution.iterations:>10}  "
                f"{plus_minus(solution.risk, solution.risk_standard_error)}"
            )
        return "\n".join(lines)


class EpisodeStart(NamedTuple):
    """An episode whose log is in the belief and whose policy is still to be improved.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> def longer(start: pr.EpisodeStart):
    ...     return pr.BRPG(iterations=2 + len(start.episodes))
    >>> result = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=2, solver=longer)
    >>> [episode.solution.iterations for episode in result.episodes]
    [2, 3]

    Attributes:
        deployed: the policy that gathered the log.
        log: what was observed; None if nothing was.
        belief: the posterior with this and all earlier logs.
        parameters: of the deployed policy, from which the solver starts.
        objective: what is lost.
        risk: that is minimised.
        episodes: those before this one.
        seed: of the episode's solver.
    """

    deployed: Any
    log: Any
    belief: Posterior
    parameters: Any
    objective: Objective
    risk: Risk
    episodes: tuple[Episode, ...]
    seed: Seed


ChooseSolver = Callable[[EpisodeStart], Optimiser]


class EpisodeSettings(TypedDict, total=False):
    """How episodes are made; `run_episodes_many` has the defaults."""

    episodes: Required[int]
    risk: Risk | None
    loss: Any
    policy: Any
    gradient: GradientEstimator | None
    solver: Optimiser | ChooseSolver | None
    occupancy: Horizon | None
    seed: Seed


def run_episodes(
    model: AbstractFamily | LinearFamily,
    prior: Posterior,
    world: World,
    *,
    resume: Episodes | None = None,
    **settings: Unpack[EpisodeSettings],
) -> Episodes:
    """Deploy the current policy, add what it saw to the posterior, solve again from it; repeat.

    Episode i deploys `pi(alpha_i0)`, makes `mu_i` of `mu_(i-1)` and its log by Bayes' rule, and runs the solver under
    `mu_i` from `alpha_i0`; the output of that run is `alpha_(i+1)0`. An episode in which nothing was observed
    leaves the belief as it was, and the solver goes on under it. With `BRPG` this is the paper's Algorithm 2.

    Args:
        model: the family of MDPs, or of linear systems.
        prior: belief before the first episode; a posterior with `update(log)`.
        world: where policies are deployed.
        episodes: how many (a resumed run adds them to those already made).
        risk: as in `solve`, `CVaR(0.9)` when left out.
        loss: as in `solve`, expected discounted cost when left out.
        policy: as in `solve`; the first episode deploys its start.
        gradient: as in `solve`, `Adjoint()` when left out.
        solver: as in `solve`, `SampleAverage()` when left out; of `BRPG(...)`, the paper's algorithm, the `iterations`
            are those of each episode, and its `output` says where the next one starts: `LastIterate()` (the paper's
            experiments) or `RandomIterate()` (the algorithm). A function `(EpisodeStart) -> solver` chooses one for
            each episode, once its log is in the belief.
        occupancy: as in `solve`, `Exact()` when left out.
        seed: whole number; the same seed gives the same bits.
        resume: what an earlier call with the same arguments returned.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> result = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1), steps=30), episodes=3,
    ...                          solver=pr.BRPG(iterations=10))
    >>> len(result), result.policy.probabilities.shape
    (3, (4, 4))
    """
    return run_episodes_many(model, prior, [world], resume=None if resume is None else [resume], **settings)[0]


@hinted
@in_float64
def run_episodes_many(
    model: AbstractFamily | LinearFamily,
    prior: Posterior,
    worlds: Sequence[World],
    *,
    episodes: int,
    risk: Risk | None = None,
    loss: Any = None,
    policy: Any = None,
    gradient: GradientEstimator | None = None,
    solver: Optimiser | ChooseSolver | None = None,
    occupancy: Horizon | None = None,
    seed: Seed = 0,
    resume: Sequence[Episodes] | None = None,
) -> list[Episodes]:
    """`run_episodes` in many worlds (replications), their runs in one compiled batch an episode.

    Arguments are those of `run_episodes`, but `worlds[k]` and `resume[k]` belong to replication k. Its random
    numbers depend on the seed and on k alone, not on how many replications there are; number 0 has those of
    `run_episodes`. Where `solver` is a function, every world has a solver of its own, and they run one by one.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> worlds = [lake.world((0.3, 0.1))] * 4
    >>> results = pr.run_episodes_many(lake, lake.prior, worlds, episodes=2, solver=pr.BRPG(iterations=5))
    >>> len(results)
    4
    """
    risk = CVaR(0.9) if risk is None else risk
    gradient = Adjoint() if gradient is None else gradient
    require_kind("risk", risk, Risk, "a risk such as CVaR(0.9)")
    require_kind("gradient", gradient, GradientEstimator, "Adjoint(), Variational() or ZerothOrder()")
    settings = default_solver(gradient, [risk]) if solver is None else solver
    # Everything is refused before the first deployment: a world may be a real one.
    _check(prior, worlds, episodes, resume)
    if not callable(settings):
        require_kind("solver", settings, Optimiser, "SampleAverage(...), BRPG(...) or a function that chooses one")
    objective = objective_of(model, loss, policy, occupancy)
    check_question(objective, [prior], [risk])
    for draws in settings.sizes() if isinstance(settings, Optimiser) else ():
        check_envelope(risk, draws)
    seed = as_seed(seed)
    results = [Episodes((), seed) for _ in worlds] if resume is None else list(resume)
    if any(result.seed != seed for result in results):
        raise InputError("resume needs the seed of the first call, so that the draws go on where they stopped")
    initial = to_numpy(projected(objective.within, objective.initial()))
    done = len(results[0])
    if done == 0:
        first = prior.draw(generator(seed, Stream.SCALES), 4)
        objective.check(first, initial, differentiable=not gradient.by_values)
    common: dict[str, Any] = {"gradient": gradient, "progress": False, "certify": False}
    for number in range(done, done + episodes):
        begun = [
            _begin(prior, world, result, objective, risk, initial, replication)
            for replication, (world, result) in enumerate(zip(worlds, results, strict=True))
        ]
        if isinstance(settings, Optimiser):
            beliefs, starts = [each.belief for each in begun], [[each.parameters] for each in begun]
            common["seed"] = child(seed, number)
            grid = solve_many(objective, beliefs, [risk], start=starts, solver=settings, **common)
            solved = [row[0] for row in grid]
        else:
            solved = []
            for each in begun:
                chosen = settings(each)
                require_kind("what solver= chooses", chosen, Optimiser, "SampleAverage(...) or BRPG(...)")
                common |= {"start": [[each.parameters]], "seed": each.seed}
                solved.append(solve_many(objective, [each.belief], [risk], solver=chosen, **common)[0][0])
        results = [
            Episodes((*result.episodes, Episode(each.deployed, each.log, each.belief, solution)), seed)
            for result, each, solution in zip(results, begun, solved, strict=True)
        ]
    return results


def _begin(
    prior: Posterior, world: World, result: Episodes, objective: Objective, risk: Risk, initial: Any, place: int
) -> EpisodeStart:
    """Deploy the newest policy in a world, whose random numbers follow from its place, and learn from its log."""
    number = len(result)
    start = result.episodes[-1].solution.parameters if result.episodes else initial
    belief = result.belief if result.episodes else prior
    deployed = objective.policy(point_at(objective, start))
    log = world.deploy(deployed, generator(result.seed, Stream.WORLD, number, place))
    seen = _observations(log) != 0
    if seen:
        belief = belief.update(log)  # pyright: ignore[reportAttributeAccessIssue]
    seed = child(child(result.seed, number), place)
    return EpisodeStart(deployed, log if seen else None, belief, start, objective, risk, result.episodes, seed)


def _observations(log: Any) -> int | None:
    """How many observations a log holds; None of a user's own kind of log that does not say."""
    if log is None:
        return 0
    if isinstance(log, Trials):
        return int(np.asarray(log.counts).sum())
    return len(log) if hasattr(log, "__len__") else None


def _check(
    prior: Posterior,
    worlds: Sequence[World],
    episodes: int,
    resume: Sequence[Episodes] | None,
) -> None:
    require_size("episodes", episodes)
    require_kind("prior", prior, Posterior, "a posterior with update(log), such as lake.prior")
    learner = prior
    while isinstance(learner, WithinBox | CutOff):
        learner = learner.posterior
    if not hasattr(learner, "update"):
        raise InputError(
            f"{type(learner).__name__} cannot learn from a log: episodes need a posterior with update(log), "
            "such as Beta, Dirichlet, Grid or MatrixNormal"
        )
    if not isinstance(worlds, Sequence) or not worlds:
        raise InputError("worlds must be a list of at least one world")
    for world in worlds:
        require_kind("world", world, World, "a world such as SimulatedWorld(model, theta)")
    if resume is None:
        return
    for result in resume:
        require_kind("resume", result, Episodes, "what an earlier call returned")
    if len(resume) != len(worlds) or len({len(result) for result in resume}) != 1:
        raise InputError("resume must hold one result for each world, all with the same number of episodes")
