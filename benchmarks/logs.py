"""Logs of ten million rows: counted, against pyarrow merely reading the same file; and the memory that takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, json, parquet

from prudent.tables import Names, count_log

from .measuring import console, ratio, report, side_by_side, verdict

ROWS, STATES = 10_000_000, 100
FEWER = 1_000_000  # of JSON lines, which take ten times as long to read for anyone
LIMIT, GIBIBYTES = 3.0, 2.0

# Not getrusage's peak: a child process inherits its parent's.
PEAK = """
import re, sys
from pathlib import Path
from prudent.tables import Names, count_log
count_log([sys.argv[1]], Names("state"), Names("action"))
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 2**20)
"""


class Kind(NamedTuple):
    name: str
    path: Path
    rows: int
    read: Callable[[Path], Any]


def write_logs(folder: Path) -> list[Kind]:
    """The same log as CSV, Parquet and JSON lines; and once more with numbers for names."""
    chance = np.random.default_rng(0)
    sizes = {"state": STATES, "action": 4, "next_state": STATES}
    numbers = pa.table({column: chance.integers(size, size=ROWS) for column, size in sizes.items()})
    names = pa.array([f"state {k}" for k in range(STATES)])
    named = pa.table({column: names.take(numbers[column]) for column in sizes})
    kinds = [
        Kind("CSV, names", folder / "log.csv", ROWS, csv.read_csv),
        Kind("CSV, numbers", folder / "numbers.csv", ROWS, csv.read_csv),
        Kind("Parquet", folder / "log.parquet", ROWS, parquet.read_table),
        Kind("JSON lines", folder / "log.jsonl", FEWER, json.read_json),
    ]
    csv.write_csv(named, kinds[0].path)
    csv.write_csv(numbers, kinds[1].path)
    parquet.write_table(named, kinds[2].path)
    with kinds[3].path.open("w") as file:
        rows = zip(*(column.to_pylist() for column in named.slice(0, FEWER).columns), strict=True)
        file.writelines(f'{{"state":"{s}","action":"{a}","next_state":"{t}"}}\n' for s, a, t in rows)
    return kinds


def count(kind: Kind) -> None:
    counts = count_log([kind.path], Names("state"), Names("action"))
    assert counts.count.sum() == kind.rows


def run(rounds: int) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in write_logs(Path(folder)):
            calls = {"prudent": lambda kind=kind: count(kind), "pyarrow": lambda kind=kind: kind.read(kind.path)}
            seconds = side_by_side(calls, rounds)
            alone = subprocess.run([sys.executable, "-c", PEAK, kind.path], capture_output=True, text=True, check=True)
            slower, peak = ratio(seconds["prudent"], seconds["pyarrow"]), float(alone.stdout)
            rows.append(
                (
                    f"{kind.name}, {kind.rows // 1_000_000} million",
                    f"{kind.rows / np.median(seconds['prudent']) / 1e6:.2f} M",
                    f"{kind.rows / np.median(seconds['pyarrow']) / 1e6:.2f} M",
                    f"{slower:.2f}, {verdict(slower, LIMIT)}",
                    f"{peak:.2f} GiB, {verdict(peak, GIBIBYTES)}",
                )
            )
    header = ("log", "rows a second", "pyarrow's", "time, ratio", "peak memory")
    report(f"Logs read and counted, against pyarrow merely reading them, median of {rounds}", header, rows)
    console.print()
