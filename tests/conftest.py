"""Shared set-up: hypothesis is deterministic, so that a red build can be repeated."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "prudent", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("prudent")
