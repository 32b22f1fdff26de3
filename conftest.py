"""For all tests: compiled functions are dropped before the process runs out of room, and seldom looked through."""

import gc
import sys
from pathlib import Path

# Linux allows a process 65,530 mapped regions; every compiled function takes some, and beyond that JAX crashes.
MOST_REGIONS = 25_000

# Imports and tracing make millions of objects that stay; looking through them as often as Python would takes a tenth
# of the time.
gc.set_threshold(50_000, 20, 50)


def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path == item.path:
        return
    regions = Path("/proc/self/maps")
    if "jax" in sys.modules and regions.exists() and regions.read_bytes().count(b"\n") > MOST_REGIONS:
        sys.modules["jax"].clear_caches()
        gc.unfreeze()
        gc.collect()
    # What was compiled is kept: millions of objects, seconds for the collector each time it goes through them.
    gc.freeze()
