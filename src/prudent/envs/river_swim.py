"""River swim: a small sure reward at the near bank, a large one at the end of a swim that may fail."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..arrays import Array, require_number, require_size
from .coins import CoinFamily, check_theta

LEFT, RIGHT = 0, 1


class RiverSwim(CoinFamily):
    """A row of states from the near bank (0) to the far end: `theta = (advance, swept)`.

    Action 0 drifts one state to the left, for sure. Action 1 swims right: it gets one state farther with
    probability `advance`; if not, the current sweeps the swimmer one state back with probability `swept`, and
    otherwise the swimmer holds. Nothing leads beyond either end. A step costs 1; drifting at the near bank costs
    `1 - near`, swimming at the far end nothing. Build one with `river_swim`.

    Attributes:
        costs: `[S, A]`, known.
        prior: Beta(1, 1) on each coordinate.
        truth: `(advance, swept)` that data come from when nothing else is said.
    """

    names: ClassVar[tuple[str, ...]] = ("advance", "swept")

    def probability(self, theta: Float[Array, 2]) -> Float[Array, "S A 3"]:
        """Along the successors (right, hold, back); drifting lists its one successor three times."""
        check_theta(theta, self.names, "a river swim")
        advance, swept = theta[0], theta[1]
        zero = jnp.zeros_like(advance)
        drift = jnp.stack([zero, zero, zero + 1.0])
        swim = jnp.stack([advance, (1.0 - advance) * (1.0 - swept), (1.0 - advance) * swept])
        return jnp.broadcast_to(jnp.stack([drift, swim]), self.support.shape)


def river_swim(states: int = 6, near: float = 0.4, discount: float = 0.95, truth: Any = (0.3, 1.0 / 7.0)) -> RiverSwim:
    """A river swim that starts, with equal chance, one or two states from the near bank.

    The classical six states and chances: a swim gets on with 0.3, is swept back with 0.1 and holds with 0.6.

    Args:
        states: how many there are, at least 3.
        near: reward of a step at the near bank, as a share of the far end's, in [0, 1].
        discount: in [0, 1).
        truth: `(advance, swept)` that data come from.

    >>> import prudent as pr
    >>> river = pr.envs.river_swim()
    >>> river.at((0.5, 0.2)).kernel.table()[2, 1].round(2).tolist()
    [0.0, 0.1, 0.4, 0.5, 0.0, 0.0]
    """
    states = require_size("states", states, 3)
    near = float(require_number("near", near, "[0, 1]"))
    place = np.arange(states)
    right, back = np.minimum(place + 1, states - 1), np.maximum(place - 1, 0)
    successor = np.stack([np.stack([back, back, back], axis=1), np.stack([right, place, back], axis=1)], axis=1)
    costs = np.ones((states, 2))
    costs[0, LEFT], costs[-1, RIGHT] = 1.0 - near, 0.0
    start = np.zeros(states)
    start[1:3] = 0.5
    return RiverSwim.of(successor, start, discount, costs, truth)
