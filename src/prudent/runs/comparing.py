"""Judge any policy under a problem, and runs against one another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engine import plan
from ..errors import InputError
from ..evaluation import judged
from ..losses import ExpectedCost
from ..objectives import losses_on
from ..problems import AbstractCase, Case, read_problem
from ..records import same as same_policy
from ..report import Difference, EvidenceRecord, PolicyRecord, SolutionRecord
from ..risks import Expectation
from .checkpoint import checkpoint_from, episode_seed
from .folder import ARRAYS, CHECKPOINT, SOLUTION, read_policy, read_run, record_of
from .judging import Evaluator

# A plan is judged before anything is solved on so many draws, in problems of at most so many states.
MEAN_PLAN_DRAWS, MOST_STATES = 1000, 128

# Of a policy from itself; draws that tie would leave something open.
NO_DIFFERENCE = Difference(value=0.0, standard_error=0.0, low=0.0, high=0.0, confidence="exact")


def evaluate_problem(
    policy: Any, problem: str | Path | AbstractCase, *, samples: int | None = None, trust: bool = False
) -> PolicyRecord:
    """Judge any policy on the draws that `solve_problem` reports on: those of the problem's seed.

    Args:
        policy: a CSV, TSV, Parquet or JSON-lines file with `state`, `action` and `probability` (without the last,
            each action is certain), or an array `[S, A]`.
        problem: path of a problem file, or what `read_problem` gave.
        samples: how many draws; those of the file's `solver.evaluation` when left out.
        trust: import the code that the file's `family` names.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     judged = pr.evaluate_problem([[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1]], problem, samples=200)
    >>> judged.risk > judged.mean
    True
    """
    case = problem if isinstance(problem, AbstractCase) else read_problem(problem, trust=trust)
    table, name, facts = policy, "policy", case.require_table("prudent evaluate").facts
    if isinstance(policy, str | Path):
        table, name = read_policy(policy, facts.states, facts.actions), str(policy)
    return _evaluator(case, 0, samples).record(name, table, occupancy=False, stands_on=(facts.states, facts.actions))


def _evaluator(case: AbstractCase, episode: int, samples: int | None) -> Evaluator:
    arguments = case.arguments()
    arguments["seed"] = episode_seed(arguments["seed"], episode)
    return Evaluator(**arguments, evaluation=samples or arguments["solver"].evaluation)


class _MeanPlan(NamedTuple):
    """A plan for the posterior mean, before anything is solved: who judges it, its table, and how it is judged."""

    evaluator: Evaluator
    table: np.ndarray
    found: Any


def _mean_plan(case: Case) -> _MeanPlan | None:
    """Return the plan at the mean and what it costs, for expected costs; None where that takes long."""
    if case.family is not None or case.shape[0] > MOST_STATES:
        return None
    arguments = case.arguments()
    if not isinstance(arguments["loss"], ExpectedCost):
        return None
    model, mean = arguments["model"], np.asarray(arguments["belief"].mean())
    chosen = plan(model.models(mean[None])).action[:, 0]
    table, evaluator = np.eye(model.support.actions)[chosen], Evaluator(**arguments, evaluation=MEAN_PLAN_DRAWS)
    losses = losses_on(evaluator.objective, table[None], evaluator.draws.thetas)[0]
    return _MeanPlan(evaluator, table, judged(evaluator.risk, losses, evaluator.draws))


def evidence_before(case: Case) -> EvidenceRecord | None:
    """What a plan for the posterior mean would stand on, before anything is solved; None where that takes long."""
    plan = _mean_plan(case)
    if plan is None:
        return None
    return plan.evaluator.evidence(plan.table, plan.found, case.facts.states, case.facts.actions)


class RuleChange(NamedTuple):
    """What a rule would change of a plan for the posterior mean, under CVaR 0.9 or whichever risk is asked for.

    Attributes:
        risk_now, risk_then: the risk of each plan under its own belief.
        states: how many states that can be reached under the rule have another action.
    """

    risk_now: float
    risk_then: float
    states: int


def changed_by_rule(case: Case, then: Case) -> RuleChange | None:
    """A problem as it is and with a rule; None where planning takes long."""
    plans = _mean_plan(case), _mean_plan(then)
    if plans[0] is None or plans[1] is None:
        return None
    matters = then.reachable & ~then.terminal
    other = (plans[0].table != plans[1].table).any(axis=1) & matters
    return RuleChange(float(plans[0].found.risk), float(plans[1].found.risk), int(other.sum()))


@dataclass(frozen=True)
class Comparison:
    """A run's policy beside that of the first run, on the same draws of the first run's posterior.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.compare_runs([run.folder])[0].risk_difference.value
    0.0

    Attributes:
        folder: of the run.
        record: what its own `solution.json` says.
        policy: its policy under the first run's problem.
        risk_difference: its risk minus the first run's, draw by draw.
        mean_difference: the mean of its losses minus that of the first run's, draw by draw.
        same_problem: whether it was solved for the same question.
    """

    folder: Path
    record: SolutionRecord
    policy: PolicyRecord
    risk_difference: Difference
    mean_difference: Difference
    same_problem: bool


def compare_runs(folders: Any, *, samples: int | None = None, trust: bool = False) -> list[Comparison]:
    """The policies of several runs under the problem of the first, on the same fresh draws.

    Args:
        folders: of runs with the same states and actions.
        samples: how many draws; those of the first run when left out.
        trust: import the code that the first run's `family` names.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     for level in (0.0, 0.9):
    ...         changes = {"risk.level": level, "solver.iterations": 3}
    ...         run = pr.solve_problem(problem, f"{folder}/{level}", report=False, changes=changes)
    ...     [row.same_problem for row in pr.compare_runs([f"{folder}/0.0", f"{folder}/0.9"])]
    [True, False]
    """
    folders = [Path(folder) for folder in folders]
    if not folders:
        raise InputError("compare needs the folder of at least one run")
    readings = [read_run(folder, (SOLUTION, ARRAYS, CHECKPOINT)) for folder in folders]
    records = [record_of(read, folder) for read, folder in zip(readings, folders, strict=True)]
    first = records[0]
    for folder, other in zip(folders, records, strict=True):
        if other.names != first.names:
            raise InputError(f"{folder}: has other states or actions than {folders[0]}; compare runs of one problem")
    saved = checkpoint_from(readings[0].contents[CHECKPOINT], folders[0] / CHECKPOINT, trust)
    evaluator = _evaluator(saved.case, saved.episode, samples)
    deployed = [_policy_of(record) for record in records]
    policies = [
        evaluator.record(str(folder), policy, occupancy=False) for folder, policy in zip(folders, deployed, strict=True)
    ]
    rows = []
    for folder, record, policy, own in zip(folders, records, policies, deployed, strict=True):
        both = policy.losses, policies[0].losses
        apart = evaluator.difference(*both), evaluator.difference(*both, risk=Expectation())
        if same_policy(own, deployed[0]):
            apart = NO_DIFFERENCE, NO_DIFFERENCE
        same = record.problem.digest == first.problem.digest
        rows.append(Comparison(folder, record, policy, *apart, same))
    return rows


def _policy_of(record: SolutionRecord) -> Any:
    """What was deployed: a table of probabilities, or a gain."""
    if record.linear is None:
        return record.probabilities
    from ..linear import LinearGaussianPolicy

    return LinearGaussianPolicy(record.linear.gain, record.linear.bias)
