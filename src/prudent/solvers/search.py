"""One job of the default solver: its samples, its points, and the best answer so far."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array, to_numpy
from ..evaluation import judged
from ..objectives import Unit
from ..posteriors import WeightedDraws
from ..records import Record, tree_leaves, tree_map
from ..risks import Risk
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
    Space,
    Step,
    advance,
    allowed,
    begin,
    halved,
    merged,
    only,
)
from .draws import Job, JobDraws
from .natural import NaturalGradient
from .sample import Sample, Slopes
from .solution import Status
from .starts import PLANNED
from .states import Arrays, below, filled, foreign, named_leaves

if TYPE_CHECKING:
    from .sample_average import SampleAverage

# Iterations of all starts on the first sample; the best one goes on.
EXPLORATION = 30

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

STATUSES = {
    CONVERGED: Status.CONVERGED,
    STALLED: Status.STALLED,
    VANISHED: Status.GRADIENT_VANISHED,
    HELD: Status.START_KEPT,
    NON_FINITE: Status.NON_FINITE,
    GOING: Status.ITERATION_LIMIT,
    UNFINISHED: Status.SAMPLE_LIMIT,
}


class Incumbent(Record):
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


class Search(Record):
    """One job: the points that descend on the sample of its stage, and the best answer so far.

    Attributes:
        iterates: the points.
        floor: about the least risk that could be hoped for, NaN where it is not known.
        stage: which sample they are on.
        kind: which of the solver's steps they take.
        scoring: whether they are about to be judged on the held-out sample.
        incumbent: the best answer of the samples before.
        done: how the job ended, or `GOING`.
        moved: whether the largest sample still moved the answer.
        waiting: all starts, while the first of them is brought down by natural steps; None after that.
        iterations, models: made so far.
    """

    iterates: Iterates
    floor: float
    stage: int = 0
    kind: int = 0
    scoring: bool = False
    incumbent: Incumbent | None = None
    done: int = GOING
    moved: bool = False
    waiting: Iterates | None = None
    iterations: int = 0
    models: int = 0

    def request(self, space: Space, settings: SampleAverage, job: Job, draws: JobDraws) -> Sample:
        """What to evaluate next: trial points on the fitted sample, or current ones on the held-out one."""
        if self.scoring:
            return Sample(
                np.asarray(self.iterates.points),
                draws.evenly(job, ranking_draws(space, settings), Stream.HELD_OUT),
                job.risk,
                self._contenders(),
                sloped=False,
            )
        going = np.asarray(self.iterates.finished) == GOING
        if self.iterates.rounds == 0:
            going = going | (np.asarray(self.iterates.finished) == HELD)
        fitted = draws.evenly(job, settings.size(self.stage), Stream.SAMPLE, self.stage + 1)
        # Of large models all atoms are planned for where they are few; of others, starts alone.
        planned = space.objective.averages() is not None and job.risk.monotone and bool(np.isfinite(self.floor))
        proven = planned and fitted.exact and len(fitted) <= PLANNED
        return Sample(space.objective.points(self.iterates.trial), fitted, job.risk, going, self.floor, proven)

    def receive(
        self,
        settings: SampleAverage,
        steps: tuple[Step, ...],
        space: Space,
        request: Sample,
        found: Slopes,
    ) -> Search:
        """The search after an answer."""
        now = dataclasses.replace(self, models=self.models + found.models)
        if self.scoring:
            return now._scored(settings, space, request, found)
        step = steps[self.kind] if self.waiting is None else NaturalGradient()
        iterates = advance(step, space, self.iterates, request, found, float(settings.tolerance))
        if self.waiting is not None:
            now = dataclasses.replace(now, iterates=iterates, iterations=self.iterations + 1)
            going = bool(iterates.finished[0] == GOING) and iterates.rounds < WARM_UP
            return (
                now
                if going
                else dataclasses.replace(now, iterates=_joined(space, iterates, self.waiting), waiting=None)
            )
        several = len(iterates.value) > 1
        if several:
            iterates = merged(iterates, float(settings.tolerance))
            if step.keeps_risk and iterates.rounds in HALVED and not request.draws.exact:
                iterates = halved(iterates)
        now = dataclasses.replace(now, iterates=iterates, iterations=self.iterations + 1)
        # A start that was given is held, and says nothing of where it is.
        lost = (iterates.finished == NON_FINITE) | ((iterates.finished == HELD) & ~np.isfinite(iterates.value))
        if bool(np.all(lost)):
            return now._rescued(space, request, found)
        best = now._leader()
        over = bool(np.all(iterates.finished != GOING)) or (several and iterates.rounds >= EXPLORATION)
        # Where the best cannot be far from the least there is, the others need not be followed.
        left = iterates.value[best] - request.floor if request.proven else np.inf
        if not over and not left <= allowed(iterates, float(settings.tolerance))[best]:
            return now
        if iterates.finished[best] == STALLED and self.kind + 1 < len(steps):
            again = begin(space, only(iterates, best))
            here = {name: getattr(iterates, name)[best : best + 1] for name in ("value", "norm", "length")}
            return dataclasses.replace(now, iterates=dataclasses.replace(again, **here), kind=self.kind + 1)
        if request.draws.exact or (not several and settings.stages() == 1):
            # The sample is the posterior itself, or there is nothing to rank: the best point goes on to its end.
            alone = _alone(iterates, best)
            return dataclasses.replace(now, iterates=alone, done=int(alone.finished[0]))
        return dataclasses.replace(now, scoring=True)

    def _rescued(self, space: Space, request: Sample, found: Slopes) -> Search:
        """Where no point has finite losses: begin again at one that has, if the objective finds it."""
        best = int(np.argmin(np.where(np.isfinite(found.losses), 0, 1).sum(axis=1)))
        point = space.objective.finite_point(np.asarray(request.points[best]), request.draws.thetas)
        if point is None:
            return dataclasses.replace(self, iterates=_alone(self.iterates, best), done=NON_FINITE)
        return dataclasses.replace(self, iterates=begin(space, to_numpy(space.objective.from_point(point[None]))))

    def _scored(self, settings: SampleAverage, space: Space, request: Sample, found: Slopes) -> Search:
        """Keep the best point; go on with a larger sample while that moves the answer."""
        scores = np.where(request.active & np.isfinite(found.value), found.value, np.inf)
        # Where all are infinite, the one that is so at the fewest draws.
        lost = np.where(request.active, np.isinf(found.losses).sum(axis=1), np.inf)
        best = int(np.argmin(scores if np.any(np.isfinite(scores)) else lost))
        iterates = _alone(self.iterates, best)
        here = Incumbent(iterates.parameters, float(iterates.value[0]), int(iterates.finished[0]), found.losses[best])
        last = self.stage + 1 >= settings.stages()
        if self.incumbent is None:
            # One sample alone: the best start goes on until it is done.
            return (
                self._next(space, iterates, here, False, True)
                if not last
                else self._next(space, iterates, None, False, False)
            )
        change, noise = _change(request.risk, request.draws, here, self.incumbent)
        moved = not abs(change) <= max(noise, float(allowed(iterates, float(settings.tolerance))[0]))
        # A point whose descent was cut short gives way unless it is clearly better.
        better = change <= (noise if self.incumbent.code == GOING else 0.0)
        return self._next(space, iterates, here if better else self.incumbent, moved, moved and not last)

    def _next(self, space: Space, iterates: Iterates, incumbent: Incumbent | None, moved: bool, grown: bool) -> Search:
        if incumbent is None:
            done = int(iterates.finished[0])
        elif grown:
            done, iterates = GOING, begin(space, incumbent.parameters)
        else:
            done = UNFINISHED if incumbent.code == GOING else incumbent.code
        return Search(
            iterates=iterates,
            floor=self.floor,
            stage=self.stage + grown,
            incumbent=incumbent,
            done=done,
            moved=moved and not grown,
            kind=0 if grown else self.kind,
            iterations=self.iterations,
            models=self.models,
        )

    def _contenders(self) -> np.ndarray:
        """Points that may be the best: others are too far behind on the fitted sample to catch up on another."""
        iterates = self.iterates
        sound = ~np.isin(iterates.finished, (NON_FINITE, DROPPED)) & np.isfinite(iterates.value)
        best = self._leader()
        near = iterates.value <= iterates.value[best] + BEHIND * iterates.spread[best]
        return sound & (near | (np.asarray(iterates.finished) == HELD))

    def _leader(self) -> int:
        """The point with the least objective on the fitted sample, among those that no other stands in for."""
        value = np.asarray(self.iterates.value)
        # The better of two that were merged may have risen by a rounding error since.
        own = np.isfinite(value) & (np.asarray(self.iterates.finished) != DROPPED)
        return int(np.argmin(np.where(own, value, np.inf)))

    def entry(self, unit: Unit) -> tuple[float, float, float]:
        """The newest line of the history: of the leading point, in the user's units."""
        best, iterates = self._leader(), self.iterates
        return (
            float(unit.loss(iterates.value[best])),
            float(unit.scale * iterates.norm[best]),
            float(iterates.length[best]),
        )

    def answer(self) -> Incumbent:
        """The best held-out answer of a run that is done; otherwise where the leading point is."""
        if self.incumbent is not None and (self.done != GOING or self.iterates.rounds == 0):
            return self.incumbent
        best = self._leader()
        code = int(np.asarray(self.iterates.finished)[best])
        return Incumbent(only(self.iterates, best), float(self.iterates.value[best]), code, np.zeros(0))

    def status(self) -> Status:
        """How the descent to the answer ended, on its own sample; a larger one may still have moved it."""
        if self.done in (CONVERGED, VANISHED) and self.moved:
            return Status.SAMPLE_LIMIT
        return STATUSES[self.done]


def ranking_draws(space: Space, settings: SampleAverage) -> int:
    """Draws that rank the starts: of models that take long no more than the largest sample has."""
    return HELD_OUT if space.objective.averages() is None else min(HELD_OUT, settings.size(settings.stages() - 1))


def _joined(space: Space, first: Iterates, waiting: Iterates) -> Iterates:
    """All starts, the first of them where it has come to."""
    if not np.isfinite(first.value[0]):
        return waiting
    joined = tree_map(lambda own, all_: np.concatenate([own, all_[1:]]), first.parameters, waiting.parameters)
    again = begin(space, joined)
    # What is known of the first is the newest line of the history.
    here = {name: np.array(getattr(again, name)) for name in ("value", "norm", "length")}
    for name, column in here.items():
        column[0] = getattr(first, name)[0]
    return dataclasses.replace(again, finished=waiting.finished, **here)


def _alone(iterates: Iterates, best: int) -> Iterates:
    """One of the points."""
    return tree_map(lambda leaf: leaf[best : best + 1] if np.ndim(leaf) else leaf, iterates)


def _change(risk: Risk, draws: WeightedDraws, here: Incumbent, before: Incumbent) -> tuple[float, float]:
    """How much larger the risk of one answer is than another's on held-out draws, and the standard error of that."""
    now, then = (judged(risk, np.asarray(answer.held_out), draws) for answer in (here, before))
    if now.infinite() or then.infinite():
        # Fewer infinite losses are better, and by no finite amount.
        return float(np.isinf(now.losses).sum() - np.isinf(then.losses).sum()), 0.0
    return now.risk - then.risk, now.error_of_difference(then)


# Codes of how points and runs end are fewer than this.
CODES = 16


def restored_search(
    arrays: Arrays, space: Space, initial: Any, steps: tuple[Step, ...], settings: SampleAverage
) -> Search:
    """The search whose leaves were these; refused where these settings could not have led to it."""
    points = np.shape(arrays.get(".iterates.value", 0.0))
    # A start that was given is there twice.
    if len(points) != 1 or not 1 <= points[0] <= settings.starts + 1:
        raise foreign()
    iterates = begin(space, initial)
    iterates = dataclasses.replace(iterates, memory=_memory(below(arrays, ".iterates.memory"), steps, iterates))
    iterates = filled(iterates, below(arrays, ".iterates"), points[0])
    known = any(name.startswith(".incumbent") for name in arrays)
    others = np.shape(arrays.get(".waiting.value", np.zeros(1)))
    if len(others) != 1 or not 1 <= others[0] <= settings.starts + 1:
        raise foreign()
    waits = ".waiting.value" in arrays
    template = Search(
        iterates,
        0.0,
        incumbent=Incumbent(initial, 0.0, 0, np.zeros(ranking_draws(space, settings))) if known else None,
        waiting=filled(begin(space, initial), below(arrays, ".waiting"), others[0]) if waits else None,
    )
    search = filled(template, arrays)
    if not _possible(search, settings):
        raise foreign()
    return search


def _memory(arrays: Arrays, steps: tuple[Step, ...], iterates: Iterates) -> Any:
    """The empty memory of the step that left these arrays; before the first evaluation there is none."""
    memories = [step.blank(iterates) for step in steps]
    return next((memory for memory in memories if named_leaves(memory).keys() == arrays.keys()), None)


def _possible(search: Search, settings: SampleAverage) -> bool:
    """Whether a run could have come here."""
    iterates: Iterates = search.iterates
    codes = np.asarray(iterates.finished)
    values = np.concatenate([np.ravel(leaf) for leaf in tree_leaves(iterates.parameters)])
    ended = [search.done] if search.incumbent is None else [search.done, search.incumbent.code]
    return bool(
        np.all((codes >= GOING) & (codes < CODES))
        and all(0 <= code < CODES for code in ended)
        and np.all(np.isfinite(values))
        and np.all(np.asarray(iterates.idle) >= 0)
        and 0 <= search.stage < settings.stages()
        and search.kind in (0, 1)
        and 0 <= search.iterations < 2**31
        and search.models >= 0
        and iterates.rounds >= 0
        and (iterates.rounds > 0) == (iterates.memory is not None)
        and (search.stage == 0 or search.incumbent is not None)
        and (search.waiting is None or (search.waiting.rounds == 0 and len(iterates.value) == 1 and not search.scoring))
        and (iterates.rounds > 0 or not search.scoring)
        and not (search.scoring and search.done != GOING)
    )
