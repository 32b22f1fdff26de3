"""The commands of the studies; each imports its study, and with it JAX, only when it runs."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli import clear_errors, console

if TYPE_CHECKING:
    from collections.abc import Sequence


def empty_table(title: str | None, columns: Sequence[str], words: Sequence[str] = ()) -> Any:
    """An empty table; columns are of numbers but for those that hold words."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    return table


def estimators(
    seed: Annotated[int, typer.Option(help="Seed of policies, draws and directions.", min=0)] = 0,
) -> None:
    """Every loss and gradient estimator against the exact gradient, on a small lake; about a minute.

    Example: prudent estimators
    """
    with clear_errors():
        from .estimators import DIRECTIONS, DRAWS, LEVEL, agreement, sweeps

        terminal = console()
        orders = [f"zeroth order, m = {count}" for count in DIRECTIONS]
        table = empty_table(
            f"Error of the gradient relative to the adjoint's (CVaR {LEVEL:g} of {DRAWS} posterior draws)",
            ["loss", "check_loss, of the allowed", "variational", *orders],
            words=["loss"],
        )
        for row in agreement(seed):
            table.add_row(
                row.loss,
                f"{row.conformance.worst_share():.0e}",
                f"{row.variational:.1e}",
                *(f"{error:.1e}" for error in row.zeroth_order),
            )
        terminal.print(table)
        for sweep in sweeps(seed):
            terminal.print(f"\nZeroth order against {sweep.setting}: {sweep.law}")
            table = empty_table(None, [sweep.setting, "relative error"], words=[sweep.setting])
            for value, error in zip(sweep.values, sweep.errors, strict=True):
                table.add_row(f"{value:g}", f"{error:.1e}")
            terminal.print(table)


def families(
    replications: Annotated[int, typer.Option(help="Data sets of each size.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Seed of data sets and draws.", min=0)] = 0,
    family: Annotated[
        list[str] | None,
        typer.Option(help="river swim, machine or inventory; all when left out. May be repeated."),
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Data-set size; 5, 50 and 500 when left out. May be repeated.", min=1)
    ] = None,
) -> None:
    """Bayesian-risk policies against plug-in, robust and nested plans, on three families; about five minutes.

    Example: prudent families --replications 10
    """
    with clear_errors():
        from rich.console import Console

        from . import families as study

        chosen = [setting for name in family or study.families() for setting in study.settings(name)]
        words = ("family", "posterior", "policy")
        table = empty_table(
            f"CVaR {study.LEVEL:g} over the posterior and loss under the truth, means over {replications} data "
            "sets of N observations of each unknown",
            ("family", "posterior", "N", "policy", "risk", "s.e.", "above", "s.e.", "truth", "s.e.", "excess"),
            words,
        )
        for column in table.columns[3:]:
            column.no_wrap = True
        with Console(stderr=True).status("") as status:
            for number, setting in enumerate(chosen):
                status.update(f"{setting.family}, {setting.posterior} posterior ({number + 1} of {len(chosen)})")
                for row in study.compare(setting, size or study.SIZES, replications, seed):
                    # Rounding turns a difference of nothing into -0.00.
                    numbers = (f"{round(number, 2) + 0.0:.2f}" for number in row[4:])
                    last = row.method == study.KNOWN
                    table.add_row(row.family, row.posterior, str(row.n), row.method, *numbers, end_section=last)
        terminal = console()
        terminal.print(table)
        terminal.print(
            "above: risk above that of the first policy on the same draws; excess: loss above the optimum under the "
            "truth.\ntheta known: no policy, but the bound that no policy's risk can be below, and the optimum."
        )


def gymnasium(
    seed: Annotated[int, typer.Option(help="Seed of walks, draws and tests.", min=0)] = 0,
    rollouts: Annotated[int, typer.Option(help="Walks of the uniform policy that are logged.", min=1)] = 100,
    episodes: Annotated[int, typer.Option(help="Test episodes of each policy.", min=1)] = 2000,
) -> None:
    """Gymnasium's FrozenLake-v1 solved from its own rollouts, and the policies tested in it.

    Example: prudent gymnasium --rollouts 100
    """
    with clear_errors():
        from .gymnasium import LEVEL, run_gymnasium

        result = run_gymnasium(seed, rollouts, episodes)
        table = empty_table(
            f"FrozenLake-v1 from {result.transitions} logged steps ({result.rollouts} uniform walks), tested on "
            f"{result.episodes} episodes",
            ("policy", "success", "s.e.", "mean steps", f"CVaR {LEVEL:g} over the posterior", "loss in truth"),
            words=["policy"],
        )
        for row in result.rows:
            table.add_row(
                row.name,
                f"{row.success:.1%}",
                f"{row.standard_error:.1%}",
                f"{row.steps:.1f}",
                f"{row.risk:.4f}",
                f"{row.truth_loss:.4f}",
            )
        console().print(table)


def worth_study(
    data_sets: Annotated[int, typer.Option(help="How many data sets.", min=2)] = 50,
    n: Annotated[int, typer.Option("--n", help="Trials of each coordinate in a data set.", min=1)] = 10,
    observations: Annotated[int, typer.Option(help="Trials that are added to one coordinate.", min=1)] = 20,
    drawn: Annotated[bool, typer.Option("--drawn", help="Draw each data set's truth from the prior.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of truths, data and draws.", min=0)] = 0,
) -> None:
    """What worth_of_data foretells on machine replacement, and what adding the data brings; some minutes.

    Example: prudent worth-study --data-sets 50
    """
    with clear_errors():
        from rich.console import Console

        from prudent.envs import machine_replacement

        from .worth import MEASURES, worth_rankings

        machine = machine_replacement()
        with Console(stderr=True).status("solving for every count that the added trials can show"):
            truth = None if drawn else machine.truth
            rankings = worth_rankings(machine, truth, data_sets=data_sets, n=n, observations=observations, seed=seed)
        where = "truths drawn from the prior" if drawn else f"the truth {tuple(map(float, machine.truth))}"
        terminal = console()
        table = empty_table(
            f"{observations} more trials of one unknown, CVaR 0.5, means over {data_sets} data sets of {n} "
            f"trials of each, {where}",
            ("trials of", "foretold", *MEASURES),
            words=["trials of"],
        )
        for name, *means in zip(machine.names, *rankings.means(), strict=True):
            table.add_row(name, *(f"{mean:.2f}" for mean in means))
        agreement = empty_table(
            "The foretold ranking of the three against",
            ("", "rank correlation", "s.e.", "data sets", "over all", "same first"),
            words=[""],
        )
        for name, row in rankings.agreements().items():
            agreement.add_row(
                name,
                f"{row.correlation:.2f}",
                f"{row.standard_error:.2f}",
                str(row.data_sets),
                f"{row.pooled:.2f}",
                f"{row.same_first:.0%}",
            )
        terminal.print(table)
        terminal.print(agreement)
        for name, meaning in MEASURES.items():
            typer.echo(f"{name}: {meaning}.")
        typer.echo("rank correlation: mean over the data sets that do not tie; over all: of all worths at once.")


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
        from .pages import write_index, write_item
        from .reproduction import ITEMS, RECONSTRUCTION, begin, brpg_seconds, chosen_items, reproduce
        from .work import Backend, Progress

        items = chosen_items(what)
        folder, warnings = begin(out, replications, seed)
        terminal = console()
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        with Progress([unit for item in items for unit in item.units(replications, seed)]) as advance:
            for item in items:
                clock = time.perf_counter()
                records = reproduce(item, folder, replications, seed, Backend(backend.value, jobs), advance)
                write_item(folder.path, item.name, f"{item.title}, {RECONSTRUCTION}", records)
                print_item(terminal, item.name, f"{item.name}: {item.title}, {RECONSTRUCTION}", records)
                if not sys.stderr.isatty():
                    typer.echo(f"{item.name}: {len(records)} records, {time.perf_counter() - clock:.0f} s", err=True)
        there = [(name, item.title) for name, item in ITEMS.items() if (folder.path / f"{name}.html").exists()]
        index = write_index(folder.path, there)
        if any(item.name.startswith("table") for item in items):
            terminal.print(f"BR-PG cells so far: {brpg_seconds(folder):.0f} s, compilation included")
        terminal.print(f"{replications} replications; records, figures and pages: {index}")


def print_item(terminal: Any, item: str, title: str, records: Sequence[dict[str, Any]]) -> None:
    """The item's table; green where a published figure is met within two joint standard errors."""
    from .pages import WORDS, item_table

    columns, rows = item_table(item, records)
    table = empty_table(title, columns, WORDS)
    for number, row in enumerate(rows):
        last = number + 1 == len(rows) or rows[number + 1]["section"]
        table.add_row(*row["cells"], style={True: "green", False: "yellow", None: None}[row["met"]], end_section=last)
    terminal.print(table)


def promise(
    replications: Annotated[int, typer.Option(help="Logs of each size.", min=1)] = 20,
    environments: Annotated[
        list[str] | None, typer.Option(help="A known environment; all when left out. May be repeated.")
    ] = None,
    sizes: Annotated[
        list[int] | None, typer.Option(help="Steps of a log; 100, 500, 3000 when left out. May be repeated.", min=1)
    ] = None,
    candidates: Annotated[
        list[str] | None, typer.Option(help="A kind of belief; all when left out. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of logs and draws.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the records; a stopped run goes on from it.")] = Path("promise"),
    so_far: Annotated[bool, typer.Option("--so-far", help="Solve nothing; print what is in the folder.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Solve each log with the default solver, too, and print what that changes.")
    ] = False,
) -> None:
    """Whether the stated risk is kept in environments with known kernels, belief by belief; hours at full length.

    Example: prudent promise --replications 2 --environments river_swim --candidates pooled
    """
    with clear_errors():
        from rich.console import Console
        from rich.table import Table

        from . import promise as study
        from . import promise_tables

        units = study.units_of(
            study.chosen(environments, list(study.KNOWN), "environment"),
            sizes or study.SIZES,
            study.chosen(candidates, list(study.CANDIDATES), "candidate", list(study.PROBES)),
            replications,
            seed,
            full,
        )
        folder, warnings = study.begin(out, seed)
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        with Console(stderr=True).status("") as status:

            def advance(unit: study.Unit) -> None:
                status.update(f"{unit.name}, of {len(units)}")

            records = study.finished(folder, units) if so_far else study.run_study(folder, units, advance)
        terminal = console()
        for title, rows in promise_tables.tables(records).items():
            table = Table(title=f"CVaR {study.LEVEL:g} stated and kept, {title}", title_justify="left")
            for column in ("", "belief"):
                table.add_column(column, no_wrap=True)
            for column in ("logs", "kept %", "regret", "likelihood's", "mean's", "slack", "warned", "unwarned"):
                table.add_column(column, justify="right")
            for row in rows:
                pairs = (
                    (row.regret, row.regret_error),
                    (row.likelihood, row.likelihood_error),
                    (row.mean, row.mean_error),
                    (row.slack, row.slack_error),
                )
                table.add_row(
                    row.label,
                    row.candidate,
                    str(row.logs),
                    f"{100 * row.kept:.0f} ({100 * row.kept_error:.0f})",
                    *(f"{round(value, 2) + 0.0:.2f} ({error:.2f})" for value, error in pairs),
                    "–" if row.warned != row.warned else f"{row.warned:.0%}",
                    f"{row.broken_unwarned:.0%}",
                )
            terminal.print(table)
        for name in dict.fromkeys(record["candidate"] for record in records):
            terminal.print(f"{name}: {study.MEANINGS[name]}")
        for row in promise_tables.differences(records):
            terminal.print(
                f"{row.candidate}, {row.label}: regret {row.regret:+.3f} ({row.error:.3f}) against {row.first}, log by "
                f"log, {row.logs} logs"
            )
        terminal.print(
            f"{len(records)} of {len(units)} solved; in brackets, one standard error.\nregret: loss above the optimum, "
            "as a share of what uniform actions lose above it; likelihood's, mean's: of the plans at the\nmaximum "
            "likelihood and at the posterior mean; slack: stated risk above the loss; warned: of the logs that "
            "kept it, those with a warning; unwarned: broken without one"
        )
        thrift = promise_tables.thrift(records)
        if thrift is not None:
            terminal.print(
                f"{thrift.logs} logs solved with the default solver, too: it states {thrift.stated:+.2f} standard "
                f"errors on average, at most {thrift.stated_largest:.2f} apart; regret {thrift.regret:+.3f} "
                f"({thrift.regret_error:.3f}); kept by one only: {thrift.kept}, warned of one only: {thrift.warned}"
            )
