"""What proofs are made of: the least losses of draws over boxes of tables."""

from __future__ import annotations

import abc
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..arrays import Array
from ..records import Record


class Relaxed(NamedTuple):
    """The least losses of R draws over N boxes of tables, each draw with a table of its own.

    Attributes:
        least: numbers at most the least loss of each draw in each box.
        values: of each state, from which the next relaxation begins, and which prove the bound.
        rows: each draw's own best table.
        quality: what an action costs a draw from each state on.
        visits: how often each draw's table meets a state.
    """

    least: Float[Array, "N R"]
    values: Float[Array, "N S R"]
    rows: Float[Array, "N S A R"]
    quality: Float[Array, "N S A R"]
    visits: Float[Array, "N S R"]


class Tolls(NamedTuple):
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

    visits: Float[Array, "N K R"]
    paid: Float[Array, "N V S R"]


class Boxes(Record):
    """Capability: the least loss of each draw over tables between bounds, which proofs are made of."""

    @abc.abstractmethod
    def relaxed(
        self, low: Float[Array, "N S A"], high: Float[Array, "N S A"], values: Float[Array, "N S R"]
    ) -> Relaxed:
        """For N boxes at once, begun at values that are nearly right."""

    @abc.abstractmethod
    def followed(self, tables: Float[Array, "N S A"]) -> tuple[Float[Array, "N R"], Float[Array, "N S R"]]:
        """Losses and visits of N tables at every draw."""

    def tolls(
        self,
        low: Float[Array, "N S A"],
        high: Float[Array, "N S A"],
        values: Float[Array, "N S R"],
        state: Int[Array, "N K"],
        counted: Bool[Array, "N R"],
        paid: Float[Array, "N V S R"] | None = None,
    ) -> Tolls | None:
        """What tables of the boxes pay at some states, or for going round them; None where this is not known.

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
        """The models as arrays by name, from which anyone can check a bound; None where arrays do not tell the loss."""
        return None

    def proved(
        self, low: Float[Array, "N S A"], high: Float[Array, "N S A"], values: Float[Array, "N S R"]
    ) -> tuple[Float[Array, "N R"], Float[Array, "N S A R"]]:
        """What these values prove as they are, of models that can be listed; and what an action costs with them."""
        raise NotImplementedError
