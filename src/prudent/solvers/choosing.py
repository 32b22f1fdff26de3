"""The last choice: another plan's policy replaces the answer where it is better on draws set aside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..evaluation import cheap_draws, judged
from ..objectives import Objective, losses_on
from ..posteriors import Posterior, WeightedDraws, equally_weighted
from ..risks import Risk
from ..seeds import Seed, Stream, generator
from .draws import draw

# At least so many draws, and this share of those that decide, name so many policies which challenge the answer.
SCREENING, SCREENING_SHARE, CHALLENGERS = 250, 4, 5

# The draws that decide: as many as are reported, or up to so many times as many, as long as that is cheap by so far.
MOST_TIMES, CHEAP_SHARE = 16, 8

# A challenger wins with this two-sided confidence, of one standard error: most of what it gains would else be lost.
CONFIDENCE = 0.68

# Risks of atoms closer than this, as a share of the largest loss, differ by rounding.
ROUNDING = 1e-10


def draw_to_choose(objective: Objective, belief: Posterior, seed: Seed, reported: int) -> WeightedDraws:
    """Draw a sample that neither the search nor the report sees; the atoms of a belief that is a few of them."""
    atoms = belief.as_atoms()
    if atoms is not None:
        return atoms
    count = int(np.clip(cheap_draws(objective) // CHEAP_SHARE, reported, MOST_TIMES * reported))
    return equally_weighted(draw(belief, generator(seed, Stream.CHOICE), count), belief.behind)


def choose_point(
    objective: Objective, risk: Risk, points: Sequence[Float[np.ndarray, ...]], draws: WeightedDraws
) -> int:
    """Return the place of the point to take: the first one, unless another has a lower risk on these draws.

    A few of the draws name the challengers, all of them decide. A challenger may win where its risk is lower by more
    than about one standard error of the difference, or, on atoms, by more than rounding.
    """
    others = [k for k, point in enumerate(points) if not any(np.array_equal(point, each) for each in points[:k])][1:]
    if not others:
        return 0
    few = draws if draws.exact else draws.first(min(max(SCREENING, len(draws) // SCREENING_SHARE), len(draws)))
    screened = _risks(risk, losses_on(objective, np.stack([points[k] for k in others]), few.thetas), few)
    challengers = [others[k] for k in np.argsort(screened, kind="stable")[:CHALLENGERS] if np.isfinite(screened[k])]
    places = [0, *challengers]
    losses = losses_on(objective, np.stack([points[k] for k in places]), draws.thetas)
    risks = _risks(risk, losses, draws)
    lower = [k for k in range(1, len(places)) if _is_less(risk, losses[k], losses[0], draws)]
    return places[min(lower, key=lambda k: risks[k])] if lower else 0


def _risks(risk: Risk, losses: Float[np.ndarray, "K M"], draws: WeightedDraws) -> list[float]:
    return [judged(risk, row, draws).risk if np.all(np.isfinite(row)) else np.inf for row in losses]


def _is_less(
    risk: Risk, losses: Float[np.ndarray, " M"], others: Float[np.ndarray, " M"], draws: WeightedDraws
) -> bool:
    if not np.all(np.isfinite(losses)):
        return False
    if not np.all(np.isfinite(others)):
        return True
    less = judged(risk, others, draws).risk - judged(risk, losses, draws).risk
    size = ROUNDING * float(np.abs(np.concatenate([losses, others])).max())
    if draws.exact:
        return less > size
    _, high = risk.difference_interval(losses, others, draws.probabilities, confidence=CONFIDENCE)
    return less > size and high < 0.0
