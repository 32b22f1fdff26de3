"""What a small problem waits for: `prudent solve` on the example of `prudent init`, the first time and again.

With `PRUDENT_BEFORE=folder` of another checkout, the same commands run on its source in the same rounds. Seconds of the
processor are shown beside those of the clock: on a shared machine they are the ones to compare.
"""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import prudent as pr

from .measuring import console, report, side_by_side, verdict

# Settings of whoever runs the benchmark that a user does not have.
UNSET = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_COMPILATION_CACHE_MAX_SIZE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
    "PYTHONDONTWRITEBYTECODE",
    "XLA_FLAGS",
)


def run(rounds: int) -> None:
    commands(min(rounds, 3))
    demonstration()
    evaluation(rounds)


def commands(rounds: int) -> None:
    sources = {"this": Path(pr.__file__).parents[1]}
    if os.environ.get("PRUDENT_BEFORE"):
        sources["before"] = Path(os.environ["PRUDENT_BEFORE"]) / "src"
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        pr.write_example(folder)
        for source in sources.values():
            # As an installation does.
            compileall.compile_dir(source / "prudent", quiet=1)
        for _ in range(rounds):
            for name, source in sources.items():
                with tempfile.TemporaryDirectory() as cache:
                    for when in ("first", "again"):
                        found.setdefault((name, when), []).append(_solved(source, Path(folder), cache))
    rows = []
    for (name, when), values in found.items():
        clock, processor, compilations = (float(np.median(column)) for column in zip(*values, strict=True))
        aim = verdict(clock, 6.0 if when == "first" else 2.5) if name == "this" else ""
        rows.append((f"{name}, {when}", f"{clock:.1f} s", f"{processor:.1f} s", f"{compilations:.0f}", aim))
    header = ("prudent solve, four states", "clock", "processor", "compiled", "aim on idle cores")
    report("Latency", header, rows)


def _solved(source: Path, folder: Path, cache: str) -> tuple[float, float, int]:
    options = ("--force", "-q", "-o", str(folder / "run"))
    return _ran(source, cache, "solve", str(folder / "problem.toml"), *options)


def _ran(source: Path, cache: str, *command: str) -> tuple[float, float, int]:
    """Seconds of the clock and of the processor, and functions that XLA compiled rather than read."""
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {"PYTHONPATH": str(source), "XDG_CACHE_HOME": cache, "JAX_LOG_COMPILES": "1"}
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-m", "prudent", *command], env=environment, capture_output=True, text=True, check=True
    )
    seconds, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    compiled = ran.stderr.count("Finished XLA compilation") - ran.stderr.count("Persistent compilation cache hit")
    return seconds, processor, compiled


def demonstration() -> None:
    """What `make demo` runs once the library is installed, in an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        clock, processor, _ = _ran(Path(pr.__file__).parents[1], folder, "demo", "--out", f"{folder}/demo")
    console.print(
        f"prudent demo: {clock:.1f} s, {processor:.1f} s of the processor ({verdict(clock, 10.0)} on idle cores)"
    )


def evaluation(rounds: int) -> None:
    """20,000 draws of six states."""
    random = np.random.default_rng(0)
    support = pr.Support.dense(6, 2)
    family = pr.TabularFamily(support, random.uniform(size=(6, 2)), start=0, discount=0.9)
    belief = pr.Dirichlet(support, random.integers(1, 9, size=support.shape), np.zeros(support.shape))
    table = np.full((6, 2), 0.5)
    seconds = side_by_side({"evaluate": lambda: pr.evaluate(table, family, belief, samples=20_000)}, rounds)
    median = float(np.median(seconds["evaluate"]))
    console.print(f"evaluate, 20,000 draws of six states: {median:.2f} s ({verdict(median, 0.3)} on idle cores)")
