"""The command of safe policy improvement; it imports its study only when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli import clear_errors, console

from .commands import empty_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .spi import Benchmark, Row


class BenchmarkName(StrEnum):
    """The benchmarks."""

    WET_CHICKEN = "wet-chicken"
    RANDOM_MDPS = "random-mdps"


def spi(
    name: Annotated[
        BenchmarkName, typer.Argument(metavar="BENCHMARK", help="wet-chicken or random-mdps.")
    ] = BenchmarkName.WET_CHICKEN,
    logs: Annotated[
        int | None, typer.Option(help="Logs of each size; 200 or, of Random MDPs, 100 when left out.", min=1)
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            help="Steps or trajectories of a log; all that were published when left out. May be repeated.", min=1
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Of random actions in Wet Chicken's behaviour; 0.1 when left out.", min=0.0, max=1.0),
    ] = None,
    quality: Annotated[
        float | None,
        typer.Option(help="Of the behaviour of Random MDPs, 0 uniform and 1 optimal; 0.9 when left out."),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="A method, as the table names it; all when left out. May be repeated.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="How much worse than the behaviour counts; 0.1 or, of Random MDPs, 0.01.", min=0.0),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of worlds and logs.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the records; a stopped run goes on from it.")] = Path("spi"),
) -> None:
    """Published methods of safe policy improvement on their two benchmarks; some minutes.

    Example: prudent spi wet-chicken --logs 20 --sizes 500 --sizes 2000
    """
    with clear_errors():
        from prudent import InputError

        from . import spi as study
        from .work import Progress

        wet = name is BenchmarkName.WET_CHICKEN
        if (quality if wet else share) is not None:
            raise InputError(
                f"{name.value} has no --{'quality' if wet else 'share'}; give --{'share' if wet else 'quality'}"
            )
        bench = study.benchmark(name.value)
        given = share if wet else quality
        units = study.units_of(
            name.value,
            bench.setting if given is None else given,
            sizes or bench.sizes,
            study.labels_of(name.value, methods),
            bench.logs if logs is None else logs,
            seed,
        )
        folder, warnings = study.begin(out, seed)
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        with Progress(units) as advance:
            records = study.run_study(folder, units, advance)
        rows = study.summarised(records, margin)
        print_rows(console(), bench, rows, records, bench.margin if margin is None else margin)


def _number(value: float) -> str:
    """Two digits; rounding turns a difference of nothing into -0.00."""
    return f"{round(value, 2) + 0.0:.2f}"


def print_rows(
    terminal: Any, bench: Benchmark, rows: Sequence[Row], records: Sequence[dict[str, Any]], margin: float
) -> None:
    """The table, a section for each size."""
    setting = f"{bench.setting_name} {records[0]['setting']:g}"
    table = empty_table(
        f"{bench.title}, {setting}",
        (bench.size_name, "method", "logs", "mean", "s.e.", f"worst {bench.tail:.0%}", "worse", "most lost"),
        ["method"],
    )
    for number, row in enumerate(rows):
        table.add_row(
            str(row.size),
            row.method,
            str(row.logs),
            *(_number(value) for value in (row.mean, row.error, row.worst)),
            f"{row.worse:.0%}",
            _number(row.lost),
            end_section=number + 1 == len(rows) or rows[number + 1].size != row.size,
        )
    terminal.print(table)
    if bench.relative:
        terminal.print("mean, worst: shares of the possible improvement, 0 for the behaviour and 1 for the optimum.")
    else:
        terminal.print(
            f"The behaviour is worth {records[0]['behaviour']:.2f}, the optimum {records[0]['optimum']:.2f}."
        )
    terminal.print(
        f"worse: logs whose policy is worse than the behaviour by more than {margin:g}; most lost: by how much."
    )
