"""`prudent reproduce`: the paper's tables and figures beside the published numbers."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import clear_errors, console

if TYPE_CHECKING:
    from collections.abc import Sequence


class BackendName(StrEnum):
    """Backends of joblib."""

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Any of table1 table2 table3 episodic mimic histograms convergence theory variants, or all.",
            show_default=False,
        ),
    ],
    replications: Annotated[int, typer.Option(help="Data sets of each setting.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Workers for what is not compiled.", min=1)] = 2,
    out: Annotated[Path, typer.Option(help="Run folder; a stopped run goes on from it.")] = Path("reproduction"),
    backend: Annotated[BackendName, typer.Option(help="Where the workers come from.")] = BackendName.LOKY,
) -> None:
    """The paper's tables and figures, beside the published numbers; stop it at any time, run it again to go on.

    Example: prudent reproduce table1 --replications 50 --out reproduction
    """
    with clear_errors():
        from ..experiments.reproduction import ITEMS, RECONSTRUCTION, begin, brpg_seconds, chosen_items, reproduce
        from ..experiments.work import Backend
        from ..report.reproduction import write_index, write_item

        items = chosen_items(what)
        folder, warnings = begin(out, replications, seed)
        terminal = console()
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        with _Progress([unit for item in items for unit in item.units(replications, seed)]) as advance:
            for item in items:
                clock = time.perf_counter()
                records = reproduce(item, folder, replications, seed, Backend(backend.value, jobs), advance)
                write_item(folder.path, item.name, f"{item.title}, {RECONSTRUCTION}", records)
                _print_table(terminal, item.name, f"{item.title}, {RECONSTRUCTION}", records)
                if not sys.stderr.isatty():
                    typer.echo(f"{item.name}: {len(records)} records, {time.perf_counter() - clock:.0f} s", err=True)
        there = [(name, item.title) for name, item in ITEMS.items() if (folder.path / f"{name}.html").exists()]
        index = write_index(folder.path, there)
        if any(item.name.startswith("table") for item in items):
            terminal.print(f"BR-PG cells so far: {brpg_seconds(folder):.0f} s, compilation included")
        terminal.print(f"{replications} replications; records, figures and pages: {index}")


class _Progress:
    """A bar with the time left on a terminal; elsewhere a line when an item's table is printed is enough."""

    def __init__(self, units: Sequence[Any]):
        unique = {unit.name: unit.cost for unit in units}
        self.total = sum(unique.values())
        self.seen: set[str] = set()
        self.bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> Any:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("starting", total=self.total)
        return self.advance

    def advance(self, unit: Any) -> None:
        """A unit is done; items may share it."""
        if unit.name not in self.seen and self.bar is not None:
            self.bar.update(self.task, advance=unit.cost, description=unit.name)
        self.seen.add(unit.name)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _print_table(terminal: Any, item: str, title: str, records: Sequence[dict[str, Any]]) -> None:
    """The item's table; green where a published figure is met within two joint standard errors."""
    from rich.table import Table

    from ..report.reproduction import item_table

    columns, rows = item_table(item, records)
    table = Table(title=f"{item}: {title}", title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in ("method", "statement", "against", "claimed") else "right")
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1]["section"]
        table.add_row(*row["cells"], style={True: "green", False: "yellow", None: None}[row["met"]], end_section=last)
    terminal.print(table)
