"""An environment whose kernel is known, to hold beliefs against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ...arrays import Array, Stream, generator, require_size
from ...kernels import Kernel, Support
from ...models import MDP
from ...transitions import Transitions


class KnownEnvironment(eqx.Module):
    """A finite environment with all of its numbers.

    >>> import prudent as pr
    >>> river = pr.envs.known_environment("river_swim")
    >>> len(river.walk(steps=500, seed=0)), float(river.mdp().discount)
    (500, 0.97)

    Attributes:
        name: as it is printed.
        table: `[S, A, S]` transition probabilities.
        cost: `[S, A]`, or `[S, A, S]` where it differs by the next state.
        start: state number or `[S]` distribution of the first state.
        discount: in [0, 1).
        terminal: states that end an episode; a walk starts over after one.
        grid: rows and columns (or the sizes of more axes) where the states are numbered along a grid; None otherwise.
        possible: what one who works with it would know of where a pair can lead, `possible(state, action,
            next_state)`; a state is its number, or its coordinates where there is a grid. None where only the numbers
            would tell.
    """

    table: Float[Array, "S A S"]
    cost: Float[Array, ...]
    start: Any
    name: str = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    grid: tuple[int, ...] | None = eqx.field(static=True, default=None)
    possible: Callable[[Any, int, Any], bool] | None = eqx.field(static=True, default=None)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        states, actions, _ = self.table.shape
        return states, actions

    def mdp(self) -> MDP:
        """The environment as it is."""
        table = np.asarray(self.table)
        cost = np.asarray(self.cost)
        return MDP(
            Kernel.dense(table), cost if cost.ndim == 2 else (cost * table).sum(axis=2), self.start, self.discount
        )

    def known_support(self) -> Support:
        """Where each pair may lead for all that one who works with it would know; everywhere if that is nothing.

        Terminal states are known never to be left.

        >>> import prudent as pr
        >>> pr.envs.known_environment("river_swim").known_support().shape
        (8, 2, 3)
        """
        if self.possible is None:
            return Support.dense(*self.shape)
        states, actions = self.shape
        ends, possible = set(self.terminal), self.possible
        if self.grid is not None:
            ends = {tuple(np.unravel_index(end, self.grid)) for end in ends}
        return Support.where(lambda s, a, t: s == t if s in ends else possible(s, a, t), self.grid or states, actions)

    def walk(self, steps: int, seed: Any) -> Transitions:
        """The log of `steps` steps with random actions; nothing is logged of a terminal state.

        Args:
            steps: rows of the log.
            seed: the same seed, the same log.
        """
        steps = require_size("steps", steps)
        random = generator(seed, Stream.TRIALS)
        states, actions = self.shape
        ends, move = set(self.terminal), np.cumsum(np.asarray(self.table), axis=2)
        first = np.cumsum(np.asarray(self.mdp().start))
        chosen, chances, begins = random.integers(actions, size=steps), random.random(steps), random.random(steps + 1)
        path = np.empty((steps, 3), dtype=int)
        now = _pick(first, begins[-1])
        for step in range(steps):
            now = _pick(first, begins[step]) if now in ends else now
            following = _pick(move[now, chosen[step]], chances[step])
            path[step] = now, chosen[step], following
            now = following
        return Transitions.from_records(path, states, actions)


def _pick(cumulative: np.ndarray, uniform: float) -> int:
    """The entry that a uniform number falls on; never one of probability 0."""
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
