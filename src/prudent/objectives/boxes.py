"""What proofs are made of: the least losses of draws over boxes of tables."""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array


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


class Boxes(eqx.Module):
    """Capability: the least loss of each draw over tables between bounds, which proofs are made of."""

    @abc.abstractmethod
    def relaxed(
        self, low: Float[Array, "N S A"], high: Float[Array, "N S A"], values: Float[Array, "N S R"]
    ) -> Relaxed:
        """For N boxes at once, begun at values that are nearly right."""

    @abc.abstractmethod
    def followed(self, tables: Float[Array, "N S A"]) -> tuple[Float[Array, "N R"], Float[Array, "N S R"]]:
        """Losses and visits of N tables at every draw."""

    def met(
        self,
        low: Float[Array, "J S A"],
        high: Float[Array, "J S A"],
        target: Int[Array, " J"],
        values: Float[Array, "J S R"] | None = None,
    ) -> tuple[Float[Array, "J R"], Float[Array, "J S R"]] | None:
        """How often every table of a box meets its target state, at least, and the values that prove it.

        Given values are taken as they are. None where this is not known, or of no use to a bound.
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
