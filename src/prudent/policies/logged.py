"""Today's practice, estimated from a log state by state."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

from ..arrays import Array
from ..errors import InputError
from ..records import Record, field
from ..seeds import Seed, generator
from ..transitions import Log, Transitions
from .tabular_policy import TabularPolicy

# Rows that the pooled action shares may count for in each state; one of these is chosen by its likelihood.
WEIGHTS = np.geomspace(0.01, 1000.0, 101)


class LoggedPolicy(Record):
    """The policy that made a log: action shares by state, with what is uncertain about them.

    The shares of a state follow a Dirichlet law. Before the log its mean is the pooled action shares `q`, worth
    `weight` rows; after the log its parameters are `counts[s] + weight * q`. A state that the log does not visit keeps
    the pooled shares.

    >>> import prudent as pr
    >>> log = pr.Transitions.from_records([(0, 1, 0)] * 30 + [(1, 0, 1)] * 20, states=3, actions=2)
    >>> today = pr.policy_of_log(log)
    >>> today.visited.tolist(), today.draw(0, 100).shape
    ([True, True, False], (100, 3, 2))

    Attributes:
        policy: the mean shares.
        counts: `[S, A]` rows of each pair.
        pooled: `[A]` action shares of the whole log.
        weight: rows that the pooled shares count for in each state, of the largest likelihood.
    """

    policy: TabularPolicy
    counts: Float[Array, "S A"]
    pooled: Float[Array, " A"]
    weight: float = field(static=True)

    @property
    def visited(self) -> Bool[np.ndarray, " S"]:
        """Return which states have a row of the log."""
        return np.asarray(self.counts).sum(axis=1) > 0

    def draw(self, seed: Seed, n: int) -> Float[np.ndarray, "n S A"]:
        """Return `n` tables drawn from what is believed of the policy."""
        # An action that the log never shows has no share anywhere.
        parameters = np.maximum(self.counts + self.weight * self.pooled, 1e-300)
        shares = generator(seed).standard_gamma(parameters, size=(n, *parameters.shape))
        total = shares.sum(axis=2, keepdims=True)
        return np.where(total > 0, shares / np.where(total > 0, total, 1.0), self.policy.probabilities)


def policy_of_log(log: Transitions | Log) -> LoggedPolicy:
    """Estimate the policy that made a log.

    >>> import prudent as pr
    >>> rows = [(0, 1, 0)] * 30 + [(1, 0, 1)] * 20 + [(1, 1, 0)] * 10
    >>> today = pr.policy_of_log(pr.Transitions.from_records(rows, states=3, actions=2))
    >>> today.policy.probabilities.round(2).tolist(), today.visited.tolist()
    ([[0.01, 0.99], [0.66, 0.34], [0.33, 0.67]], [True, True, False])

    Args:
        log: transitions with their counts, or what `read_log` gives, whose names the policy then has.
    """
    rows = log.transitions if isinstance(log, Log) else log
    if not isinstance(rows, Transitions):
        raise InputError(f"a policy is estimated from a log of transitions, got {type(log).__name__}")
    counts = np.zeros((rows.states, rows.actions))
    np.add.at(counts, (np.asarray(rows.state), np.asarray(rows.action)), np.asarray(rows.count))
    if not counts.sum() > 0:
        raise InputError("the log has no row, so that it does not show what is done today; give the policy")
    pooled = counts.sum(axis=0) / counts.sum()
    weight = float(WEIGHTS[np.argmax([_log_likelihood(counts, weight * pooled) for weight in WEIGHTS])])
    shares = counts + weight * pooled
    policy = TabularPolicy(shares / shares.sum(axis=1, keepdims=True))
    if isinstance(log, Log):
        policy = policy.named(log.support().labels)
    return LoggedPolicy(policy, counts, pooled, weight)


def _log_likelihood(counts: Float[np.ndarray, "S A"], parameters: Float[np.ndarray, " A"]) -> float:
    """Return the log likelihood of the rows of each state in their order, under Dirichlet shares of each state."""
    used = parameters > 0
    counts, parameters = counts[:, used], parameters[used]
    each = gammaln(counts + parameters).sum(axis=1) - gammaln(parameters).sum()
    total = parameters.sum()
    return float((each + gammaln(total) - gammaln(counts.sum(axis=1) + total)).sum())
