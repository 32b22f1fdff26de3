"""Is the stated risk kept? Beliefs held against environments whose kernels are known.

A log of random actions, a belief of each kind, the policy of least CVaR 0.9 under it: the promise is kept where the
policy's loss in the environment is at most the CVaR that was stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent.arrays import to_numpy

from .known import KNOWN, KnownEnvironment, known_environment
from .work import Backend, RunFolder, Unit, open_folder, run_units

LEVEL = 0.9
SIZES = (100, 500, 3000)

# Draws for the plan and for the risk stated; of large models fewer, which are solved by sweeps.
DRAWS, EVALUATION, STARTS = 256, 1000, 3
LARGE, DRAWS_OF_LARGE, EVALUATION_OF_LARGE = 40, 128, 500

# A plan need not be better than its stated risk is known.
TOLERANCE, ITERATIONS = 1e-3, 40

# A loss above the stated risk by no more than rounding keeps the promise.
ROUNDING = 1e-9


class Question(NamedTuple):
    """What a candidate makes a belief of.

    Attributes:
        known: the environment; a candidate may look at its terminal states, its grid and which moves are possible,
            as it says, and at nothing else.
        log: the random walk.
    """

    known: KnownEnvironment
    log: pr.Transitions

    def counts(self) -> Float[np.ndarray, "S A S"]:
        """How often each move was seen."""
        counts = np.zeros(self.known.table.shape)
        place = tuple(np.asarray(part) for part in (self.log.state, self.log.action, self.log.next_state))
        np.add.at(counts, place, np.asarray(self.log.count))
        return counts

    def dirichlet(self, possible: Float[np.ndarray, "S A S"]) -> pr.Dirichlet:
        """Pseudo-count 1 where a pair may lead, and everywhere for a pair of which nothing is known."""
        support = open_support(self.known.name)
        possible = np.where(possible.any(axis=2, keepdims=True), possible, True)
        prior = np.take_along_axis(possible, support.index().astype(int), axis=2) & support.allowed()
        return pr.Dirichlet(support, prior.astype(float), np.zeros(support.shape)).update(self.log)


def _observed(question: Question) -> pr.Dirichlet:
    return question.dirichlet(question.counts() > 0)


def _all(question: Question) -> pr.Dirichlet:
    return question.dirichlet(np.ones(question.known.table.shape, dtype=bool))


def _neighbours(question: Question) -> pr.Dirichlet:
    seen = question.counts().sum(axis=1, keepdims=True) > 0
    return question.dirichlet(np.broadcast_to(seen, question.known.table.shape))


def _listed(question: Question) -> pr.Dirichlet:
    return question.dirichlet(np.asarray(question.known.table) > 0)


def _pooled(question: Question) -> pr.Pooled:
    return pr.Pooled(open_support(question.known.name)).update(question.log)


def _known(question: Question) -> pr.Dirichlet:
    return pr.Dirichlet.symmetric(known_support(question.known.name)).update(question.log)


def _pooled_known(question: Question) -> pr.Pooled:
    return pr.Pooled(known_support(question.known.name), grid=question.known.grid).update(question.log)


def _pooled_no_grid(question: Question) -> pr.Pooled:
    return pr.Pooled(known_support(question.known.name)).update(question.log)


def _pooled_better(question: Question) -> pr.Pooled:
    return pr.Pooled(lucky_support(question.known.name, better=True), grid=question.known.grid).update(question.log)


def _pooled_worse(question: Question) -> pr.Pooled:
    return pr.Pooled(lucky_support(question.known.name, better=False), grid=question.known.grid).update(question.log)


#: By name, how each belief is made of a log.
CANDIDATES: dict[str, Callable[[Question], pr.Dirichlet | pr.Pooled]] = {
    "pooled": _pooled,
    "known": _known,
    "pooled, known": _pooled_known,
    "listed": _listed,
    "observed": _observed,
    "neighbours": _neighbours,
    "all": _all,
}

#: Beliefs that no user could have, solved where they are asked for by name: what makes the list's plans cautious?
PROBES: dict[str, Callable[[Question], pr.Dirichlet | pr.Pooled]] = {
    "pooled, known, no grid": _pooled_no_grid,
    "pooled, known or better": _pooled_better,
    "pooled, known or worse": _pooled_worse,
}

MEANINGS = {
    "pooled": "the default: any state may follow, rows learn from one another",
    "known": "the rule or list that a user would know of the environment, independent rows, pseudo-count 1",
    "pooled, known": "the same with rows that learn from one another, and the grid if there is one",
    "listed": "the possible successors listed, independent rows, pseudo-count 1",
    "observed": "the successors in the log, any state for a pair never seen",
    "neighbours": "the successors of the state in the log, by any action",
    "all": "any state, independent rows, pseudo-count 1",
    "pooled, known, no grid": "pooled, known, without the grid",
    "pooled, known or better": "pooled, known, and any state that is in truth better than what the pair leads to",
    "pooled, known or worse": "pooled, known, and any state that is in truth no better than what the pair leads to",
}


@cache
def environment(name: str) -> KnownEnvironment:
    """One of the known environments by the name it is printed under or made by; made once."""
    for made in KNOWN:
        if name in (made, known_environment(made).name):
            return known_environment(made)
    return known_environment(name)


@cache
def open_support(name: str) -> pr.Support:
    """Any state may follow, but of a terminal state itself: what a user says who says nothing of successors."""
    known = environment(name)
    states, actions = known.shape
    if not known.terminal:
        return pr.Support.dense(states, actions)
    lists = [[[s] if s in known.terminal else list(range(states))] * actions for s in range(states)]
    return pr.Support.lists(lists)


@cache
def known_support(name: str) -> pr.Support:
    """The moves that one who works with the environment would call possible; nothing follows a terminal state."""
    known = environment(name)
    support = known.known_support()
    ends = known.terminal
    rows = [
        [[s] if s in ends else support.index()[s, a][support.allowed()[s, a]].tolist() for a in range(known.shape[1])]
        for s in range(known.shape[0])
    ]
    return pr.Support.lists(rows)


@cache
def lucky_support(name: str, better: bool) -> pr.Support:
    """What is known to be possible, and all states that are better, or no better, than what the pair leads to."""
    known, listed = environment(name), known_support(name)
    states, actions = known.shape
    values = np.asarray(pr.plan(known.mdp()).values)
    good = values < (np.asarray(known.table) @ values)[..., None]
    rows = [
        [
            sorted(
                {*listed.index()[s, a][listed.allowed()[s, a]].tolist(), *np.flatnonzero(good[s, a] == better).tolist()}
            )
            if s not in known.terminal
            else [s]
            for a in range(actions)
        ]
        for s in range(states)
    ]
    return pr.Support.lists(rows)


@cache
def truth(name: str) -> tuple[float, float]:
    """The least loss there is, and that of uniform actions."""
    known = environment(name)
    best = pr.plan(known.mdp()).policy
    uniform = pr.TabularPolicy(np.full(known.shape, 1.0 / known.shape[1]))
    return true_loss(known, best), true_loss(known, uniform)


def true_loss(known: KnownEnvironment, policy: pr.TabularPolicy) -> float:
    """Discounted cost in the environment."""
    mdp = known.mdp()
    model = pr.TabularFamily(
        pr.Support.dense(*known.shape), np.asarray(mdp.cost), np.asarray(mdp.start), known.discount
    )
    return float(pr.loss_at(policy, model, np.asarray(known.table)))


def promise(name: str, size: int, candidate: str, log: int, seed: int, full: bool = False) -> dict[str, Any]:
    """What one belief of one log states, and what the environment makes of it.

    Args:
        name: of the environment.
        size: steps of the log.
        candidate: one of `CANDIDATES` or `PROBES`.
        log: which of the logs of this size.
        seed: of the whole study.
        full: solve as `prudent.solve` does when nothing is said, which takes longer.
    """
    known = environment(name)
    # The same log for every candidate, and another for every size.
    words = np.random.SeedSequence([seed, size, log]).generate_state(1)
    question = Question(known, known.walk(size, int(words[0])))
    belief = (CANDIDATES | PROBES)[candidate](question)
    support = belief.support
    model = pr.TabularFamily(support, _costs(known, support), np.asarray(known.mdp().start), known.discount)
    solver = pr.SampleAverage(evaluation=EVALUATION) if full else _solver(known)
    settings: dict[str, Any] = {"solver": solver, "seed": log, "progress": False, "certify": False}
    solution = pr.solve(model, belief, risk=pr.CVaR(LEVEL), **settings)
    stated, table = solution.evaluation, np.asarray(solution.policy.probabilities)
    evidence = model.objective().evidence(belief, pr.CVaR(LEVEL), table, stated, log)
    least, uniform = truth(name)
    loss = true_loss(known, solution.policy)
    mean = to_numpy(belief.mean())
    plans = {"mean": mean, "likelihood": belief.maximum_likelihood(unseen=mean)}
    regrets = {how: true_loss(known, _planned(known, support, table)) - least for how, table in plans.items()}
    return {
        "environment": name,
        "steps": size,
        "candidate": candidate,
        "log": log,
        "full": full,
        "stated": float(solution.risk),
        "stated_error": float(solution.risk_standard_error),
        "loss": loss,
        "optimum": least,
        "uniform": uniform,
        "kept": bool(loss <= solution.risk + ROUNDING * max(abs(loss), abs(uniform - least))),
        "regret": (loss - least) / (uniform - least),
        "slack": (float(solution.risk) - loss) / (uniform - least),
        "regret_likelihood": regrets["likelihood"] / (uniform - least),
        "regret_mean": regrets["mean"] / (uniform - least),
        "warning": None if evidence.word is None else evidence.word.name.lower(),
        "exceeded": evidence.exceeded,
        "own": evidence.own,
        "tail_time": evidence.tail_time,
        "status": solution.status.name,
    }


def _solver(known: KnownEnvironment) -> pr.SampleAverage:
    large = known.shape[0] > LARGE
    draws = DRAWS_OF_LARGE if large else DRAWS
    evaluation = EVALUATION_OF_LARGE if large else EVALUATION
    # Natural steps need no linear programs, which are most of the time of a solve, and end no higher.
    return pr.SampleAverage(
        samples=draws,
        largest=draws,
        starts=STARTS,
        evaluation=evaluation,
        step=pr.NaturalGradient(),
        tolerance=TOLERANCE,
        iterations=ITERATIONS,
    )


def _costs(known: KnownEnvironment, support: pr.Support) -> np.ndarray:
    cost = np.asarray(known.cost)
    if cost.ndim == 2:
        return cost
    return np.where(support.allowed(), np.take_along_axis(cost, support.index().astype(int), axis=2), 0.0)


def _planned(known: KnownEnvironment, support: pr.Support, table: Any) -> pr.TabularPolicy:
    kernel = pr.Kernel(support, table)
    cost = np.asarray(known.cost)
    if cost.ndim == 3:
        cost = (_costs(known, support) * np.asarray(table)).sum(axis=2)
    return pr.plan(pr.MDP(kernel, cost, np.asarray(known.mdp().start), known.discount)).policy


def units_of(
    environments: Sequence[str],
    sizes: Sequence[int],
    candidates: Sequence[str],
    replications: int,
    seed: int,
    full: bool = False,
) -> list[Unit]:
    """One unit for each belief of each log; the first logs of everything come first, so that a part is a sample.

    With `full`, each of them is solved the longer way, too.
    """
    return [
        Unit(
            f"{name}/{size}/{candidate.replace(', ', '-')}{'/full' * longer}/{log}",
            promise,
            {"name": name, "size": size, "candidate": candidate, "log": log, "seed": seed, "full": longer},
            compiled=True,
            cost=10.0 if environment(name).shape[0] <= LARGE else 60.0,
        )
        for log in range(replications)
        for name in environments
        for candidate in candidates
        for size in sizes
        for longer in ((False, True) if full else (False,))
    ]


def begin(out: str | Path, seed: int) -> tuple[RunFolder, list[str]]:
    """The folder of a study. A later call may ask for more logs, environments or candidates: its units are kept."""
    return open_folder(out, {"study": "promise", "seed": seed, "level": LEVEL}, {"candidates": MEANINGS})


def run_study(folder: RunFolder, units: Sequence[Unit], advance: Callable[[Unit], None]) -> list[dict[str, Any]]:
    """Make what is missing, and write the records of these units as JSON and Parquet."""
    run_units(units, folder, Backend(), advance)
    records = finished(folder, units)
    folder.write_results("promise", records)
    return records


def finished(folder: RunFolder, units: Sequence[Unit]) -> list[dict[str, Any]]:
    """The records there are."""
    found = [folder.record(unit.name) for unit in units]
    return [record["values"] for record in found if record is not None]


def chosen(given: Sequence[str] | None, there: Sequence[str], what: str, more: Sequence[str] = ()) -> list[str]:
    """Those asked for, or all there are but those `more`; refuses one that is not."""
    for name in given or []:
        if name not in (*there, *more):
            raise pr.InputError(f"there is no {what} {name!r}; there are {', '.join(map(repr, (*there, *more)))}")
    return list(given or there)
