"""Which iterate a run hands back."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..arrays import as_whole, require_size
from ..gradients import SampledRisk
from ..records import Record, field, tree_map


class Kept(Record):
    """What an output rule remembers of each of G runs: parameters and their score."""

    parameters: Any
    score: Float[np.ndarray, " G"]


class Output(Record):
    """A rule that sees every iterate `alpha_t` once, before its step, and remembers one."""

    def held_out(self) -> int:
        """How many posterior draws the rule wants set aside for each run; none unless said otherwise."""
        return 0

    @abc.abstractmethod
    def observe(self, kept: Kept, parameters: Any, iteration: int, uniform: np.ndarray, held_out: SampledRisk) -> Kept:
        """What to remember after seeing `parameters`; `uniform`, `[G]`, are fresh random numbers in [0, 1)."""

    @abc.abstractmethod
    def choose(self, kept: Kept, last: Any, held_out: SampledRisk) -> Kept:
        """The output, from what was remembered and the last iterate `alpha_T`; no finite score means failure."""


def start(parameters: Any, groups: int) -> Kept:
    """Nothing seen yet."""
    return Kept(parameters, np.full(groups, np.inf))


def where(mask: Bool[np.ndarray, " G"], yes: Any, no: Any) -> Any:
    """Leaf by leaf, row g of `yes` where `mask[g]`, of `no` elsewhere."""
    return tree_map(lambda a, b: np.where(mask.reshape(-1, *([1] * (a.ndim - 1))), a, b), yes, no)


class LastIterate(Output):
    """`alpha_T`, as in the paper's experiments.

    >>> import prudent as pr
    >>> pr.BRPG(output=pr.LastIterate()).output.held_out()
    0
    """

    def observe(self, kept: Kept, parameters: Any, iteration: int, uniform: np.ndarray, held_out: SampledRisk) -> Kept:
        """Remembers nothing."""
        return kept

    def choose(self, kept: Kept, last: Any, held_out: SampledRisk) -> Kept:
        """The last."""
        return Kept(last, np.zeros_like(kept.score))


class RandomIterate(Output):
    """One of `alpha_0 .. alpha_{T-1}`, uniformly, as Algorithm 1 states it.

    Drawn as a reservoir: `alpha_t` replaces the one kept with probability `1 / (t + 1)`, so nothing
    but one iterate is stored and a resumed run draws from all of its iterations.

    >>> import prudent as pr
    >>> pr.BRPG(output=pr.RandomIterate()).output.held_out()
    0
    """

    def observe(self, kept: Kept, parameters: Any, iteration: int, uniform: np.ndarray, held_out: SampledRisk) -> Kept:
        """Keep this one with probability `1 / (t + 1)`."""
        return Kept(where(uniform * (iteration + 1) < 1.0, parameters, kept.parameters), kept.score)

    def choose(self, kept: Kept, last: Any, held_out: SampledRisk) -> Kept:
        """The one kept."""
        return Kept(kept.parameters, np.zeros_like(kept.score))


class BestHeldOut(Output):
    """The iterate with the lowest objective on a posterior sample that no gradient sees.

    >>> import prudent as pr
    >>> pr.BRPG(output=pr.BestHeldOut(samples=512, every=5)).output.held_out()
    512

    Args:
        samples: size of the held-out sample.
        every: how many iterations apart iterates are scored; the last one always is.
    """

    samples: int = field(static=True, converter=as_whole, default=256)
    every: int = field(static=True, converter=as_whole, default=10)

    def __check_init__(self) -> None:
        require_size("BestHeldOut samples", self.samples)
        require_size("BestHeldOut every", self.every)

    def held_out(self) -> int:
        """The size of the sample."""
        return self.samples

    def observe(self, kept: Kept, parameters: Any, iteration: int, uniform: np.ndarray, held_out: SampledRisk) -> Kept:
        """Score this iterate if it is its turn, and keep the better."""
        return kept if iteration % self.every else _better(kept, parameters, held_out)

    def choose(self, kept: Kept, last: Any, held_out: SampledRisk) -> Kept:
        """The best of those kept and the last; none was scored if the loss is NaN on the held-out sample."""
        return _better(kept, last, held_out)


def _better(kept: Kept, parameters: Any, held_out: SampledRisk) -> Kept:
    score = held_out.at(parameters).value
    better = score < kept.score
    return Kept(where(better, parameters, kept.parameters), np.where(better, score, kept.score))
