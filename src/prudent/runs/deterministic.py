"""The best deterministic policy found: one action in each state, chosen on draws that are not reported on.

The actions that the policy, its rivals and the plan at the posterior mean take most begin the search. Then single
states, and several at once, change their action in the order of what that gains to first order, as long as the risk
falls. So few policies that they can be listed are all looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from ..arrays import in_float64
from ..baselines import plug_in
from ..errors import InputError
from ..objectives import losses_on
from ..report import PolicyRecord
from .judging import Evaluator, same_where_met, slopes_of_risk

# Up to this many deterministic policies are all looked at.
MOST_LISTED = 256

# Policies judged in one compiled call.
AT_ONCE = 16

# Bytes of the models that a search may look at, where they are factorised and where they are solved by iteration. They
# depend on the problem alone and not on the time they take, since the answer depends on them.
WORK = {True: 2**30, False: 2**28}

# Draws of the search: so many that a few batches of policies can be judged, within these limits.
FEWEST_DRAWS, MOST_DRAWS, BATCHES = 40, 1000, 4

# A fall of the risk by less than this share of the losses' size is rounding.
ROUNDING = 1e-10


class _Search:
    """Policies `[K, S]` of one action a state, judged on the draws set aside."""

    def __init__(self, evaluator: Evaluator):
        self.evaluator, self.objective, self.risk = evaluator, evaluator.objective, evaluator.risk
        size = self.objective.size()
        models = WORK[size.cached] // size.bytes
        draws = int(np.clip(models // (BATCHES * AT_ONCE), FEWEST_DRAWS, MOST_DRAWS))
        self.thetas, self.share, *_ = evaluator.aside(draws)
        self.left = max(AT_ONCE, models // len(self.thetas))

    def tables(self, choices: Int[np.ndarray, "K S"]) -> Float[np.ndarray, "K S A"]:
        return np.eye(self.objective.shape[1])[choices]

    def losses(self, choices: Int[np.ndarray, "K S"]) -> Float[np.ndarray, "K M"]:
        self.left -= len(choices)
        return losses_on(self.objective, self.tables(choices), self.thetas)

    def risks(self, choices: Int[np.ndarray, "K S"]) -> Float[np.ndarray, " K"]:
        def risk(losses: np.ndarray) -> float:
            return float(self.risk(losses, self.share).value) if np.all(np.isfinite(losses)) else np.inf

        return np.array([risk(losses) for losses in self.losses(choices)])

    def gains(self, choice: Int[np.ndarray, " S"]) -> Float[np.ndarray, "S A"]:
        """What each action instead of the one taken adds to the risk, to first order."""
        table, losses = self.tables(choice[None])[0], self.losses(choice[None])[0]
        slope = slopes_of_risk(self.evaluator, table, losses, (self.thetas, self.share))
        return slope - np.take_along_axis(slope, choice[:, None], axis=1)


@in_float64
def best_deterministic(evaluator: Evaluator, policies: list[PolicyRecord]) -> PolicyRecord:
    """The best deterministic policy found, judged on the reported draws beside the first of the policies.

    A converged or chosen policy that leaves nothing to chance is itself the one.
    """
    answer, alone = policies[0], {"beside": policies[0], "kind": "deterministic"}
    if answer.status in ("CONVERGED", "PLAN_KEPT") and answer.probabilities is not None:
        certain = np.eye(evaluator.objective.shape[1])[np.asarray(answer.probabilities).argmax(axis=1)]
        if same_where_met(answer, certain):
            return evaluator.record("deterministic policy", certain, **alone)
    search = _Search(evaluator)
    given = [policy.probabilities for policy in policies if policy.probabilities is not None]
    first = np.unique([table.argmax(axis=1) for table in [*given, *_planned(evaluator)]], axis=0)
    own = given[0].argmax(axis=1)
    states, actions = evaluator.objective.shape
    if states * np.log(actions) <= np.log(MOST_LISTED):
        first = np.array(list(itertools.product(range(actions), repeat=states)))
        choice = first[int(search.risks(first).argmin())]
    else:
        choice = _descended(search, first)
    # Where it never comes, the policy's own action is as good as any.
    table = search.tables(choice[None])[0]
    visits = evaluator.objective.mean_occupancies(table, search.thetas, search.share[None])[0].sum(axis=1)
    choice = np.where(visits > 0.0, choice, own)
    table = search.tables(choice[None])[0]
    return evaluator.record("deterministic policy", table, **alone)


def _planned(evaluator: Evaluator) -> list[Float[np.ndarray, "S A"]]:
    """The plan at the posterior mean, where there is one: a run without rivals begins there, too."""
    parts = {"loss": evaluator.objective.loss, "risk": evaluator.risk, "seed": evaluator.seed}
    try:
        plan = plug_in(evaluator.objective.family, evaluator.belief, evaluation=2, **parts)
    except InputError:
        return []
    return [np.asarray(plan.policy.probabilities)]


def _descended(search: _Search, first: Int[np.ndarray, "K S"]) -> Int[np.ndarray, " S"]:
    """The best of several policies, with one action after another changed while the risk falls."""
    values = search.risks(first)
    choice, value = first[int(values.argmin())], float(values.min())
    falls = True
    while falls and search.left > 0:
        falls = False
        changes = _changes(choice, search.gains(choice))
        while not falls and search.left > 0 and (batch := list(itertools.islice(changes, AT_ONCE))):
            found = search.risks(np.stack(batch))
            best = int(found.argmin())
            if found[best] < value - ROUNDING * abs(value):
                choice, value, falls = batch[best], float(found[best]), True
    return choice


def _changes(choice: Int[np.ndarray, " S"], gains: Float[np.ndarray, "S A"]) -> Iterator[Int[np.ndarray, " S"]]:
    """Changed policies, the most promising first: the best actions of 2, 4, 8, ... states at once, then single ones."""
    actions = gains.shape[1]
    order = np.argsort(gains.min(axis=1), kind="stable")
    order = order[gains.min(axis=1)[order] < 0.0]
    for power in range(1, len(order).bit_length() + 1):
        several = choice.copy()
        several[order[: 2**power]] = gains.argmin(axis=1)[order[: 2**power]]
        yield several
    for pair in np.argsort(gains, axis=None, kind="stable"):
        state, action = divmod(int(pair), actions)
        if action != choice[state]:
            single = choice.copy()
            single[state] = action
            yield single
