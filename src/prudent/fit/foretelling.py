"""What a belief foretells of a log's own steps, group by group, beside what happened: posterior predictive checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..arrays import in_float64, to_numpy
from ..models import AbstractFamily
from ..posteriors import Posterior

DRAWS = 200
ROWS = 5000

# Numbers held at once: draws times the entries of the kernel, and rows times successors.
MOST_ENTRIES, MOST_PLACES = 20_000_000, 20_000_000
FEWEST_DRAWS = 50


class Band(NamedTuple):
    """Groups of rows: what happened in each, and where the belief puts it.

    Attributes:
        labels: of the groups.
        rows: how many each has.
        observed: mean of what was measured.
        low, high: where it lies with a probability of 90 % under the belief.
    """

    labels: tuple[str, ...]
    rows: tuple[int, ...]
    observed: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def outside(self) -> int:
        """How many groups lie outside."""
        return sum(not low <= seen <= high for seen, low, high in zip(self.observed, self.low, self.high, strict=True))


class Replays(NamedTuple):
    """The steps of a log and, for draws of the belief, the steps that could have been in their place.

    Attributes:
        seen: `[N]` what was measured of the steps that happened.
        drawn: `[M, N]` the same of those drawn.
        kept: `[N]` which rows of the log they are.
    """

    seen: Float[np.ndarray, " N"]
    drawn: Float[np.ndarray, "M N"]
    kept: np.ndarray

    def band(self, group: np.ndarray, labels: dict[int, str]) -> Band:
        """Means by group, for the groups that have a label; `group` is of all rows of the log."""
        mine = group[self.kept]
        numbers = [number for number in labels if np.any(mine == number)]
        seen, low, high, rows = [], [], [], []
        for number in numbers:
            inside = mine == number
            means = self.drawn[:, inside].mean(axis=1)
            # With the distribution of the replays, not of the mean: the group may be a row or two.
            edges = np.quantile(means, [0.05, 0.95])
            seen.append(float(self.seen[inside].mean()))
            low.append(float(edges[0]))
            high.append(float(edges[1]))
            rows.append(int(inside.sum()))
        return Band(tuple(labels[number] for number in numbers), tuple(rows), tuple(seen), tuple(low), tuple(high))


@in_float64
def replays(
    model: AbstractFamily,
    belief: Posterior,
    state: np.ndarray,
    action: np.ndarray,
    slot: np.ndarray,
    measure: Any,
    seed: int = 0,
) -> Replays | None:
    """Draw every step of a log again from the belief; None where the kernel is too large for it.

    Args:
        model: the family.
        belief: after the log.
        state: `[N]`, of the rows.
        action: `[N]`, of the rows.
        slot: `[N]` the entry of the pair's successor list that happened; -1 where it is not there.
        measure: from the mean kernel `[S, A, B]` to what is measured of each entry, `[S, A, B]`.
        seed: of all draws.
    """
    shape = model.support.shape
    number = min(DRAWS, MOST_ENTRIES // int(np.prod(shape)))
    kept = np.flatnonzero(slot >= 0)
    generator = np.random.default_rng([seed, len(state)])
    most = min(ROWS, MOST_PLACES // shape[2])
    if number < FEWEST_DRAWS or most < FEWEST_DRAWS or not len(kept):
        return None
    if len(kept) > most:
        kept = np.sort(generator.choice(kept, most, replace=False))
    thetas = np.asarray(belief.sample(seed, number))
    tables = to_numpy(jax.lax.map(model.probability, thetas, batch_size=16))
    measured = np.asarray(measure(tables.mean(axis=0)))
    place = state[kept], action[kept]
    drawn = np.empty((number, len(kept)))
    for k, table in enumerate(tables):
        steps = np.cumsum(table[place], axis=1)
        chosen = (generator.random(len(kept))[:, None] * steps[:, -1:] >= steps).sum(axis=1)
        drawn[k] = measured[(*place, np.minimum(chosen, shape[2] - 1))]
    return Replays(measured[(*place, slot[kept])], drawn, kept)


def along_scale(scale: Float[np.ndarray, "S A B"]) -> Any:
    """Measures how far a step leads, less what is expected of it."""

    def measure(mean: np.ndarray) -> np.ndarray:
        return scale - (mean * scale).sum(axis=2, keepdims=True)

    return measure


def surprise(mean: Float[np.ndarray, "S A B"]) -> Float[np.ndarray, "S A B"]:
    """Measures how surprising a step is, in nats, less what is expected of it."""
    nats = -np.log(np.maximum(mean, 1e-12))
    return nats - (mean * nats).sum(axis=2, keepdims=True)
