"""The tables of action probabilities that a policy class reaches, row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class RowSet(NamedTuple):
    """Rows of probabilities of at least `floor`, the largest at most `ratio` times the least: a polytope.

    Logits within a box of width w give the ratio `exp(w)`. A linear function of a row has its least value at a vertex
    that is known in closed form, so what a change of the policy gains to first order needs no program.
    """

    floor: float = 0.0
    ratio: float = np.inf

    def vertex(self, slope: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K S A"]:
        """The rows with the least `<slope, row>`."""
        actions = slope.shape[-1]
        order = np.argsort(slope, axis=-1, kind="stable")
        if np.isinf(self.ratio):
            share = np.zeros(actions)
            share[0] = 1.0
            rows = np.broadcast_to(self.floor + (1.0 - actions * self.floor) * share, slope.shape)
        else:
            # The j cheapest actions at `ratio` times the probability of the others, for the best j.
            ordered = np.take_along_axis(slope, order, axis=-1)
            high = np.tril(np.ones((actions, actions))) * (self.ratio - 1.0) + 1.0
            high /= high.sum(axis=1, keepdims=True)
            rows = high[(ordered[..., None, :] * high).sum(axis=-1).argmin(axis=-1)]
        found = np.empty_like(slope)
        np.put_along_axis(found, order, rows, axis=-1)
        return found

    def gain(self, table: Float[np.ndarray, "*K S A"], slope: Float[np.ndarray, "*K S A"]) -> Float[np.ndarray, "*K"]:
        """`<slope, table> - min <slope, table'>`: the most that a change of the table gains to first order."""
        return (slope * (table - self.vertex(slope))).sum(axis=(-2, -1))

    def near_vertex(
        self, table: Float[np.ndarray, "S A"], slope: Float[np.ndarray, "S A"], radius: float
    ) -> Float[np.ndarray, "S A"]:
        """The rows with the least `<slope, row>` whose entries move by at most `radius`; for an infinite ratio."""
        assert np.isinf(self.ratio) or radius >= 1.0
        if radius >= 1.0:
            return self.vertex(slope)
        low, high = self.bounds(table, radius)
        order = np.argsort(slope, axis=-1, kind="stable")
        room = np.take_along_axis(high - low, order, axis=-1)
        mass = 1.0 - low.sum(axis=-1, keepdims=True)
        before = np.concatenate([np.zeros((len(room), 1)), np.cumsum(room, axis=-1)[:, :-1]], axis=-1)
        found = np.empty_like(slope)
        np.put_along_axis(found, order, np.clip(mass - before, 0.0, room), axis=-1)
        return low + found

    def bounds(self, table: Float[np.ndarray, "S A"], radius: float) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest entries within `radius` of the table."""
        most = 1.0 - (table.shape[-1] - 1) * self.floor
        return np.maximum(table - radius, self.floor), np.minimum(table + radius, most)
