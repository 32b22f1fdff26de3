"""The same problem with nothing known of its kernel but where each pair can lead."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..arrays import Array, Stream, generator, require_size
from ..episodes import SimulatedWorld
from ..errors import InputError
from ..kernels import Support
from ..models import MDP, TabularFamily
from ..posteriors import Dirichlet
from ..transitions import Transitions


class TabularProblem(eqx.Module):
    """A family's problem for someone who does not know its structure: theta is the whole transition table.

    Made by the method `tabular` of a family. A pair with one possible successor is certain.

    >>> import prudent as pr
    >>> problem = pr.envs.river_swim().tabular()
    >>> belief = problem.prior.update(problem.transitions(n=5, seed=0))
    >>> problem.family.support.shape, len(belief.sample(0, 10))
    ((6, 2, 3), 10)

    Attributes:
        family: all tables along the support; costs are the family's own.
        prior: belief about the table before any transition was seen.
        truth: `[S, A, B]` the table the data come from.
    """

    family: TabularFamily
    prior: Dirichlet
    truth: Float[Array, "S A B"]

    @staticmethod
    def of(mdp: MDP, cost: Any, weight: float = 1.0, tied: Any = None) -> TabularProblem:
        """From the model at the truth; successors that a pair lists twice become one.

        Args:
            mdp: the model at the truth.
            cost: `[S, A]`, or `[S, A, B]` if no pair lists a successor twice.
            weight: the prior's pseudo-count of each successor.
            tied: `[S, A]` labels of pairs that are one and the same move.
        """
        support, truth = _merged(mdp.kernel.support, np.asarray(mdp.kernel.probability))
        if np.ndim(cost) == 3 and support is not mdp.kernel.support:
            raise InputError("a cost for each transition needs distinct successors; give costs [state, action]")
        family = TabularFamily(support, cost, mdp.start, mdp.discount)
        return TabularProblem(family, Dirichlet.symmetric(support, weight, tied), truth)

    def transitions(self, n: int, seed: Any = 0) -> Transitions:
        """The log of `n` transitions of every state-action pair.

        >>> import prudent as pr
        >>> len(pr.envs.river_swim().tabular().transitions(n=5))
        60
        """
        n = require_size("n, the transitions of each pair,", n)
        support = self.family.support
        counts = generator(seed, Stream.TRIALS).multinomial(n, np.asarray(self.truth))
        state, action, slot = np.nonzero(counts)
        following = support.index()[state, action, slot]
        return Transitions(state, action, following, counts[state, action, slot], support.states, support.actions)

    def world(self, steps: int = 100, rollouts: int = 1) -> SimulatedWorld:
        """The problem at its truth, to deploy policies in.

        >>> import numpy as np, prudent as pr
        >>> world = pr.envs.river_swim().tabular().world(steps=20)
        >>> len(world.deploy(pr.TabularPolicy(np.full((6, 2), 0.5)), np.random.default_rng(0)))
        20
        """
        return SimulatedWorld(self.family, self.truth, steps, rollouts)


def _merged(support: Support, probability: np.ndarray) -> tuple[Support, np.ndarray]:
    """Lists without repeats, and the probabilities along them; the support itself where nothing repeats."""
    index, allowed = support.index(), support.allowed()
    lists = [
        [np.unique(index[s, a][allowed[s, a]]).tolist() for a in range(support.actions)] for s in range(support.states)
    ]
    if all(len(lists[s][a]) == allowed[s, a].sum() for s, a in np.ndindex(*support.shape[:2])):
        return support, probability
    merged = Support.lists(lists)
    same = (merged.index()[..., :, None] == index[..., None, :]) & merged.allowed()[..., None] & allowed[..., None, :]
    return merged, (same * probability[..., None, :]).sum(axis=-1)
