"""The search of one problem: points that descend on a sample, the best of them on held-out draws, what is asked next.

`advance_search` makes one iteration; `settle_points`, once the points are where they can get to, looks at the best on
held-out draws and asks the next question: a larger sample while that moves the answer, and with limits the aims with
which they are shown to be kept. A `Search` is all that the next iteration needs, so that a run goes on from it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..arrays import to_numpy
from ..evaluation import Evaluation, judge, judged
from ..objectives import Objective, Unit, losses_on
from ..posteriors import WeightedDraws
from ..records import Record, tree_leaves, tree_map
from ..risks import CVaR, Risk
from ..seeds import Stream
from .descent import (
    CONVERGED,
    DROPPED,
    GOING,
    HELD,
    NON_FINITE,
    STALLED,
    UNFINISHED,
    VANISHED,
    Iterates,
    Step,
    advance,
    allowed,
    begin,
    halved,
    merged,
)
from .draws import Job, JobDraws
from .limits.adjusting import AIMS, ELSEWHERE, LARGER, LEVELS, SETTLED, Adjustment, Shown, lacking, next_adjustment
from .limits.limit import Limit
from .limits.pricing import evaluate_choice, multipliers_at
from .limits.starting import LimitedStarts, choose_starts
from .natural import NaturalGradient
from .polish import polish
from .question import Question, assess_rows, evaluate_points
from .solution import Status
from .space import Space, select
from .starts import PLANNED
from .states import Arrays, below, filled, foreign, named_leaves

if TYPE_CHECKING:
    from .sample_average import SampleAverage

# Iterations of all starts on the first sample; the best one goes on, with limits on atoms the best few. Iterations of
# points that were found for a question that was nearly the same.
EXPLORATION, FINALISTS, AGAIN = 30, 3, 60

# After these iterations of all starts the worse half of those that are left goes no further, but for two. Steps that
# keep the risk leap, so that a few tell which; on atoms all go on, because nothing that follows would find a better.
HALVED = (3, 6, 12)

# Natural steps of the first point before the others join it. A program leaps to an edge of the tables at once, and from
# there to the nearest good one; natural steps keep to the middle for longer, and end better where several ways go down.
WARM_UP = 12

# Draws that rank the starts, and tell whether a larger sample has moved the answer.
HELD_OUT = 1000

# Starts that end further behind the best, as a share of the spread of losses, are not ranked.
BEHIND = 0.1

# Where a limit is lacking after all, starts are ranked again on so many draws, a breach priced so many times higher.
RANKED_DRAWS, DEARER = 1024, 100.0

# Slopes of all losses of a sample are kept together, up to here.
KEPT_BYTES = 512 * 2**20

# A breach below this share of a unit is none.
KEPT = 1e-7

STATUSES = {
    CONVERGED: Status.CONVERGED,
    STALLED: Status.STALLED,
    VANISHED: Status.GRADIENT_VANISHED,
    HELD: Status.START_KEPT,
    NON_FINITE: Status.NON_FINITE,
    GOING: Status.ITERATION_LIMIT,
    UNFINISHED: Status.SAMPLE_LIMIT,
}


class Problem(NamedTuple):
    """What stays the same during a search.

    Attributes:
        settings: of the solver.
        objectives: of the loss, then of the limits, in units of their own.
        units: these units.
        job: belief, risk, seed and start.
        draws: of the job.
        space: where the points live.
        steps: that are taken one after the other, the next where one has stalled.
        limits: that are to be kept.
        bounds: what they are at most, in units.
        hopeless: whether it is proved that no policy keeps them.
        held_out: draws that limits are judged on.
        starts: where a search with limits begins.
    """

    settings: SampleAverage
    objectives: tuple[Objective, ...]
    units: tuple[Unit, ...]
    job: Job
    draws: JobDraws
    space: Space
    steps: tuple[Step, ...]
    limits: tuple[Limit, ...] = ()
    bounds: Float[np.ndarray, " L"] = np.zeros(0)
    hopeless: bool = False
    held_out: int = HELD_OUT
    starts: LimitedStarts | None = None

    @property
    def measures(self) -> Float[np.ndarray, " G"]:
        """Return what each loss is measured in beside the others; 0 without limits."""
        return np.zeros(1) if self.starts is None else self.starts.units

    def risks(self, levels: Float[np.ndarray, " L"]) -> tuple[Risk, ...]:
        """Return the risk of each loss, of a limit with a chance CVaR at its level."""
        pairs = zip(self.limits, levels, strict=True)
        own = (limit.risk if limit.chance is None else CVaR(float(level)) for limit, level in pairs)
        return (self.job.risk, *own)

    def sample(self, stage: int) -> WeightedDraws:
        """Return the draws of a stage."""
        return self.draws.evenly(self.job, self.settings.size(stage), Stream.SAMPLE, stage + 1)

    def ranking_sample(self) -> WeightedDraws:
        """Return the held-out draws: of models that take long no more than the largest sample has."""
        size, settings = self.held_out, self.settings
        if self.objectives[0].averages() is not None:
            size = min(size, settings.size(settings.stages() - 1))
        return self.draws.evenly(self.job, size, Stream.HELD_OUT)


class Candidate(Record):
    """The best policy of a question.

    Attributes:
        parameters: with an axis of length 1.
        values: `[G]` its risks on the sample, in units.
        prices: `[L]` of a breach at the end of its descent.
        multipliers: `[L]` of the limits there.
        code: how its descent ended, which no later question changes.
        held_out: `[G, H]` its losses on the held-out draws.
        stage: which sample it was fitted to.
        shown: with limits, what held-out draws show of it.
    """

    parameters: Any
    values: Float[np.ndarray, " G"]
    prices: Float[np.ndarray, " L"]
    multipliers: Float[np.ndarray, " L"]
    code: int
    held_out: Float[np.ndarray, "G H"]
    stage: int
    shown: Shown | None = None


class Search(Record):
    """One problem on its way: the points that descend on the question at hand, and the best answer so far.

    Attributes:
        iterates: the points.
        floor: about the least risk that could be hoped for, NaN where it is not known.
        adjustment: aims and levels of the limits.
        stage: which sample the points are on.
        kind: which of the solver's steps they take.
        best: the best answer of the questions before.
        done: how the search ended, or `GOING`.
        moved: whether the largest sample still moved the answer.
        waiting: all starts, while the first of them is brought down by natural steps; None after that.
        iterations, models: made so far.
    """

    iterates: Iterates
    floor: float
    adjustment: Adjustment
    stage: int = 0
    kind: int = 0
    best: Candidate | None = None
    done: int = GOING
    moved: bool = False
    waiting: Iterates | None = None
    iterations: int = 0
    models: int = 0


def question_of(problem: Problem, search: Search) -> Question:
    """Return what is asked of the points."""
    draws, adjustment = problem.sample(search.stage), search.adjustment
    # Of large models all atoms are planned for where they are few; of others, starts alone.
    own = problem.objectives[0].averages() is not None
    planned = own and not problem.limits and problem.job.risk.monotone and bool(np.isfinite(search.floor))
    proven = planned and draws.exact and len(draws) <= PLANNED
    risks = problem.risks(adjustment.levels)
    return Question(problem.objectives, risks, draws, adjustment.aims, problem.measures, search.floor, proven)


def advance_search(problem: Problem, search: Search) -> Search:
    """Return the search after one iteration: every point that still moves tries one step."""
    question, iterates, settings = question_of(problem, search), search.iterates, problem.settings
    tolerance, first = float(settings.tolerance), iterates.rounds == 0
    active = np.isin(iterates.finished, (GOING, HELD) if first else (GOING,))
    points = np.asarray(problem.objectives[0].points(iterates.trial))
    found = evaluate_points(question, points, active)
    step = NaturalGradient() if search.waiting is not None else problem.steps[search.kind]
    iterates = advance(step, problem.space, iterates, question, points, found, tolerance)
    search = dataclasses.replace(
        search, iterates=iterates, iterations=search.iterations + 1, models=search.models + found.models
    )
    if search.waiting is not None:
        if iterates.finished[0] == GOING and iterates.rounds < WARM_UP:
            return search
        return dataclasses.replace(search, iterates=_join(problem, iterates, search.waiting), waiting=None)
    several = len(iterates.value) > 1
    if several:
        iterates = merged(iterates, tolerance)
        if step.keeps_risk and iterates.rounds in HALVED and not question.draws.exact:
            iterates = halved(iterates)
    return dataclasses.replace(search, iterates=iterates)


def settle_points(problem: Problem, search: Search) -> Search:
    """Return the search as it goes on from here: with the same points, or with what follows once they have arrived."""
    if search.waiting is not None or search.iterates.rounds == 0:
        return search
    question, iterates, settings = question_of(problem, search), search.iterates, problem.settings
    several = len(iterates.value) > 1
    # A start that was given is held, and says nothing of where it is.
    lost = (iterates.finished == NON_FINITE) | ((iterates.finished == HELD) & ~np.isfinite(iterates.value))
    if np.all(lost):
        return _rescue(problem, search, question)
    if not _have_arrived(problem, search, question):
        return search
    best = leader(search)
    if iterates.finished[best] == STALLED and search.kind + 1 < len(problem.steps):
        again = begin(problem.space, select(iterates.parameters, [best]), iterates.prices[best])
        here = {name: getattr(iterates, name)[best : best + 1] for name in ("value", "norm", "length")}
        return dataclasses.replace(search, iterates=dataclasses.replace(again, **here), kind=search.kind + 1)
    if problem.limits:
        order = sorted(np.flatnonzero(contenders(search)), key=lambda k: _order(question, iterates.values[k]))
        finals = np.array(order[: FINALISTS if question.draws.exact else 1])
        if several and iterates.rounds < AGAIN and np.any(iterates.finished[finals] == GOING):
            # The best go to their end before they are looked at closely.
            return dataclasses.replace(search, iterates=keep_some(iterates, finals))
        return judge_limits(problem, search, question)
    if question.draws.exact or (not several and settings.stages() == 1):
        # The sample is the posterior itself, or there is nothing to rank: the best point goes on to its end.
        alone = keep_one(iterates, best)
        return dataclasses.replace(search, iterates=alone, done=int(alone.finished[0]))
    return judge_points(problem, search, question)


def _have_arrived(problem: Problem, search: Search, question: Question) -> bool:
    """Return whether the points are where they can get to, or need not be followed further."""
    iterates = search.iterates
    if np.all(iterates.finished != GOING):
        return True
    if len(iterates.value) > 1 and iterates.rounds >= EXPLORATION and not _are_finalists(problem, search, question):
        return True
    if search.adjustment.task in (AIMS, ELSEWHERE, LEVELS) and iterates.rounds >= AGAIN:
        return True
    # Where the best cannot be far from the least there is, the others need not be followed.
    best = leader(search)
    left = iterates.value[best] - question.floor if question.proven else np.inf
    return bool(left <= allowed(iterates, float(problem.settings.tolerance))[best])


def _are_finalists(problem: Problem, search: Search, question: Question) -> bool:
    """Return whether so few points are left that, with limits on atoms, all go to their end."""
    left = int(np.sum(~np.isin(search.iterates.finished, (DROPPED, NON_FINITE))))
    return bool(problem.limits) and question.draws.exact and left <= FINALISTS


def _rescue(problem: Problem, search: Search, question: Question) -> Search:
    """Return the search begun again at a point that has finite losses, if the objective finds one."""
    iterates, thetas = search.iterates, question.draws.thetas
    losses = np.stack([losses_on(each, iterates.points, thetas) for each in problem.objectives], axis=1)
    best = int(np.argmin((~np.isfinite(losses)).sum(axis=(1, 2))))
    point = problem.objectives[0].finite_point(iterates.points[best], thetas)
    if point is None:
        return dataclasses.replace(search, iterates=keep_one(iterates, best), done=NON_FINITE)
    parameters = to_numpy(problem.space.objective.from_point(point[None]))
    return dataclasses.replace(search, iterates=begin(problem.space, parameters, iterates.prices[0]))


def judge_points(problem: Problem, search: Search, question: Question) -> Search:
    """Return the search with the best point kept; it goes on with a larger sample while that moves the answer."""
    settings, iterates, draws = problem.settings, search.iterates, problem.ranking_sample()
    several = np.flatnonzero(contenders(search))
    several = several if several.size else np.array([leader(search)])
    losses = losses_on(problem.objectives[0], iterates.points[several], draws.thetas)
    scores = assess_rows(problem.job.risk, losses, draws.probabilities)[0]
    scores = np.where(np.isfinite(scores), scores, np.inf)
    # Where all are infinite, the one that is so at the fewest draws.
    place = int(np.argmin(scores if np.any(np.isfinite(scores)) else np.isinf(losses).sum(axis=1)))
    best, nothing = int(several[place]), np.zeros(0)
    code = int(iterates.finished[best])
    here = Candidate(
        select(iterates.parameters, [best]),
        iterates.values[best],
        nothing,
        nothing,
        code,
        losses[place][None],
        search.stage,
    )
    last, alone = search.stage + 1 >= settings.stages(), keep_one(iterates, best)
    if search.best is None:
        if last:
            # One sample alone: the best start goes on until it is done.
            return dataclasses.replace(search, iterates=alone, done=code)
        return _grow(problem, search, here)
    change, noise = _change(problem.job.risk, draws, here, search.best)
    moved = not abs(change) <= max(noise, float(allowed(alone, float(settings.tolerance))[0]))
    # A point whose descent was cut short gives way unless it is clearly better.
    better = change <= (noise if search.best.code == GOING else 0.0)
    kept = here if better else search.best
    if moved and not last:
        return _grow(problem, search, kept)
    done = UNFINISHED if kept.code == GOING else kept.code
    return dataclasses.replace(search, iterates=alone, best=kept, done=done, moved=moved)


def _grow(problem: Problem, search: Search, best: Candidate) -> Search:
    """Return the search of the next sample, from the best answer so far."""
    iterates = begin(problem.space, best.parameters)
    return dataclasses.replace(search, iterates=iterates, best=best, stage=search.stage + 1, kind=0, moved=False)


def _change(risk: Risk, draws: WeightedDraws, here: Candidate, before: Candidate) -> tuple[float, float]:
    """Return how much larger the risk of one answer is than another's on held-out draws, and its standard error."""
    now, then = (judged(risk, answer.held_out[0], draws) for answer in (here, before))
    if now.infinite() or then.infinite():
        # Fewer infinite losses are better, and by no finite amount.
        return float(np.isinf(now.losses).sum() - np.isinf(then.losses).sum()), 0.0
    return now.risk - then.risk, now.error_of_difference(then)


def judge_limits(problem: Problem, search: Search, question: Question) -> Search:
    """Return the search with the best point looked at on held-out draws, and the next question asked."""
    assert problem.starts is not None
    units, iterates, now = problem.measures, search.iterates, search.adjustment
    sound = np.flatnonzero(contenders(search))
    best = min(sound if sound.size else [leader(search)], key=lambda k: _order(question, iterates.values[k]))
    parameters, prices = select(iterates.parameters, [int(best)]), iterates.prices[best]
    values, code, multipliers = iterates.values[best], int(iterates.finished[best]), None
    polished = polish(problem.space, question, parameters, prices) if question.draws.exact else None
    if polished is not None:
        parameters, values, multipliers = polished
    if multipliers is None:
        found = evaluate_choice(problem.space, question, parameters)
        multipliers = multipliers_at(problem.space, question, found, parameters, prices)
    held = hold_out(problem, now.levels, parameters)
    shown = Shown(
        short=np.array([lacking(*each) for each in zip(problem.limits, problem.bounds, held[1:], strict=True)]),
        risk=held[0].risk,
        breach=question.breach(values) / units[1:],
        binding=np.nan_to_num(multipliers) > 0.0,
        aims=now.aims,
        levels=now.levels,
    )
    losses = np.stack([np.asarray(each.losses) for each in held])
    here = Candidate(parameters, values, prices, multipliers, code, losses, search.stage, shown)
    before, search = search.best, dataclasses.replace(search, iterates=keep_one(iterates, int(best)))
    if not question.draws.exact and now.task < AIMS:
        # Larger samples until held-out draws no longer tell the answers apart.
        moved = before is None or _has_moved(problem, question, held, before, iterates.spread[best])
        if moved and _can_grow(problem, search):
            search = dataclasses.replace(search, adjustment=dataclasses.replace(now, task=LARGER), moved=moved)
            return _ask(problem, search, here, here, search.stage + 1)
        search = dataclasses.replace(search, moved=moved and before is not None)
        before = None
    better = before is None or before.shown is None or shown.rank(units[1:]) < before.shown.rank(units[1:])
    kept = here if better else before
    assert kept is not None and kept.shown is not None
    if problem.hopeless:
        return dataclasses.replace(search, best=kept, done=_code(kept))
    after = next_adjustment(problem.limits, problem.bounds, units[1:], now, shown, kept.shown, question.draws.exact)
    search = dataclasses.replace(search, adjustment=after)
    if after.task == SETTLED:
        return dataclasses.replace(search, best=kept, done=_code(kept))
    if after.task != ELSEWHERE:
        return _ask(problem, search, here if after.task == AIMS else kept, kept, search.stage)
    # From the starts that break the limits least: the best on the first sample may lie in a wrong valley.
    ranked = question if question.draws.exact else question._replace(draws=question.draws.first(RANKED_DRAWS))
    dear = np.maximum(problem.starts.prices, DEARER * units[0] / units[1:])
    again = choose_starts(problem.space, ranked, problem.starts.candidates, dear, FINALISTS)
    return dataclasses.replace(search, iterates=begin(problem.space, again, dear), best=kept, kind=0)


def _ask(problem: Problem, search: Search, origin: Candidate, best: Candidate, stage: int) -> Search:
    """Return the search of the next question, from a policy that was found for one that is nearly the same."""
    iterates = begin(problem.space, origin.parameters, origin.prices)
    return dataclasses.replace(search, iterates=iterates, best=best, stage=stage, kind=0)


def _code(best: Candidate) -> int:
    return UNFINISHED if best.code == GOING else best.code


def _can_grow(problem: Problem, search: Search) -> bool:
    """Return whether there is a larger sample, and the slopes of all losses can be kept there."""
    settings, stage = problem.settings, search.stage + 1
    size = 8 * search.iterates.points[0].size * len(problem.objectives) * 3
    large = problem.objectives[0].averages() is not None
    return stage < settings.stages() and (large or settings.size(stage) * size <= KEPT_BYTES)


def _has_moved(problem: Problem, question: Question, held: list[Evaluation], before: Candidate, spread: float) -> bool:
    """Return whether any risk on held-out draws differs from the last answer's by more than chance."""
    assert before.shown is not None
    tolerance = float(problem.settings.tolerance)
    old = hold_out(problem, before.shown.levels, before.parameters)
    for now, then, size in zip(held, old, (spread, *question.units[1:]), strict=True):
        noise = now.error_of_difference(then)
        if not abs(now.risk - then.risk) <= max(noise if np.isfinite(noise) else 0.0, tolerance * size):
            return True
    return False


def hold_out(problem: Problem, levels: Float[np.ndarray, " L"], parameters: Any) -> list[Evaluation]:
    """Return a policy's losses on held-out draws, each judged by its risk, in units."""
    draws = problem.ranking_sample()
    place, found = np.asarray(problem.space.objective.points(parameters)), []
    for objective, risk in zip(problem.objectives, problem.risks(levels), strict=True):
        held = judge(objective, risk, place[0], draws)
        if objective.by_chance:
            # Of the particles that it will be judged on, how far they scatter alone.
            scatter = {"without": held.without, "particle_standard_error": held.particle_standard_error}
            own = judged(risk, losses_on(objective, place, draws.thetas)[0], draws)
            held = dataclasses.replace(own, **scatter)
        found.append(held)
    return found


def _order(question: Question, values: Float[np.ndarray, " G"]) -> tuple[bool, float, float]:
    """Return what orders points on the sample: those that keep the limits first, then by the risk or the breach."""
    breach = float((question.breach(values) / question.units[1:]).sum())
    broken = breach > KEPT
    return broken, breach if broken else 0.0, float(values[0])


def _join(problem: Problem, first: Iterates, waiting: Iterates) -> Iterates:
    """Return all starts, the first of them where it has come to."""
    if not np.isfinite(first.value[0]):
        return waiting
    joined = tree_map(lambda own, all_: np.concatenate([own, all_[1:]]), first.parameters, waiting.parameters)
    again = begin(problem.space, joined)
    # What is known of the first is the newest line of the history.
    here = {name: np.array(getattr(again, name)) for name in ("value", "norm", "length")}
    for name, column in here.items():
        column[0] = getattr(first, name)[0]
    return dataclasses.replace(again, finished=waiting.finished, **here)


def keep_some(iterates: Iterates, rows: np.ndarray) -> Iterates:
    """Return some of the points."""
    return tree_map(lambda leaf: leaf[rows] if np.ndim(leaf) else leaf, iterates)


def keep_one(iterates: Iterates, best: int) -> Iterates:
    """Return one of the points."""
    return keep_some(iterates, np.array([best]))


def contenders(search: Search) -> np.ndarray:
    """Return which points may be the best: others are too far behind on the sample to catch up on another."""
    iterates = search.iterates
    sound = ~np.isin(iterates.finished, (NON_FINITE, DROPPED)) & np.isfinite(iterates.value)
    best = leader(search)
    near = iterates.value <= iterates.value[best] + BEHIND * iterates.spread[best]
    return sound & (near | (iterates.finished == HELD))


def leader(search: Search) -> int:
    """Return the point with the least merit on the sample, among those that no other stands in for."""
    value = np.asarray(search.iterates.value)
    # The better of two that were merged may have risen by a rounding error since.
    own = np.isfinite(value) & (search.iterates.finished != DROPPED)
    return int(np.argmin(np.where(own, value, np.inf)))


def history_line(problem: Problem, search: Search) -> tuple[float, float, float]:
    """Return the newest line of the history: risk, gradient norm and step of the leading point, in the user's units."""
    best, iterates, unit = leader(search), search.iterates, problem.units[0]
    value = iterates.values[best, 0] if np.isfinite(iterates.values[best, 0]) else iterates.value[best]
    return float(unit.loss(value)), float(unit.scale * iterates.norm[best]), float(iterates.length[best])


def answer_of(search: Search) -> Candidate:
    """Return the best answer of a search that is done; otherwise where the leading point is."""
    best = search.best
    if best is not None and (search.done != GOING or search.iterates.rounds == 0 or best.shown is not None):
        return best
    k, iterates, nothing = leader(search), search.iterates, np.zeros(0)
    code = int(iterates.finished[k])
    parameters, losses = select(iterates.parameters, [k]), np.zeros((len(iterates.values[k]), 0))
    return Candidate(parameters, iterates.values[k], iterates.prices[k], nothing, code, losses, search.stage)


def status_of(search: Search) -> Status:
    """Return how the descent to the answer ended, on its own sample; a larger one may still have moved it."""
    if search.done in (CONVERGED, VANISHED) and search.moved:
        return Status.SAMPLE_LIMIT
    return STATUSES[search.done]


# Codes of how points and searches end are fewer than this.
CODES = 16


def restore_search(
    arrays: Arrays, space: Space, initial: Any, steps: tuple[Step, ...], settings: SampleAverage, adjustment: Adjustment
) -> Search:
    """Return the search whose leaves were these; refused where these settings could not have led to it."""
    limits = len(adjustment.aims)

    def points_of(name: str) -> int:
        shape = np.shape(arrays.get(name, 0.0))
        # A start that was given is there twice.
        if len(shape) != 1 or not 1 <= shape[0] <= max(settings.starts, FINALISTS) + 1:
            raise foreign()
        return shape[0]

    nothing = np.zeros(limits)
    blank = begin(space, initial, nothing if limits else None)
    count = points_of(".iterates.value")
    blank = dataclasses.replace(blank, memory=_memory(below(arrays, ".iterates.memory"), steps, space, blank))
    iterates = filled(blank, below(arrays, ".iterates"), count)
    waiting = None
    if ".waiting.value" in arrays:
        waiting = filled(begin(space, initial), below(arrays, ".waiting"), points_of(".waiting.value"))
    best = None
    if any(name.startswith(".best") for name in arrays):
        held = np.shape(arrays.get(".best.held_out", np.zeros((0, 0))))
        if len(held) != 2 or held[0] != 1 + limits:
            raise foreign()
        shown = Shown(nothing, 0.0, nothing, np.zeros(limits, bool), nothing, nothing) if limits else None
        best = Candidate(initial, np.zeros(1 + limits), nothing, nothing, 0, np.zeros(held), 0, shown)
    search = filled(Search(iterates, 0.0, adjustment, best=best, waiting=waiting), arrays)
    if not _is_possible(search, settings):
        raise foreign()
    return search


def _memory(arrays: Arrays, steps: tuple[Step, ...], space: Space, iterates: Iterates) -> Any:
    """Return the empty memory of the step that left these arrays; before the first evaluation there is none."""
    memories = [step.blank(space, iterates) for step in steps if space.table is not None or not step.needs_table]
    return next((memory for memory in memories if named_leaves(memory).keys() == arrays.keys()), None)


def _is_possible(search: Search, settings: SampleAverage) -> bool:
    """Return whether a run could have come here."""
    iterates: Iterates = search.iterates
    adjustment, limits = search.adjustment, len(search.adjustment.aims)
    values = np.concatenate([np.ravel(leaf) for leaf in tree_leaves(iterates.parameters)])
    ended = [search.done] if search.best is None else [search.done, search.best.code]
    levels = adjustment.levels[~np.isnan(adjustment.levels)]
    return bool(
        np.all((iterates.finished >= GOING) & (iterates.finished < CODES))
        and all(0 <= code < CODES for code in ended)
        and np.all(np.isfinite(values))
        and np.all(iterates.idle >= 0)
        and 0 <= search.stage < settings.stages()
        and (search.best is None or 0 <= search.best.stage < settings.stages())
        and search.kind in (0, 1)
        and 0 <= search.iterations < 2**31
        and search.models >= 0
        and iterates.rounds >= 0
        and (iterates.rounds > 0) == (iterates.memory is not None)
        and (search.stage == 0 or search.best is not None)
        and (search.waiting is None or (search.waiting.rounds == 0 and len(iterates.value) == 1))
        and 0 <= adjustment.task <= SETTLED
        and -1 <= adjustment.limit < max(limits, 1)
        and adjustment.tried >= 0
        and np.all((levels >= 0) & (levels < 1))
        and np.all(np.isfinite(adjustment.aims))
        and np.all(iterates.prices >= 0)
    )
