"""Coherent risk measures of a weighted sample, with the weights that attain them; and a quantile."""

from .balls import ChiSquareBall, EntropicVaR, KullbackLeiblerBall, TotalVariationBall, worst_rows
from .base import Assessment, Risk, assess_closely, assess_each, assess_sample, sample_interval, select_run, weights_of
from .conformance import check_risk
from .envelope import Envelope, check_envelope
from .envelope_programs import Clarabel, EnvelopeSolution, EnvelopeSolver, EnvelopeStatus, Program
from .intervals import LEAST_DRAWS, effective_draws, jackknife, share_interval, widened
from .mixtures import MeanSemideviation, Mixture, PartialMixture, QuantileDeviation
from .quantiles import (
    LARGEST_PAIRWISE,
    CVaR,
    Distortion,
    Expectation,
    SmoothedVaR,
    Spectral,
    WorstCase,
    mass_above_and_level,
)
