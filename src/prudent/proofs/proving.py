"""`prove`: how much better than a policy any stationary policy could be, by branch and bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from ..arrays import in_float64, require_kind, require_number, require_size
from ..errors import InputError
from ..evaluation import check_question, in_columns, judge, usual_draws
from ..objectives import Objective, Unit, objective_of
from ..posteriors import Posterior, WeightedDraws, equally_weighted
from ..records import Record, field
from ..risks import CVaR, Risk
from ..seeds import Seed, as_seed
from ..solvers import Solution, digest_of, fresh_draws
from .search import BranchAndBound, Moment, SearchedSample, check_measure
from .tree import Cuts, Tree

EPSILON = float(np.finfo(np.float64).eps)

# Chance that either limit of the optimum's interval is missed.
MISSED = 0.025


class Replicate(NamedTuple):
    """One sample of the posterior, searched by itself: the best policy's risk on it, and a bound of all policies'."""

    risk: float
    lower_bound: float


class Proof(Record):
    """The best stationary policy found, and what no stationary policy can beat.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> proof = pr.prove(lake, pr.Draws([[0.1, 0.2], [0.4, 0.1]]), risk=pr.CVaR(0.5), seconds=20.0)
    >>> proof.lower_bound <= proof.risk, proof.gap <= 1e-3 * proof.risk, proof.exact
    (True, True, True)

    Attributes:
        policy: the best policy found; it may be better than the one the search began at.
        risk: of the policy on the draws.
        lower_bound: no stationary policy (no deterministic one, if only these count) has less risk on the draws.
        known_bound: `rho(min_pi C(pi, theta))`, which policies that are told theta cannot beat, either.
        draws: on which all this is proved; the whole posterior where `exact`.
        aim: the gap that was asked for, as a share of the risk.
        deterministic: whether only deterministic policies count.
        reason: why the search stopped.
        nodes: boxes that were bounded.
        seconds: wall time.
        history: seconds, boxes, bound and risk, round by round.
        optimum: limits between which the least risk under the whole posterior lies with 95 % confidence; the bound and
            the risk themselves where the draws are the posterior, None where several samples would be needed.
        replicates: risk and bound on each of several samples.
        cuts: the boxes, from which a verifier can check the bound and `resume=` goes on.
        objective, measure: what was proved of, the loss and the risk.
    """

    policy: Any
    risk: float
    lower_bound: float
    known_bound: float
    draws: WeightedDraws
    aim: float
    deterministic: bool = field(static=True)
    reason: str = field(static=True)
    nodes: int
    seconds: float
    history: tuple[Moment, ...]
    optimum: tuple[float, float] | None
    replicates: tuple[Replicate, ...]
    cuts: Cuts
    objective: Objective
    measure: Risk

    @property
    def gap(self) -> float:
        """What another policy could gain at most."""
        return self.risk - self.lower_bound

    @property
    def met(self) -> bool:
        """Whether the gap is as small as was asked for, up to rounding."""
        rounding = 1e-12 * max(abs(self.risk), abs(self.lower_bound))
        return self.gap <= self.aim * abs(self.risk) + rounding

    @property
    def exact(self) -> bool:
        """Whether the draws are the whole posterior."""
        return self.draws.exact

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the printed summary, as (label, text)."""
        kind = "deterministic" if self.deterministic else "stationary"
        on = f"all {len(self.draws)} atoms" if self.exact else f"these {len(self.draws)} draws"
        share = f", {self.gap / abs(self.risk):.3%} of the risk" if self.risk != 0.0 else ""
        aim = f"the aim, {self.aim:.3%} of the risk, was {'' if self.met else 'not '}met"
        told = self.risk - self.known_bound
        return [
            ("risk", f"{self.risk:.6g} of the best {kind} policy found, on {on}"),
            ("lower bound", f"{self.lower_bound:.6g}: on {on} no {kind} policy has less"),
            ("gap", f"proved to {self.gap:.4g}{share}; {aim}"),
            ("knowing theta", f"gains {told:.4g} at most: nothing is below {self.known_bound:.6g} then"),
            *self._optimum_rows(),
            ("search", f"{self.nodes} boxes in {self.seconds:.1f} s; stopped because {self.reason}"),
        ]

    def _optimum_rows(self) -> list[tuple[str, str]]:
        if self.exact:
            return []
        if self.optimum is None:
            return [("posterior", f"nothing is said of it: {self._no_optimum()}")]
        low, high = self.optimum
        samples = len(self.replicates)
        return [("optimum", f"{low:.6g} to {high:.6g} under the whole posterior (95 %, {samples} samples)")]

    def _no_optimum(self) -> str:
        if len(self.replicates) < 2:
            return "that takes at least 2 replications (--replications, replications=)"
        if not self.measure.biased_low:
            return "the risk of a sample need not be below that of the posterior on average"
        return "the draws are too few to tell, or are of a posterior that is itself a sample"

    def __str__(self) -> str:
        return in_columns(self.rows())


@in_float64
def prove(
    model: Any,
    belief: Posterior,
    *,
    risk: Risk | None = None,
    loss: Any = None,
    start: Solution | Any = None,
    gap: float = 1e-3,
    seconds: float = 60.0,
    nodes: int | None = None,
    deterministic: bool = False,
    samples: int = 64,
    replications: int = 1,
    seed: Seed = 0,
    resume: Proof | None = None,
    workers: int | None = None,
    progress: Callable[[Moment], None] | None = None,
) -> Proof:
    """Search all stationary policies until the best one found is proved good enough, or time is up.

    Policies are split into boxes `low <= pi(a | s) <= high`. In a box each theta may have the policy that suits it
    best; for a monotone risk, the risk of these least losses is below that of every policy in the box. Boxes are cut
    where the thetas' policies disagree most, and those above the best policy found are done with.

    Args:
        model: the family of models, or an `Objective` over tables of at most 48 states.
        belief: posterior of theta. One of few atoms is used whole, and the proof is of the true optimum; of any other,
            the proof is of the optimum on a sample of it.
        risk: monotone; `CVaR(0.9)` when left out.
        loss: convex in the occupancy; expected discounted cost when left out.
        start: a solution or policy to begin at; solved for when left out.
        gap: stop at this share of the risk.
        seconds: or after searching so long; what comes before, a solution and compilation, is not counted.
        nodes: or after so many boxes.
        deterministic: look for the best deterministic policy, and prove that.
        samples: draws of a posterior that is not a few atoms.
        replications: independent samples of such a posterior, from which `optimum` says what holds of all of it; the
            time is shared among them.
        seed: of the samples.
        resume: a proof of the same question to go on from, at its policy and on its draws.
        workers: threads; as many as there are processors when left out.
        progress: called with every round's `Moment`.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> proof = pr.prove(lake, pr.Draws([[0.1, 0.2], [0.4, 0.1]]), deterministic=True, seconds=20.0)
    >>> proof.reason, sorted(set(proof.policy.probabilities.ravel().tolist()))
    ('the gap is as small as asked for', [0.0, 1.0])
    """
    clock = time.perf_counter()
    risk = CVaR(0.9) if risk is None else risk
    objective = objective_of(model, loss, None, None)
    check_question(objective, [belief], [risk])
    gap, seconds = float(require_number("gap", gap, "[0, inf)")), float(require_number("seconds", seconds, "(0, inf]"))
    nodes = None if nodes is None else require_size("nodes", nodes)
    samples, replications = require_size("samples", samples), require_size("replications", replications)
    seed = as_seed(seed)
    check_measure(risk)
    if resume is not None:
        _require_same(resume, objective, belief, risk, deterministic, replications)
    if belief.as_atoms() is not None:
        replications = 1
    threads = require_size("workers", workers or os.cpu_count() or 1)
    limits = _Limits(gap, seconds / replications, nodes)
    with ThreadPoolExecutor(threads) as pool:
        found = []
        for number in range(replications):
            draws = resume.draws if resume is not None else fresh_draws(belief, seed, samples, number)
            case = SearchedSample(objective, risk, draws, deterministic, resume if start is None else start)
            cuts = None
            if resume is not None and number == 0:
                bound = (resume.cuts.bound - case.unit.offset) / case.unit.scale
                cuts = Tree(case.start.shape, deterministic, resume.cuts._replace(bound=bound))
            search = BranchAndBound(case, cuts, pool.map, threads)
            found.append((search, _searched(search, limits, progress)))
    return _proof(found, belief, seed, gap, time.perf_counter() - clock)


def _require_same(
    resume: Proof, objective: Objective, belief: Posterior, risk: Risk, deterministic: bool, replications: int
) -> None:
    """Refuse to go on from a proof of another question: its bounds would be taken for this one's."""
    require_kind("resume", resume, Proof, "a Proof of the same question")
    atoms = belief.as_atoms()
    same = {
        "model": digest_of(objective) == digest_of(resume.objective),
        "risk": digest_of(risk) == digest_of(resume.measure),
        "kind of policy": deterministic == resume.deterministic,
        "belief": (atoms is not None) == resume.exact
        and (atoms is None or all(np.array_equal(*pair) for pair in zip(atoms[:2], resume.draws[:2], strict=True))),
    }
    for name, alike in same.items():
        if not alike:
            raise InputError(f"resume needs the {name} of the first call, this one is another; leave resume= out")
    if replications > 1:
        raise InputError("resume goes on with one sample; leave replications= out, or begin again without resume=")


class _Limits(NamedTuple):
    """When a search ends: at a gap as a share of the risk, after seconds, after boxes."""

    gap: float
    seconds: float
    nodes: int | None


def _searched(search: BranchAndBound, limits: _Limits, progress: Callable[[Moment], None] | None) -> str:
    """Search up to the limits; why it ended."""
    clock, unit = time.perf_counter(), search.case.unit

    def enough() -> float:
        return limits.gap * abs(unit.loss(search.incumbent.risk)) / unit.scale

    for moment in search.rounds(enough()):
        if progress is not None:
            progress(_in_loss(moment, unit))
        if search.gap <= enough():
            break
        if time.perf_counter() - clock > limits.seconds:
            return "time was up"
        if limits.nodes is not None and len(search.tree) >= limits.nodes:
            return "all boxes asked for were made"
    if search.gap <= enough():
        return "the gap is as small as asked for"
    return "no box can be cut any further within rounding"


def _proof(found: list[tuple[BranchAndBound, str]], belief: Posterior, seed: Seed, aim: float, seconds: float) -> Proof:
    search, reason = found[0]
    case, unit, searches = search.case, search.case.unit, [each for each, _ in found]
    replicates = tuple(_replicate(each) for each in searches)
    risk, bound = replicates[0]
    optimum = (bound, risk) if case.draws.exact else None
    # Limits of a posterior that is itself a sample would have to be as wide as its own error.
    if not case.draws.exact and len(replicates) > 1 and case.risk.biased_low and np.isinf(case.draws.behind):
        optimum = _optimum(replicates, searches, belief, seed)
    cuts = search.tree.cuts()
    return Proof(
        policy=case.own.policy(search.incumbent.table),
        risk=risk,
        lower_bound=bound,
        known_bound=min(float(_lower(unit, search.root_bound)), bound),
        draws=case.draws,
        aim=aim,
        deterministic=case.deterministic,
        reason=reason,
        nodes=sum(len(each.tree) for each in searches),
        seconds=seconds,
        history=tuple(_in_loss(moment, unit) for moment in search.history),
        optimum=optimum,
        replicates=replicates,
        cuts=cuts._replace(bound=_lower(unit, cuts.bound)),
        objective=case.own,
        measure=case.risk,
    )


def _replicate(search: BranchAndBound) -> Replicate:
    unit = search.case.unit
    risk = float(unit.loss(search.incumbent.risk))
    return Replicate(risk, min(float(_lower(unit, search.bound)), risk))


def _lower(unit: Unit, bound: Any) -> Any:
    """Bounds in the user's units, less the rounding of the change there and, resumed, back."""
    return unit.loss(bound) - 8.0 * EPSILON * (abs(unit.offset) + unit.scale * np.abs(bound))


def _optimum(
    replicates: tuple[Replicate, ...], searches: list[BranchAndBound], belief: Posterior, seed: Seed
) -> tuple[float, float] | None:
    """95 % limits of the least risk under the posterior.

    The least risk on a sample is below that of the posterior on average, so Student's lower limit of its bounds is one.
    The risk of any policy on fresh draws is above: that of the replications' tables that does best on other draws.
    """
    case, tables = searches[0].case, [each.incumbent.table for each in searches]
    bounds, count = np.array([replicate.lower_bound for replicate in replicates]), len(replicates)
    low = bounds.mean() - stdtrit(count - 1, 1.0 - MISSED) * bounds.std(ddof=1) / np.sqrt(count)
    draws = fresh_draws(belief, seed, usual_draws(case.own, case.risk))
    half = draws.first(len(draws) // 2)
    risks = [judge(case.own, case.risk, table, half).risk for table in tables]
    best = tables[int(np.argmin(risks))]
    # Chosen on other draws than it is judged on.
    rest = equally_weighted(draws.thetas[len(half) :], draws.behind)
    high = judge(case.own, case.risk, best, rest).interval[1]
    return (float(low), float(high)) if np.isfinite([low, high]).all() else None


def _in_loss(moment: Moment, unit: Unit) -> Moment:
    return moment._replace(bound=float(unit.loss(moment.bound)), risk=float(unit.loss(moment.risk)))
