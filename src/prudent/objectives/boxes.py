"""What proofs are made of: the least losses of draws over boxes of tables."""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..engine import BoxPlans
from ..records import Record


class DeviationBounds(NamedTuple):
    """What tables of N boxes pay at least, at K states or for going round them.

    A row p costs a draw `<p, Q(s)> - v(s)` above its least at each visit, from 0 to the toll y(s). Let D(U) be the
    least over tables of what is paid in all, if rows of the states in U cost their tolls, those of the others of the K
    states nothing, and those elsewhere what they do. It is concave in the costs at the K states. So if n has
    `sum_{s in U} n(s) y(s) <= D(U)` for all sets U, a table with rows p pays at least `sum_s n(s) (<p(s), Q(s)> -
    v(s))`. The fewest visits of a table would do; where it costs something to avoid s there are larger ones.

    Attributes:
        visits: n at each of the K states.
        paid: the values that prove D of each of the `V = 2^K - 1` sets.
    """

    visits: Float[np.ndarray, "N K R"]
    paid: Float[np.ndarray, "N V S R"]


class Boxes(Record):
    """Capability: the least loss of each draw over tables between bounds, which proofs are made of."""

    @abc.abstractmethod
    def relaxed(
        self, low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"], values: Float[np.ndarray, "N S R"]
    ) -> BoxPlans:
        """Return the least losses in N boxes, begun at values that are nearly right."""

    @abc.abstractmethod
    def followed(
        self, tables: Float[np.ndarray, "N S A"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S R"]]:
        """Return losses and visits of N tables at every draw."""

    def tolls(
        self,
        low: Float[np.ndarray, "N S A"],
        high: Float[np.ndarray, "N S A"],
        values: Float[np.ndarray, "N S R"],
        state: Int[np.ndarray, "N K"],
        counted: Bool[np.ndarray, "N R"],
        paid: Float[np.ndarray, "N V S R"] | None = None,
    ) -> DeviationBounds | None:
        """Return what tables of the boxes pay at some states, or for going round them; None where this is not known.

        Args:
            low: of the boxes.
            high: of the boxes.
            values: that prove the draws' least losses.
            state: no state of a box twice.
            counted: the draws that matter; the visits of others are 0.
            paid: values of the tolls, taken as they are; found when left out.
        """
        return None

    def listed(self) -> dict[str, np.ndarray] | None:
        """Return the models as arrays by name, for a verifier; None where arrays do not tell the loss."""
        return None

    def proved(
        self, low: Float[np.ndarray, "N S A"], high: Float[np.ndarray, "N S A"], values: Float[np.ndarray, "N S R"]
    ) -> tuple[Float[np.ndarray, "N R"], Float[np.ndarray, "N S A R"]]:
        """Return what these values prove of models that can be listed, and what an action costs with them."""
        raise NotImplementedError
