"""The search with limits: samples that grow, starts that compete, and what is kept to spare so that limits hold.

On a fixed sample `descent.py` finds a policy whose limits' risks are at most their aims. A policy that just keeps a
limit on the draws it was fitted to breaks it on others as often as not. So aims are moved below the limits until
held-out draws show them kept with as much to spare as chance may take away. A limit with a chance is searched for by
CVaR, whose level is then lowered as far as held-out draws still show the chance reached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...evaluation import Evaluation, judge, judged
from ...objectives import Objective, losses_on
from ...posteriors import WeightedDraws
from ...records import tree_map
from ...risks import CVaR, Risk
from ...seeds import Stream, generator
from ..draws import Job, JobDraws
from ..progress import Progress, Shown
from ..sample_average import SampleAverage
from ..starts import PLANNED, SPREAD, heaviest
from .answer import particle_errors, particle_margin, to_spare
from .descent import FIRST_PRICE, LimitIterate, descend, finished, spread_of, started
from .limit import Limit
from .problem import LimitLosses, LimitQuestion, Variables, variables_of
from .wait_and_see import RelaxedLimits, relaxed

# Rounds of all starts on the first sample; starts that go on to their end.
EXPLORATION, FINALISTS = 30, 3

# Slopes of all losses of a sample are kept together, up to here.
KEPT_BYTES = 512 * 2**20

# Draws of the relaxation that starts come from.
TOLD_DRAWS = 64

# Of this many policies without bounds, the best tells how much losses differ.
BETTER = 4

# Aims are this far below a limit from the first, in units of its loss, so that rounding breaks none.
NUDGE = 1e-9

# Where a limit is lacking after all, starts are ranked again on so many draws, a breach priced so many times higher.
RANKED_DRAWS, DEARER = 1024, 100.0

# Candidates by chance for each start that is wanted.
BY_CHANCE = 2

# Rounds in which aims are moved, and levels of one CVaR that are tried; rounds of descent for each.
AIMS, LEVELS, AGAIN = 8, 7, 60


@dataclass(frozen=True)
class Candidate:
    """A policy that was fitted with certain aims and levels.

    Attributes:
        point: in units.
        question: it was fitted to.
        short: `[L]` what each limit lacks on held-out draws, its margin included; at most 0 where it is kept.
        risk: of the objective on held-out draws.
    """

    point: LimitIterate
    question: LimitQuestion
    short: Float[np.ndarray, " L"]
    risk: float

    def rank(self) -> tuple[bool, float, float]:
        """Kept before broken, then by the risk, or by what is lacking."""
        lacking = float(np.maximum(self.short / self.question.units[1:], 0.0).sum())
        return lacking > 0.0, lacking, self.risk if lacking == 0.0 else 0.0


class LimitSearch:
    """One problem with limits, from its parts to the policy that is judged.

    Attributes:
        units, scales: of each loss, in which all is searched.
        variables: what is moved.
        levels: of the CVaR that stands in for each limit's chance; None without one.
        told: the problem of one who is told theta, on a few draws.
        history, models, rounds: made so far.
        moved: whether the largest sample still moved the answer.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        limits: tuple[Limit, ...],
        job: Job,
        settings: SampleAverage,
        held_out: int,
        thetas: np.ndarray,
        hopeless: bool,
    ):
        """Begin; where it is `hopeless`, proved to be kept by no policy, for the one that breaks it least."""
        self.limits, self.job, self.settings, self.held_out, self.hopeless = limits, job, settings, held_out, hopeless
        self.objectives, self.units = zip(*(objective.in_units(thetas) for objective in objectives), strict=True)
        self.scales = np.array([unit.scale for unit in self.units])
        self.draws = JobDraws([job])
        self.variables: Variables = variables_of(self.objectives[0], self.draws.first(1)[0])
        pairs = zip(limits, self.units[1:], strict=True)
        self.bounds = np.array([(float(limit.at_most) - unit.offset) / unit.scale for limit, unit in pairs])
        self.levels = [limit.chance for limit in limits]
        self.random = generator(job.words, Stream.SAMPLE)
        self.initial = self.variables.from_parameters(tree_map(lambda leaf: np.asarray(leaf)[None], job.start))[0]
        self.told: RelaxedLimits | None = None
        self.history: list[tuple[float, float, float]] = []
        self.models = self.rounds = 0
        self.moved = False

    def risks(self) -> tuple[Risk, ...]:
        """Of all losses, a limit with a chance by CVaR at its present level."""
        pairs = zip(self.limits, self.levels, strict=True)
        return (self.job.risk, *(limit.risk if level is None else CVaR(level) for limit, level in pairs))

    def _sample(self, stage: int) -> WeightedDraws:
        """The draws of a stage."""
        return self.draws.evenly(self.job, self.settings.size(stage), Stream.SAMPLE, stage + 1)

    def found(self, progress: Shown) -> Candidate:
        """The best policy found that keeps the limits on held-out draws, or the one that lacks least."""
        with Progress(progress, 0, self.settings.iterations) as self.bar:
            point, question = self._first()
            if not question.draws.exact:
                point, question = self._grown(point, question)
            return self._adjusted(point, question)

    def _first(self) -> tuple[LimitIterate, LimitQuestion]:
        """All starts on the first sample; the best of them to its end."""
        draws, count, first = self._sample(0), self.settings.starts, self.initial[None]
        rough = LimitQuestion(self.objectives, self.risks(), draws, self.bounds, np.ones(len(self.objectives)))
        self.seen = self._candidates(rough, count)
        units = self._units(rough, self.seen)
        question = rough._replace(aims=self.bounds - NUDGE * units[1:], units=units)
        point = self.variables.points(first)[0]
        self.told = relaxed(question._replace(draws=heaviest(draws, TOLD_DRAWS), aims=self.bounds), point)
        prices = FIRST_PRICE * units[0] / units[1:]
        if self.told is not None:
            prices = np.maximum(prices, 2.0 * self.told.multipliers)
            self.seen = np.concatenate([self._candidates(question, 1), self.seen])
        best = chosen(question, self.variables, self.seen, prices, count)
        points = started(question, self.variables, np.concatenate([first, best]) if self.job.given else best, prices)
        if not points:
            finite = self.objectives[0].finite_point(point, draws.thetas)
            rescued = None if finite is None else self.variables.from_points(finite[None])
            points = [] if rescued is None else started(question, self.variables, rescued, prices)
        if not points:
            # Nothing has finite losses: the start is handed back as it is.
            return LimitIterate(_nothing(question, self.initial), prices, 1.0, done=False), question
        explored = self._descend(question, points, min(EXPLORATION, self.settings.iterations))
        order = sorted(explored, key=lambda p: _order(question, p))
        ended = [self._ended(question, p) for p in order[: FINALISTS if draws.exact else 1]]
        return min(ended, key=lambda p: _order(question, p)), question

    def _candidates(self, question: LimitQuestion, count: int) -> Float[np.ndarray, "K N"]:
        """Many choices, of which the best by merit and a few by chance are worth a descent.

        The start, mixtures of plans of one who is told theta, plans, and policies by chance.
        """
        planned = [] if self.told is None else self.told.mixtures()
        for objective in question.objectives:
            if (plans := objective.plans()) is not None:
                few = question.draws.first(min(len(question.draws), PLANNED))
                planned += list(plans.planned(self.job.belief, few, count).points[: 4 * count])
        drawn = question.objectives[0].random_points(self.random, BY_CHANCE * count)
        parts = [self.initial[None]]
        for points in (np.stack(planned) if planned else None, drawn):
            found = None if points is None else self.variables.from_points(points)
            parts += [] if found is None else [found]
        if drawn is None:
            parts.append(self.initial + SPREAD * self.random.normal(size=(BY_CHANCE * count, len(self.initial))))
        return np.concatenate(parts)

    def _units(self, question: LimitQuestion, x: np.ndarray) -> np.ndarray:
        """How much each loss differs over draws and over policies; of policies without bounds, over better ones."""
        points, units = self.variables.points(x), []
        for objective in question.objectives:
            losses = losses_on(objective, points, question.draws.thetas)
            if np.isinf(self.variables.widest):
                # A gain that lets a system go may lose any number.
                losses = losses[np.argsort(losses.max(axis=1), kind="stable")[: max(2, len(losses) // BETTER)]]
            losses = losses[np.isfinite(losses)]
            size = float(np.abs(losses).max(initial=0.0))
            units.append(max(float(np.ptp(losses)) if losses.size else 0.0, 1e-9 * size) or 1.0)
        return np.array(units)

    def _descend(self, question: LimitQuestion, points: list[LimitIterate], rounds: int) -> list[LimitIterate]:
        left = max(self.settings.iterations - self.rounds, 0)
        done = descend(question, self.variables, points, min(rounds, left), float(self.settings.tolerance))
        self.rounds += len(done.history)
        self.models += done.models
        unit = self.units[0]
        lines = [(float(unit.loss(v)), float(unit.scale * gap), r) for v, gap, r in done.history]
        self.history += lines
        self.bar.advance(self.rounds, np.array(lines).reshape(-1, 3, 1))
        return done.points

    def _ended(self, question: LimitQuestion, point: LimitIterate) -> LimitIterate:
        """A point at the end of its descent, polished where the sample is small enough."""
        if point.done is None:
            point = self._descend(question, [point], self.settings.iterations)[0]
        return finished(question, self.variables, point)

    def _again(self, question: LimitQuestion, before: LimitIterate) -> LimitIterate:
        """From a point found for a question that was nearly the same."""
        points = started(question, self.variables, before.here.x[None], before.prices)
        return self._ended(question, self._descend(question, points, AGAIN)[0]) if points else before

    def _grown(self, point: LimitIterate, question: LimitQuestion) -> tuple[LimitIterate, LimitQuestion]:
        """Larger samples until held-out draws no longer tell the answers apart."""
        held = self._held(point)
        # As far as the slopes of all losses can be kept.
        size = 8 * len(self.initial) * len(self.objectives) * 3
        for stage in range(1, self.settings.stages()):
            if self.settings.size(stage) * size > KEPT_BYTES:
                break
            question = question._replace(draws=self._sample(stage))
            point, before = self._again(question, point), held
            held, self.moved = self._held(point), False
            for new, old, spread in zip(
                held, before, (spread_of(question, point.here), *question.units[1:]), strict=True
            ):
                noise, near = new.error_of_difference(old), float(self.settings.tolerance) * spread
                self.moved |= not abs(new.risk - old.risk) <= max(noise if np.isfinite(noise) else 0.0, near)
            if not self.moved:
                break
        return point, question

    def _held(self, point: LimitIterate) -> list[Evaluation]:
        """The policy on held-out draws, in units."""
        draws = self.draws.evenly(self.job, self.held_out, Stream.HELD_OUT)
        place, found = self.variables.points(point.here.x[None]), []
        for objective, risk in zip(self.objectives, self.risks(), strict=True):
            held = judge(objective, risk, place[0], draws)
            if objective.by_chance:
                # Of the particles that it will be judged on, how far they scatter alone.
                scatter = {"without": held.without, "particle_standard_error": held.particle_standard_error}
                own = judged(risk, losses_on(objective, place, draws.thetas)[0], draws)
                held = dataclasses.replace(own, **scatter)
            found.append(held)
        return found

    def _candidate(self, point: LimitIterate, question: LimitQuestion) -> Candidate:
        held = self._held(point)
        short = [_short(*each) for each in zip(self.limits, self.bounds, held[1:], strict=True)]
        return Candidate(point, question, np.array(short), held[0].risk)

    def _adjusted(self, point: LimitIterate, question: LimitQuestion) -> Candidate:
        """Aims and levels moved until held-out draws show what was asked for, at the least cost."""
        best = self._moved(self._candidate(point, question))
        if self.hopeless:
            return best
        if best.rank()[0] and (elsewhere := self._elsewhere(best)) is not None:
            best = min(best, self._moved(elsewhere), key=Candidate.rank)
        for j, limit in enumerate(self.limits):
            if limit.chance is not None:
                best = self._tightened(j, limit.chance, best)
        return best

    def _moved(self, candidate: Candidate) -> Candidate:
        """The best of a candidate and those of aims that are moved until they do."""
        best = candidate
        for _ in range(0 if self.hopeless else AIMS):
            wanted = self._next_aims(candidate)
            if wanted is None or self.rounds >= self.settings.iterations:
                break
            question = candidate.question._replace(aims=wanted)
            candidate = self._candidate(self._again(question, candidate.point), question)
            best = min(best, candidate, key=Candidate.rank)
        return best

    def _elsewhere(self, lacking: Candidate) -> Candidate | None:
        """From the starts that break the limits least: the best on the first sample may lie in a wrong valley."""
        question = lacking.question
        prices = DEARER * FIRST_PRICE * question.units[0] / question.units[1:]
        ranked = question if question.draws.exact else question._replace(draws=question.draws.first(RANKED_DRAWS))
        x = chosen(ranked, self.variables, self.seen, prices, FINALISTS)
        points = started(question, self.variables, x, prices)
        if not points or self.rounds >= self.settings.iterations:
            return None
        explored = self._descend(question, points, AGAIN)
        best = min(explored, key=lambda point: _order(question, point))
        return self._candidate(self._ended(question, best), question)

    def _next_aims(self, candidate: Candidate) -> Float[np.ndarray, " L"] | None:
        """Aims that would just do; None where these do, within what is worth another descent."""
        question, aims = candidate.question, np.array(candidate.question.aims)
        breach = question.breach(candidate.point.here.values)
        for j, limit in enumerate(self.limits):
            short, unit = candidate.short[j], question.units[j + 1]
            if limit.chance is not None or not np.isfinite(short):
                continue
            if question.draws.exact:
                aims[j] -= 1.5 * max(short, 0.0)
            elif limit.confidence is None or breach[j] > 1e-3 * unit:
                # An aim that is out of reach on the sample: one below it would be, too.
                continue
            elif short > 0.0:
                aims[j] -= 1.05 * short + 0.5e-4 * unit
            elif (
                short < -0.25 * abs(self.bounds[j] - aims[j]) - 1e-4 * unit
                and np.nan_to_num(candidate.point.multipliers[j]) > 0.0
            ):
                aims[j] = min(aims[j] - 0.9 * short, self.bounds[j] + unit)
        return aims if np.any(aims != question.aims) else None

    def _tightened(self, j: int, chance: float, first: Candidate) -> Candidate:
        """Other levels of CVaR for one chance: lower ones are cheaper, higher ones safer."""

        def at(level: float) -> Candidate:
            self.levels[j] = level
            question = best.question._replace(risks=self.risks())
            return self._candidate(self._again(question, best.point), question)

        best, low, high = first, 0.0, chance
        if first.short[j] > 0.0:
            for level in (0.5 * (1.0 + chance), 0.25 + 0.75 * chance, 0.9 * chance, 0.6 * chance):
                other = at(min(level, 0.999))
                best = min(best, other, key=Candidate.rank)
                if other.short[j] <= 0.0:
                    low, high = (chance, level) if level > chance else (0.0, level)
                    break
        if best.short[j] <= 0.0:
            for _ in range(LEVELS):
                if self.rounds >= self.settings.iterations:
                    break
                middle = 0.5 * (low + high)
                other = at(middle)
                low, high = (low, middle) if other.short[j] <= 0.0 else (middle, high)
                best = min(best, other, key=Candidate.rank)
        self.levels[j] = float(np.asarray(best.question.risks[j + 1].level))  # pyright: ignore[reportAttributeAccessIssue]
        return best


def _short(limit: Limit, bound: float, held: Evaluation) -> float:
    """What a limit lacks: in its unit, or for a chance in probability, by the unit of its loss."""
    if limit.chance is not None:
        spared = 0.0 if limit.confidence is None else particle_margin(limit.confidence) * particle_errors(held)
        kept = float(np.asarray(held.probabilities)[np.asarray(held.losses) + spared <= bound].sum())
        lacking = limit.chance + to_spare(limit, held) - kept
        return lacking if lacking > 1e-12 else 0.0
    return held.risk + to_spare(limit, held) - bound if np.isfinite(held.risk) else np.inf


def _order(question: LimitQuestion, point: LimitIterate) -> tuple[bool, float, float]:
    breach = float((question.breach(point.here.values) / question.units[1:]).sum())
    broken = breach > 1e-7
    return broken, breach if broken else 0.0, float(point.here.values[0])


def _nothing(question: LimitQuestion, x: np.ndarray) -> LimitLosses:
    shape = (len(question.objectives), len(question.draws))
    return LimitLosses(x, np.full(shape, np.inf), np.zeros((*shape, len(x))), np.full(shape[0], np.inf))


def chosen(
    question: LimitQuestion,
    variables: Variables,
    x: Float[np.ndarray, "K N"],
    prices: np.ndarray,
    count: int,
) -> Float[np.ndarray, "chosen N"]:
    """The best candidates by merit that differ, and some that are far away: the best may all lie in one valley."""
    values = question.values(variables.points(x))
    finite = np.all(np.isfinite(values), axis=1)
    x, values = x[finite], values[finite]
    score = values[:, 0] + question.breach(values) @ prices
    order = np.argsort(score, kind="stable")
    kept: list[int] = []
    for k in order:
        if len(kept) < (count + 1) // 2 and all(np.abs(x[k] - x[j]).max() > 0.05 for j in kept):
            kept.append(int(k))
    while len(kept) < min(count, len(x)):
        # The farthest of the rest, among the better half.
        rest = [int(k) for k in order[: max(count, len(order) // 2)] if k not in kept]
        if not rest:
            break
        away = [min(float(np.abs(x[k] - x[j]).max()) for j in kept) for k in rest]
        if max(away) <= 1e-9:
            break
        kept.append(rest[int(np.argmax(away))])
    return x[kept]
