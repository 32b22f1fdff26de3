"""Mirror descent on the policy for a convex loss: no matrix, so any size of model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arrays import Array
from ..models import MDP
from ..occupancies import Krylov
from .chain import Chain, chain_solver
from .search import Centred, Search, row_policy

# Steps between two certificates.
MIRROR_STEPS = 50


def mirror(search: Search) -> Iterator[int]:
    """Mirror descent, `pi <- pi exp(-step Q)` with the Q of the cost `grad F`, from the best policy so far."""
    shape = search.mdp.cost.shape
    # Off the boundary, from where an exponentiated step could not return.
    policy = 0.99 * row_policy(search.occupancy) + 0.01 / shape[1]
    logits, step = np.log(policy), np.asarray(1.0)
    solver = chain_solver(search.mdp)
    while True:
        logits, step, moved = _mirror_steps(solver, search.loss, search.mdp, logits, step, search.noise)
        if not np.all(np.isfinite(logits)):
            return
        search.certify(search.of_policy(np.asarray(jnp.exp(logits))))
        yield MIRROR_STEPS
        if not moved:
            return


@eqx.filter_jit
def _mirror_steps(
    solver: Krylov, loss: Centred, mdp: MDP, logits: Array, step: Any, noise: float
) -> tuple[Array, Array, Array]:
    """`MIRROR_STEPS` steps; each longer than the last while the loss falls as foreseen, shorter when it does not."""

    def look(logits: Array) -> tuple[Array, Array, Array, Array]:
        policy = jnp.exp(logits)
        chain = Chain.of(solver, mdp, policy)
        visits = chain.visits()[:, None]
        (value, _), slope = jax.value_and_grad(loss, has_aux=True)(visits * policy, mdp)
        return policy, visits, value, chain.quality(slope)

    def advance(_: int | Array, state: tuple) -> tuple:
        logits, here, step, moved = state
        policy, visits, value, quality = here
        trial = jax.nn.log_softmax(logits - step * (quality - quality.min(axis=1, keepdims=True)), axis=1)
        there = look(trial)
        policy_there, visits_there, value_there, quality_there = there
        change = policy_there - policy
        foreseen = (visits * change * quality).sum()
        # Near the optimum the fall drowns in rounding; then the slope at the trial tells whether it went too far.
        turned = (visits_there * change * quality_there).sum()
        even = value_there <= value + noise
        accept = (value_there <= value + 0.1 * foreseen) | (even & (turned <= -0.8 * foreseen))
        logits, here = jax.tree.map(lambda new, old: jnp.where(accept, new, old), (trial, there), (logits, here))
        return logits, here, jnp.where(accept, 1.5 * step, 0.5 * step), moved | (accept & (foreseen < 0))

    logits = jnp.asarray(logits)
    state = (logits, look(logits), jnp.asarray(step), jnp.asarray(False))
    logits, _, step, moved = lax.fori_loop(0, MIRROR_STEPS, advance, state)
    return logits, step, moved
