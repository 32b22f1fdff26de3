"""Shared set-up: hypothesis is deterministic, so that a red build can be repeated; long files come first."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "prudent", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("prudent")

# Whole files go to one worker, so that it compiles their functions once; the longest must not come last.
LONGEST = ("test_solvers", "test_matrix", "test_docs", "test_posterior_mcmc", "test_policies", "test_cli")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
