"""Timing contenders in turn, round after round, so that a slow moment of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

console = Console(width=110)


def side_by_side(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of each contender in each round, after one unmeasured round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, call in contenders.items():
            clock = time.perf_counter()
            call()
            if number:
                seconds[name].append(time.perf_counter() - clock)
    return {name: np.array(values) for name, values in seconds.items()}


def peak_memory() -> float:
    """Peak of this process, GiB; by Linux, because `getrusage` counts what the process that began it had, too."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20


def ratio(top: np.ndarray, bottom: np.ndarray) -> float:
    """Median over rounds of the ratio within a round."""
    return float(np.median(top / bottom))


def report(title: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(header):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def verdict(value: float, limit: float, at_least: bool = False) -> str:
    met = value >= limit if at_least else value <= limit
    return f"{'≥' if at_least else '≤'} {limit:g} {'met' if met else 'MISSED'}"
