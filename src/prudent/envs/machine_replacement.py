"""Machine replacement: run a machine that wears, try to repair it, or buy a new one."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, require_number, require_size
from .coins import CoinFamily, check_theta

RUN, REPAIR, REPLACE = 0, 1, 2


class MachineReplacement(CoinFamily):
    """Levels of wear from new (0) to broken (the last): `theta = (wear, breakdown, repair)`.

    Action 0 runs the machine: with probability `wear` it gets worse, and then it breaks with probability
    `breakdown` and is otherwise one level worse; a broken machine stays broken. Action 1 tries a repair: with
    probability `repair` the machine is as new, otherwise it stays as it was. Action 2 replaces it by a new one, for
    sure. A new machine runs whatever is done to it, so that no one can keep it from wear. Costs are known. Build one
    with `machine_replacement`.

    Attributes:
        costs: `[S, A]`, known.
        prior: Beta(1, 1) on each coordinate.
        truth: `(wear, breakdown, repair)` that data come from when nothing else is said.
    """

    names: ClassVar[tuple[str, ...]] = ("wear", "breakdown", "repair")

    def probability(self, theta: Float[Array, 3]) -> Float[Array, "S A 3"]:
        """Along the successors (as it was, one level worse, broken) of running, (as it was, new, -) of the others."""
        check_theta(theta, self.names, "machine replacement")
        wear, breakdown, repair = theta[0], theta[1], theta[2]
        zero = jnp.zeros_like(wear)
        run = jnp.stack([1.0 - wear, wear * (1.0 - breakdown), wear * breakdown])
        mend = jnp.stack([1.0 - repair, repair, zero])
        replace = jnp.stack([zero, zero + 1.0, zero])
        used = jnp.stack([run, mend, replace])
        new = jnp.broadcast_to(run, used.shape)
        return jnp.where(jnp.arange(self.support.states)[:, None, None] == 0, new, used)

    def tied(self) -> Int[np.ndarray, "S A"]:
        """Only that a new machine runs whatever is done to it is known of its table.

        >>> import prudent as pr
        >>> problem = pr.envs.machine_replacement().tabular()
        >>> problem.family.support.allowed().sum(axis=2).tolist()  # successors of running, repair, replacement
        [[3, 3, 3], [3, 2, 1], [3, 2, 1], [2, 2, 1], [1, 2, 1]]
        """
        labels = np.arange(self.costs.size).reshape(self.costs.shape)
        labels[0] = labels[0, RUN]
        return labels


def machine_replacement(
    levels: int = 5,
    running: float = 1.0,
    broken: float = 20.0,
    repair: float = 4.0,
    replace: float = 8.0,
    discount: float = 0.95,
    truth: Any = (0.3, 0.3, 0.3),
) -> MachineReplacement:
    """A machine that starts new.

    Args:
        levels: of wear, new and broken included; at least 3.
        running: cost of a period run, for each level of wear.
        broken: cost of a period with a broken machine, whatever is done to it, on top of what that costs.
        repair: cost of a try.
        replace: cost of a new machine.
        discount: in [0, 1).
        truth: `(wear, breakdown, repair)` that data come from.

    >>> import prudent as pr
    >>> machine = pr.envs.machine_replacement()
    >>> machine.at((0.5, 0.2, 0.4)).kernel.table()[1].round(2).tolist()  # run, repair, replace
    [[0.0, 0.5, 0.4, 0.0, 0.1], [0.4, 0.6, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    """
    levels = require_size("levels", levels, 3)
    amounts = {"running": running, "broken": broken, "repair": repair, "replace": replace}
    running, broken, repair, replace = (
        float(require_number(f"cost {name}", value, "[0, inf)")) for name, value in amounts.items()
    )
    level, new, last = np.arange(levels), np.zeros(levels, dtype=int), np.full(levels, levels - 1)
    run = np.stack([level, np.minimum(level + 1, last), last], axis=1)
    run[-1] = levels - 1
    mend, fresh = np.stack([level, new, new], axis=1), np.stack([new, new, new], axis=1)
    mend[0] = fresh[0] = run[0]
    down = broken * (level == levels - 1)
    wearing = np.where(level < levels - 1, running * level, 0.0)
    costs = np.stack([wearing + down, repair + down, replace + down], axis=1)
    successor = np.stack([run, mend, fresh], axis=1)
    return MachineReplacement.of(successor, np.eye(levels)[0], discount, costs, truth)
