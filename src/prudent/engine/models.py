"""A batch of models: N Markov decision processes with the same states, actions and number of successors a pair.

Axis letters: S states, A actions, B successors of a pair, C distributions, N models of the batch, which come last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class ModelBatch(NamedTuple):
    """N models in the form that every function of the engine takes.

    Attributes:
        successor: next states of each pair, the same for all models.
        row: which distribution over its successors a pair follows: its own number for tables, its class for events.
        probability: the distributions, models last.
        cost: of each pair, models last; the last axis has length 1 where all models share their costs.
        start: distribution of the first state.
        discount: in [0, 1).
        unseen: the share of each pair's row that leads to the dearest visited state of each model, models last; the
            probabilities of the row sum to the rest. None where rows are whole.
        visited: the states that this share may lead to, at least one.
    """

    successor: Int[np.ndarray, "S A B"]
    row: Int[np.ndarray, "S A"]
    probability: Float[np.ndarray, "C B N"]
    cost: Float[np.ndarray, "S A N"]
    start: Float[np.ndarray, " S"]
    discount: float
    unseen: Float[np.ndarray, "S A N"] | None = None
    visited: Bool[np.ndarray, " S"] | None = None

    @property
    def size(self) -> int:
        """Return the number of models N."""
        return self.probability.shape[2]

    def select(self, models: slice | Int[np.ndarray, " M"]) -> ModelBatch:
        """Return some of the models."""
        cost = self.cost if self.cost.shape[2] == 1 and self.size != 1 else self.cost[:, :, models]
        unseen = None if self.unseen is None else self.unseen[:, :, models]
        return self._replace(probability=self.probability[:, :, models], cost=cost, unseen=unseen)


def table_rows(states: int, actions: int) -> Int[np.ndarray, "S A"]:
    """Return the `row` of a batch of tables, in which each pair has a distribution of its own."""
    return np.arange(states * actions, dtype=np.int32).reshape(states, actions)


def next_values(models: ModelBatch, values: Float[np.ndarray, "S N"]) -> Float[np.ndarray, "S A N"]:
    """Return the expected values of the next state, `sum_b P(s, a, b) values(successor(s, a, b))`."""
    states, actions, successors = models.successor.shape
    total = np.zeros((states, actions, values.shape[1]))
    for b in range(successors):
        total += models.probability[models.row, b] * values[models.successor[:, :, b]]
    return total
