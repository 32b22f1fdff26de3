"""A log laid out along a support, and its likelihood under a family."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, as_float, in_float64, require_kind
from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily
from .log import Transitions, codes


class Evidence(eqx.Module):
    """A log laid out along a support: which entries of the kernel make each transition that was seen.

    Attributes:
        entry: `[E]` entries of the flattened `[S, A, B]` table.
        row: `[E]` the transition each entry belongs to; several where a list repeats a successor.
        count: `[K]` how often each transition was seen.
    """

    entry: Int[Array, " E"]
    row: Int[Array, " E"]
    count: Float[Array, " K"]

    @staticmethod
    def of(support: Support, log: Transitions) -> Evidence:
        """Merge the rows of a log, and refuse those that the support cannot make."""
        require_kind("log", log, Transitions, "a log of Transitions, such as Transitions.from_records(...)")
        if (log.states, log.actions) != support.shape[:2]:
            raise InputError(
                f"the log is for {log.states} states and {log.actions} actions, "
                f"the model for {support.states} and {support.actions}"
            )
        code, first, place = np.unique(codes(log), return_index=True, return_inverse=True)
        count = np.bincount(place, np.asarray(log.count), minlength=len(code))
        pair, next_state = code // log.states, code % log.states
        if support.is_dense:
            return Evidence(pair * support.successors + next_state, np.arange(len(code)), count)
        width = support.successors
        match = support.index().reshape(-1, width)[pair] == next_state[:, None]
        match &= support.allowed().reshape(-1, width)[pair]
        lost = first[~match.any(axis=1)]
        if lost.size:
            row = int(lost.min())
            raise InputError(
                f"row {row} of the log goes from state {log.state[row]} by action {log.action[row]} to state "
                f"{log.next_state[row]}, which the support does not allow; add it to the support or correct the log"
            )
        row, slot = np.nonzero(match)
        return Evidence(pair[row] * width + slot, row, count)

    def log_likelihood(self, probability: Float[Array, "S A B"]) -> Float[Array, ""]:
        """`sum_k count_k log P(s'_k | s_k, a_k)`, -inf where a transition seen has no probability."""
        entries = jnp.ravel(probability)[self.entry]
        chance = jax.ops.segment_sum(entries, self.row, num_segments=len(self.count), indices_are_sorted=True)
        # The inner `where` keeps the gradient of transitions never seen, or impossible, from being NaN.
        possible, seen = chance > 0, self.count > 0
        logs = jnp.where(possible, jnp.log(jnp.where(possible, chance, 1.0)), -jnp.inf)
        return jnp.where(seen, self.count * jnp.where(seen, logs, 0.0), 0.0).sum()


@in_float64
def log_likelihood(family: AbstractFamily, theta: Any, log: Transitions) -> Any:
    """The log-likelihood of a log under a family's own kernel, at one theta.

    `sum_k count_k log P_theta(s'_k | s_k, a_k)`, where the probability of a next state is that of all the
    places it has in its pair's successor list. It can be traced by JAX in theta: differentiate it, or hand
    it to any sampler. A log of a million rows costs no more than its distinct transitions.

    Args:
        family: the family of MDPs.
        theta: the parameter, of the shape the family expects.
        log: the transitions seen; one that the family's support cannot make is refused.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake()
    >>> log = pr.Transitions.from_records([(6, 1, 11), (6, 1, 11), (6, 1, 5)], states=25, actions=4)
    >>> float(pr.log_likelihood(lake, [0.4, 0.1], log).round(4))  # 2 log(1 - 0.4) + log(0.4 / 2)
    -2.6311
    """
    require_kind("family", family, AbstractFamily, "a family of MDPs, made by Family(...) or TabularFamily(...)")
    return _log_likelihood(family, jnp.asarray(as_float(theta, "theta")), Evidence.of(family.support, log))


@eqx.filter_jit
def _log_likelihood(family: AbstractFamily, theta: Array, evidence: Evidence) -> Array:
    return evidence.log_likelihood(kernel_at(family, theta))


def kernel_at(family: AbstractFamily, theta: Array) -> Float[Array, "S A B"]:
    """The family's probabilities, refused when theta does not give a table along the support."""
    probability = family.probability(theta)
    if jnp.shape(probability) != family.support.shape:
        raise InputError(
            f"theta of shape {jnp.shape(theta)} gives probabilities of shape {jnp.shape(probability)}, "
            f"the family's support has {family.support.shape}"
        )
    return probability
