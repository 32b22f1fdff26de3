"""What a search keeps to spare, so that draws and particles it has not seen show a limit kept."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ...evaluation import Evaluation
from .answer import independent, is_exact
from .limit import Limit

# What fresh draws may differ from held-out ones by, in standard errors, before they no longer show a limit kept.
BETWEEN_SAMPLES = 1.8

# The same for a simulated model's particles; of the eight batches that tell their error, too.
BETWEEN_PARTICLES = 2.5


def to_spare(limit: Limit, held: Evaluation) -> float:
    """What is kept to spare so that other draws show a limit kept: in its unit, or of a chance."""
    if limit.confidence is None or is_exact(held):
        return 0.0
    margin = float(ndtri(limit.confidence)) + BETWEEN_SAMPLES
    if limit.chance is not None:
        share = limit.chance * (1.0 - limit.chance)
        return 0.0 if held.exact else margin * np.sqrt(max(share, 1e-12) / independent(held))
    chance = particle_margin(limit.confidence) * held.particle_standard_error
    error = float(np.hypot(margin * held.risk_standard_error, chance))
    return error if np.isfinite(error) else 0.0


def particle_margin(confidence: float) -> float:
    """What twice as many other particles may differ by, and leave open themselves, in their standard errors."""
    return float(ndtri(confidence)) + BETWEEN_PARTICLES


def level_shown(limit: Limit, held: Evaluation) -> float:
    """The least level of a limit that a policy with these losses keeps with that to spare."""
    if limit.chance is not None:
        return float(held.quantile(min(limit.chance + to_spare(limit, held), 1.0)))
    return held.risk + to_spare(limit, held)
