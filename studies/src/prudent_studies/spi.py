"""Safe policy improvement: is a policy made of a log better than the one that made the log, and how often is it worse?

A benchmark, logs of several sizes, and methods, each a function of the log and of what is known of its world. The
policies are valued in the world itself, so that no figure has simulation error but that of the logs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prudent import InputError

from .spi_methods import METHODS, Method
from .spi_worlds import Log, World, logged, random_mdp, wet_chicken
from .work import Backend, RunFolder, Unit, open_folder, run_units


class Benchmark(NamedTuple):
    """A benchmark: how its worlds are made, and how its policies are counted.

    Attributes:
        title: as it is printed.
        make: a world, by the share or quality of its behaviour and a random generator.
        setting: the share or quality when nothing is said.
        setting_name: which of the two.
        sizes: of the logs.
        size_name: what these count.
        logs: how many of each size.
        tail: share of the logs that are called the worst.
        margin: a policy is worse than the behaviour where it is so by more than this.
        relative: whether values are shares of the possible improvement, 0 for the behaviour and 1 for the optimum.
    """

    title: str
    make: Callable[[float, np.random.Generator], World]
    setting: float
    setting_name: str
    sizes: tuple[int, ...]
    size_name: str
    logs: int
    tail: float
    margin: float
    relative: bool

    def measured(self, value: float, behaviour: float, optimum: float) -> float:
        """A value as this benchmark counts it."""
        return (value - behaviour) / (optimum - behaviour) if self.relative else value


BENCHMARKS: Mapping[str, Benchmark] = {
    "wet-chicken": Benchmark(
        "Wet Chicken",
        lambda share, _: wet_chicken(share),
        0.1,
        "share of random actions",
        (100, 200, 500, 1000, 2000, 5000, 10_000),
        "steps",
        200,
        0.01,
        0.1,
        False,
    ),
    "random-mdps": Benchmark(
        "Random MDPs",
        random_mdp,
        0.9,
        "quality of the behaviour",
        (10, 20, 50, 100, 200, 500, 1000, 2000),
        "trajectories",
        100,
        0.1,
        0.01,
        True,
    ),
}


class Row(NamedTuple):
    """What a method reaches from logs of one size.

    Attributes:
        size: of the logs.
        method: its name.
        logs: how many.
        mean, error: of the measure, and the standard error.
        worst: mean of the worst logs.
        worse: share of logs whose policy is worse than the behaviour by more than the margin.
        lost: most that a policy falls below the behaviour; 0 if none does.
    """

    size: int
    method: str
    logs: int
    mean: float
    error: float
    worst: float
    worse: float
    lost: float


def benchmark(name: str) -> Benchmark:
    """One of the benchmarks, by its name."""
    if name not in BENCHMARKS:
        raise InputError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def labels_of(name: str, given: Sequence[str] | None = None) -> list[str]:
    """The methods asked for, or all of a benchmark; refuses one that is not there.

    >>> labels_of("wet-chicken")[:2]
    ['plug-in plan', 'SPIBB, 7 rows']
    """
    there = METHODS[name]
    for label in given or []:
        if label not in there:
            raise InputError(f"{name} has no method {label!r}; there are {', '.join(map(repr, there))}")
    return list(given or there)


@lru_cache(maxsize=1)
def _world(name: str, setting: float, log: int, seed: int) -> tuple[World, float, float]:
    """The world of a log, with the values of its behaviour and its optimum."""
    world = benchmark(name).make(setting, np.random.default_rng([seed, log]))
    return world, world.value(world.behaviour), world.value(world.best())


@lru_cache(maxsize=1)
def _log(name: str, setting: float, size: int, log: int, seed: int) -> Log:
    world, _, _ = _world(name, setting, log, seed)
    return logged(world, size, np.random.default_rng([seed, log, size]))


def outcome(
    name: str, setting: float, size: int, log: int, seed: int, label: str, method: Method | None = None
) -> dict[str, Any]:
    """What one method makes of one log. Every method sees the same log, and logs of one number have one world.

    >>> outcome("wet-chicken", 0.1, size=200, log=0, seed=0, label="SPIBB, 7 rows")["behaviour"]
    29.75017384740856

    Args:
        name: of the benchmark.
        setting: the share or quality of the behaviour.
        size: of the log.
        log: which of the logs of this size.
        seed: of the whole study.
        label: of the method.
        method: what makes the policy; that of `METHODS` with this label when left out.
    """
    world, behaviour, optimum = _world(name, setting, log, seed)
    policy = np.asarray((method or METHODS[name][label])(_log(name, setting, size, log, seed), world), dtype=float)
    value = world.value(_checked(policy, world, label))
    return {
        "benchmark": name,
        "setting": setting,
        "size": size,
        "log": log,
        "method": label,
        "value": value,
        "behaviour": behaviour,
        "optimum": optimum,
        "measure": benchmark(name).measured(value, behaviour, optimum),
    }


def _checked(policy: np.ndarray, world: World, label: str) -> np.ndarray:
    """A policy of the world's shape, whose rows are distributions."""
    if policy.shape != world.shape or not np.allclose(policy.sum(axis=1), 1.0) or (policy < -1e-12).any():
        raise InputError(f"{label} must give probabilities of shape {world.shape} with rows that sum to 1")
    return policy


def compare(
    name: str,
    methods: Mapping[str, Method] | None = None,
    sizes: Sequence[int] | None = None,
    logs: int | None = None,
    setting: float | None = None,
    seed: int = 0,
    margin: float | None = None,
) -> list[Row]:
    """Methods on logs of a benchmark.

    >>> keep = {"keep": lambda log, world: world.behaviour}
    >>> [row] = compare("wet-chicken", keep, sizes=[100], logs=3)
    >>> round(row.mean, 2), row.worse
    (29.75, 0.0)

    Args:
        name: `wet-chicken` or `random-mdps`.
        methods: by name, functions that make a policy `[S, A]` of a log and its world; the published ones of
            `METHODS` when left out.
        sizes: of the logs; those of the benchmark when left out.
        logs: how many of each size; those of the benchmark when left out.
        setting: the share or quality of the behaviour; that of the benchmark when left out.
        seed: the same seed, the same worlds and logs.
        margin: how much worse than the behaviour counts as worse; that of the benchmark when left out.
    """
    bench = benchmark(name)
    chosen = METHODS[name] if methods is None else methods
    share = bench.setting if setting is None else setting
    records = [
        outcome(name, share, size, log, seed, label, method)
        for log in range(bench.logs if logs is None else logs)
        for size in sizes or bench.sizes
        for label, method in chosen.items()
    ]
    return summarised(records, margin)


def summarised(records: Sequence[Mapping[str, Any]], margin: float | None = None) -> list[Row]:
    """A row for each size and method, in the order of sizes and, of these, of the records."""
    return list(_rows(records, margin))


def _rows(records: Sequence[Mapping[str, Any]], margin: float | None) -> Iterator[Row]:
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["size"], record["method"]), []).append(record)
    for (size, label), group in sorted(groups.items(), key=lambda item: item[0][0]):
        bench = benchmark(group[0]["benchmark"])
        measures = np.sort([record["measure"] for record in group])
        today = [bench.measured(record["behaviour"], record["behaviour"], record["optimum"]) for record in group]
        gains = np.array([record["measure"] for record in group]) - today
        allowed = bench.margin if margin is None else margin
        count = len(group)
        yield Row(
            size,
            label,
            count,
            float(measures.mean()),
            float(measures.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan,
            float(measures[: math.ceil(bench.tail * count)].mean()),
            # What rounding takes from the behaviour's own value is no loss.
            float((gains < -max(allowed, 1e-9)).mean()),
            float(max(-gains.min(), 0.0)),
        )


def units_of(
    name: str, setting: float, sizes: Sequence[int], labels: Sequence[str], logs: int, seed: int
) -> list[Unit]:
    """One unit for each method and log; the first logs of all sizes come first, so that a part is a sample."""
    return [
        Unit(
            f"{name}/{setting:g}/{size}/{log}/{label.replace(', ', '-').replace(' ', '-')}",
            outcome,
            {"name": name, "setting": setting, "size": size, "log": log, "seed": seed, "label": label},
            # Here rather than in workers: a world and its log serve all of their methods.
            compiled=True,
            cost=1.0,
        )
        for log in range(logs)
        for size in sizes
        for label in labels
    ]


def begin(out: str | Path, seed: int) -> tuple[RunFolder, list[str]]:
    """The folder of a study. A later call may ask for more logs, sizes, methods or benchmarks: its units are kept."""
    return open_folder(out, {"study": "spi", "seed": seed}, {})


def run_study(folder: RunFolder, units: Sequence[Unit], advance: Callable[[Unit], None]) -> list[dict[str, Any]]:
    """Make what is missing, and write the records of these units as JSON and Parquet."""
    run_units(units, folder, Backend(), advance)
    records = [folder.values(unit.name) for unit in units]
    folder.write_results("spi", records)
    return records
