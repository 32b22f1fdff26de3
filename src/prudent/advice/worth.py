"""What to measure next: how far the optimal risk is expected to fall with more observations of one thing.

Preposterior analysis: for everything the observations may show (for all outcomes where they are few, else for those
simulated at thetas drawn from the belief) the belief is updated and the problem solved again. All solves share their
uniform numbers, so that differences are sharp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import in_float64, require_kind, require_size
from ..errors import InputError
from ..losses import Loss
from ..models import AbstractFamily
from ..objectives import Objective, losses_on, objective_of
from ..occupancies import Horizon
from ..policies import Parametrisation
from ..posteriors import Beta, Posterior, TriedRows
from ..records import Record, field, tree_leaves
from ..risks import CVaR, Risk
from ..seeds import Seed, Stream, as_seed, child, generator
from ..solvers import Job, JobDraws, Parts, SampleAverage, Solution, solve_grid
from ..transitions import Transitions, Trials
from .frontier import in_table

# Solves of the nested samples: one sample each, from the answer to the present belief and a few plans.
NESTED = SampleAverage(samples=256, largest=256, starts=4, evaluation=1)

# Other samples of thetas on which the answers are compared, for what the sample of the solves is off by.
RESAMPLES = 8


class Worth(Record):
    """What more observations of one thing are worth.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> few = pr.SampleAverage(samples=16, largest=16, starts=1, evaluation=1)
    >>> worth = pr.worth_of_data(lake, lake.prior, observations=1, solver=few)
    >>> sorted(row.place for row in worth.rows)
    [(0,), (1,)]

    Attributes:
        place: the coordinate of theta, or the (state, action) whose next state is observed.
        worth: expected fall of the optimal risk.
        standard_error: its Monte-Carlo error, from the sample of thetas and, where not all outcomes were gone through,
            from those simulated; NaN if it is not known.
    """

    place: tuple[int, ...] = field(static=True)
    worth: float
    standard_error: float


class WorthOfData(Record):
    """All candidates, the most worthwhile first.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> few = pr.SampleAverage(samples=16, largest=16, starts=1, evaluation=1)
    >>> worth = pr.worth_of_data(lake, lake.prior, observations=1, solver=few)
    >>> str(worth).splitlines()[0].split()
    ['observe', 'worth', 's.e.']

    Attributes:
        rows: one for each candidate.
        risk: the optimal risk at the present belief, on the same uniform numbers.
        observations: how many of each were simulated.
    """

    rows: tuple[Worth, ...]
    risk: float
    observations: int

    def __str__(self) -> str:
        lines = [("observe", "worth", "s.e.")]
        for row in self.rows:
            error = f"{row.standard_error:.2g}" if np.isfinite(row.standard_error) else "unknown"
            lines.append((str(list(row.place)), f"{row.worth:.4g}", error))
        return in_table(lines)


@in_float64
def worth_of_data(
    model: AbstractFamily,
    belief: Posterior,
    *,
    observations: int = 10,
    places: Sequence[tuple[int, ...]] | None = None,
    replications: int = 32,
    risk: Risk | None = None,
    loss: Loss | None = None,
    policy: Parametrisation | None = None,
    solver: SampleAverage | None = None,
    occupancy: Horizon | None = None,
    seed: Seed = 0,
) -> WorthOfData:
    """Expected fall of the optimal risk from more observations of each coordinate or row.

    Under a `Beta` belief an observation is a trial of one coordinate of theta; under any other, a transition
    from one state-action pair, which the belief must be able to learn from by `update`. The fall is that of the
    optimum on the sample, in expectation over what the observations may show: the `observations + 1` possible counts
    of a coordinate if these are no more than `replications`, else simulated ones. For the mean and for CVaR it is
    never negative but for chance. What chance does is in the standard error: that of simulated outcomes, by their
    spread, and that of the sample of thetas, by comparing the same answers on other samples of its size.

    Args:
        model: the family of MDPs.
        belief: posterior of theta.
        observations: how many more of each.
        places: the candidates, `(coordinate,)` or `(state, action)`; all when left out.
        replications: simulated data sets of each candidate; they share their thetas. Unused where all outcomes can be
            gone through.
        risk: `CVaR(0.9)` when left out.
        loss: expected discounted cost when left out.
        policy: tabular softmax when left out.
        solver: of the nested solves; one sample and a few starts when left out.
        occupancy: `Exact()` or `Truncated(horizon)`.
        seed: of all draws.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.1), seed=0))
    >>> few = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=1)
    >>> worth = pr.worth_of_data(lake, belief, risk=pr.Expectation(), observations=50, replications=3, solver=few)
    >>> worth.rows[0].worth >= worth.rows[1].worth
    True
    """
    require_kind("belief", belief, Posterior, "a posterior such as family.prior.update(log)")
    update = getattr(belief, "update", None)
    if update is None:
        raise InputError(
            f"a {type(belief).__name__} has no update(log), so it cannot say what data would teach it; use a Beta, "
            "Dirichlet, Grid or MCMC posterior"
        )
    if isinstance(belief, TriedRows):
        raise InputError(
            "more rows of a TriedRows belief may show other successors, and then its model is another one; what they "
            "are worth is not found for it, so use a TabularFamily with a Dirichlet belief"
        )
    observations = require_size("observations", observations)
    replications = require_size("replications", replications)
    solver = NESTED if solver is None else solver
    require_kind("solver", solver, SampleAverage, "SampleAverage(...)")
    seed = as_seed(seed)
    places = _checked_places(model, belief, places)
    objective = objective_of(model, loss, policy, occupancy)
    question = WorthQuestion(objective, belief, CVaR(0.9) if risk is None else risk, seed, solver)
    simulated = not (isinstance(belief, Beta) and observations < replications)
    if isinstance(belief, Beta) and not simulated:
        chances = np.stack([outcome_chances(belief, place, observations) for place in places])
        beliefs = outcome_beliefs(belief, places, observations)
    else:
        thetas = belief.draw(generator(seed, Stream.WORLD), replications)
        beliefs = [
            update(_observed(model, belief, theta, place, observations, generator(seed, Stream.WORLD, number + 1, m)))
            for number, place in enumerate(places)
            for m, theta in enumerate(thetas)
        ]
        chances = np.full((len(places), replications), 1.0 / replications)
    answers = question.answers(beliefs)
    falls = question.falls(answers).reshape(chances.shape)
    worths = (chances * falls).sum(axis=1)
    elsewhere = (chances * question.falls_elsewhere(beliefs, answers).reshape(-1, *chances.shape)).sum(axis=2)
    errors = np.hypot(elsewhere.std(axis=0, ddof=1), _error_of_mean(falls) if simulated else 0.0)
    rows = [
        Worth(place, float(worth), float(error)) for place, worth, error in zip(places, worths, errors, strict=True)
    ]
    return WorthOfData(tuple(sorted(rows, key=lambda row: -row.worth)), question.risk_now, observations)


def outcome_beliefs(belief: Beta, places: Sequence[tuple[int, ...]], observations: int) -> list[Beta]:
    """The beliefs after 0, 1, ... `observations` successes among that many trials of each place, place by place."""
    size = len(np.asarray(belief.counts))
    logs = [_trials(size, place, hits, observations) for place in places for hits in range(observations + 1)]
    return [belief.update(log) for log in logs]


def outcome_chances(belief: Beta, place: tuple[int, ...], observations: int) -> np.ndarray:
    """`[observations + 1]` chances that 0, 1, ... of the next trials of a coordinate succeed."""
    [success, failure] = np.asarray(belief.prior + belief.counts)[place[0]]
    from scipy import stats  # slow to import

    return stats.betabinom.pmf(np.arange(observations + 1), observations, success, failure)


class Answer(NamedTuple):
    """What would be done under a belief: its risk, the present policy's mean loss there, and its table `[S, A]`."""

    risk: float
    mean: float
    policy: np.ndarray


class WorthQuestion:
    """The problem at the present belief, solved, and how far other beliefs let its optimal risk fall.

    Data move the level of all losses up or down. For the policy in use that shift of the mean has expectation 0,
    because a posterior is right on average; so it is taken off, and what is left varies far less.
    """

    def __init__(
        self,
        model: AbstractFamily | Objective,
        belief: Posterior,
        risk: Risk,
        seed: Seed,
        solver: SampleAverage = NESTED,
    ):
        """Of a family's expected costs, or any `Objective`."""
        self.belief, self.risks, self.seed, self.solver = belief, [risk], seed, solver
        self.objective = objective_of(model)
        self.parts = Parts(self.objective, self.risks, None, solver, False)
        self.base = solve_grid([belief], self.risks, [seed], self.parts, None, None, False)[0][0]
        self.table = np.asarray(self.base.policy.probabilities)
        self.risk_now = _optimum(self.base)
        self.mean_now = self._mean(belief)

    def falls(self, answers: Sequence[Answer]) -> np.ndarray:
        """The fall of the optimal risk to each answer, less the shift of the present policy's mean loss."""
        return self.risk_now - self.mean_now - np.array([answer.risk - answer.mean for answer in answers])

    def falls_elsewhere(self, beliefs: Sequence[Posterior], answers: Sequence[Answer]) -> np.ndarray:
        """`[RESAMPLES, N]` the same on other samples of thetas, the policies held.

        To first order an optimum on a sample is off by what its policy's risk is off by there, so the spread among
        samples is the error of one of them, whatever the risk and however evenly the draws are spread.
        """
        names = [_name(belief) for belief in beliefs]
        different = dict(zip(names, zip(beliefs, answers, strict=True), strict=True))
        rows = []
        for number in range(RESAMPLES):
            seed = child(self.seed, number)
            nets = {name: self._net(belief, answer.policy, seed) for name, (belief, answer) in different.items()}
            rows.append(self._net(self.belief, self.table, seed) - np.array([nets[name] for name in names]))
        return np.stack(rows)

    def _net(self, belief: Posterior, table: np.ndarray, seed: Seed) -> float:
        """A policy's risk under a belief, less the present policy's mean loss."""
        value = self.risks[0](self._losses(belief, table, seed)).value
        return float(value) - float(self._losses(belief, self.table, seed).mean())

    def answers(self, beliefs: Sequence[Posterior]) -> list[Answer]:
        """What would be done under each belief."""
        names = [_name(belief) for belief in beliefs]
        # Observations that come out alike leave the same belief, which is solved once.
        different = dict(zip(names, beliefs, strict=True))
        some, count = list(different.values()), len(different)
        starts, seeds = [[self.base.parameters]] * count, [self.seed] * count
        grid = solve_grid(some, self.risks, seeds, self.parts, starts, None, False)
        after = {
            name: Answer(_optimum(run), self._mean(belief), np.asarray(run.policy.probabilities))
            for (name, belief), [run] in zip(different.items(), grid, strict=True)
        }
        return [after[name] for name in names]

    def _mean(self, belief: Posterior) -> float:
        """The present policy's mean loss under a belief, on the draws of its solve."""
        return float(self._losses(belief, self.table, self.seed).mean())

    def _losses(self, belief: Posterior, table: np.ndarray, seed: Seed) -> np.ndarray:
        job = Job(belief, self.risks[0], seed, None)
        draws = JobDraws([job]).evenly(job, self.solver.size(0), Stream.SAMPLE, 1)
        return losses_on(self.objective, table[None], draws.thetas)[0]


def _name(belief: Posterior) -> bytes:
    """What tells beliefs of one kind apart."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in tree_leaves(belief))


def _error_of_mean(falls: np.ndarray) -> np.ndarray:
    """`[places]` of the mean over replications; unknown from one."""
    count = falls.shape[1]
    return falls.std(axis=1, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(falls), np.nan)


def _optimum(solution: Solution) -> float:
    """The optimum on the sample: its draws are the same uniform numbers under every belief."""
    return float(solution.history.objective[-1])


def _checked_places(
    model: AbstractFamily, belief: Posterior, places: Sequence[tuple[int, ...]] | None
) -> list[tuple[int, ...]]:
    """The candidates; where none are named all coordinates of a Beta belief, else the pairs with several successors."""
    if isinstance(belief, Beta):
        sizes, name = np.asarray(belief.counts).shape[:1], "places of a Beta belief are (coordinate,)"
    else:
        sizes, name = model.support.shape[:2], "places are (state, action)"
    if places is None:
        if len(sizes) == 2 and model.support.shape[2] == 1:
            raise InputError("every pair has a single successor, so there is nothing to observe; give places=")
        return list(np.ndindex(*sizes))
    if not places:
        raise InputError("places is empty; name at least one, or leave it out for all")
    named = [tuple(int(i) for i in place) for place in places]
    for place in named:
        if len(place) != len(sizes) or not all(0 <= i < size for i, size in zip(place, sizes, strict=True)):
            raise InputError(f"{name} below {', '.join(map(str, sizes))}, got {place}")
    return named


def _observed(
    model: AbstractFamily,
    belief: Posterior,
    theta: np.ndarray,
    place: tuple[int, ...],
    n: int,
    random: np.random.Generator,
) -> Any:
    """A log of `n` observations at one place, if theta were the truth."""
    if isinstance(belief, Beta):
        return _trials(len(theta), place, int(random.binomial(n, theta[place[0]])), n)
    states, actions, _ = model.support.shape
    s, a = place
    mdp = model.at(theta)
    seen = random.multinomial(n, np.asarray(mdp.kernel.probability)[s, a])
    arrivals = mdp.kernel.support.index()[s, a]
    met = np.flatnonzero(seen)
    records = [(s, a, int(arrivals[b])) for b in met]
    return Transitions.from_records(records, states=states, actions=actions, count=seen[met])


def _trials(size: int, place: tuple[int, ...], hits: int, n: int) -> Trials:
    """A log of `n` trials of one coordinate out of `size`, of which `hits` succeed."""
    counts = np.zeros((size, 2), int)
    counts[place[0]] = hits, n - hits
    return Trials(counts)
