"""Commands on runs and policies: `prudent evaluate`, `compare`, `continue`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .solve import AsJson, Force, NoReport, Problem, Quiet, Trust, show_run
from .terminal import apart, clear_errors, console, meaning, over, short, with_error

Samples = Annotated[int | None, typer.Option(help="Posterior draws; else the file's.", min=2, show_default=False)]
Folder = Annotated[Path, typer.Argument(help="The --out folder of prudent solve.", show_default=False)]


def evaluate(
    policy: Annotated[
        Path, typer.Argument(help="Table of state, action[, probability]: any policy.", show_default=False)
    ],
    problem: Problem,
    samples: Samples = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Judge any policy under a problem, on the draws that prudent solve reports on.

    Example: prudent evaluate run/policy.csv problem.toml
    """
    with clear_errors():
        import json
        from dataclasses import asdict

        from rich.table import Table
        from rich.text import Text

        from ..problems import read_problem, risk_name
        from ..report.words import standing_words
        from ..runs import evaluate_problem
        from ..runs.judging import tail_level_of
        from ..runs.record import NUMBERS, number

        case = read_problem(problem, trust=trust)
        view = evaluate_problem(policy, case, samples=samples)
        assert view.standing is not None
        if as_json:
            said = {"policy": str(policy), "problem": str(problem), "draws": len(view.losses), "exact": view.exact}
            said |= {name: number(getattr(view, name)) for name in NUMBERS}
            typer.echo(json.dumps(said | {"footing": asdict(view.standing)}, indent=2))
            return
        terminal = console()
        terminal.print(f"{policy} {over(view)}", markup=False, highlight=False)
        table = Table(show_header=False)
        table.add_row(
            Text(risk_name(case.facts.file.risk)), with_error(view.risk, view.risk_standard_error, view.exact)
        )
        table.add_row("mean", with_error(view.mean, view.mean_standard_error, view.exact))
        level = tail_level_of(case.facts.file.risk)
        table.add_row(f"VaR {level:g}", short(view.value_at_risk))
        table.add_row(f"CVaR {level:g}", short(view.tail_mean))
        for label, text in standing_words(view.standing, risk_name(case.facts.file.risk)):
            table.add_row(Text(label), Text(text))
        terminal.print(table)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs; the first is the yardstick.", show_default=False)
    ],
    samples: Samples = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Set runs side by side: their policies under the problem of the first, on the same fresh draws.

    Example: prudent compare run-cautious run-neutral
    """
    with clear_errors():
        import json
        from dataclasses import asdict

        from rich.table import Table
        from rich.text import Text

        from ..problems import risk_name
        from ..runs import compare_runs
        from ..runs.record import NUMBERS, number

        rows = compare_runs(folders, samples=samples, trust=trust)
        if as_json:
            said = [
                {
                    "folder": str(row.folder),
                    "status": row.saved.record["status"],
                    "same_problem": row.same_problem,
                    "risk_difference": {k: number(v) for k, v in asdict(row.risk_difference).items()},
                    "mean_difference": {k: number(v) for k, v in asdict(row.mean_difference).items()},
                }
                | {name: number(getattr(row.view, name)) for name in NUMBERS}
                for row in rows
            ]
            typer.echo(json.dumps(said, indent=2))
            return
        first = rows[0].saved.case
        terminal = console()
        terminal.print(f"Under the problem of {rows[0].folder}, {over(rows[0].view)}", markup=False, highlight=False)
        table = Table()
        risk = risk_name(first.facts.file.risk)
        for column in ("run", "status", risk, f"{risk} minus the first's", "mean", "mean minus the first's"):
            table.add_column(Text(column), justify="left" if column in ("run", "status") else "right")
        for row in rows:
            table.add_row(
                Text(str(row.folder) + ("" if row.same_problem else " *")),
                row.saved.record["status"].lower().replace("_", " "),
                with_error(row.view.risk, row.view.risk_standard_error, row.view.exact),
                apart(row.risk_difference),
                with_error(row.view.mean, row.view.mean_standard_error, row.view.exact),
                apart(row.mean_difference),
            )
        terminal.print(table)
        typer.echo(meaning(rows[0].view.exact))
        if not all(row.same_problem for row in rows):
            typer.echo("* was solved for another question: other data, risk, loss or model")


def continue_(
    folder: Folder,
    data: Annotated[
        list[Path] | None, typer.Option(help="A log of what was observed since: the next episode.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Count a log that was counted before once more.")] = False,
    iterations: Annotated[int | None, typer.Option(help="How many more at most.", min=0, show_default=False)] = None,
    tolerance: Annotated[float | None, typer.Option(help="Another tolerance.", min=0.0, show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Another folder to write to.", show_default=False)
    ] = None,
    force: Force = False,
    trust: Trust = False,
    no_report: NoReport = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run: more iterations, or with --data the next episode under what was observed since.

    Example: prudent continue run --data this-week.csv
    """
    with clear_errors():
        from ..runs import continue_run

        run = continue_run(
            folder,
            data=list(data) if data else None,
            again=again,
            iterations=iterations,
            tolerance=tolerance,
            out=out,
            force=force,
            trust=trust,
            report=not no_report,
            progress=False if quiet or as_json else None,
        )
        show_run(run, as_json, quiet, no_report)
    if not run.solved:
        raise typer.Exit(1)


def report(folder: Folder) -> None:
    """Write report.html of a run again, without solving.

    Example: prudent report run
    """
    with clear_errors():
        from ..runs import report_run

        typer.echo(f"wrote {report_run(folder)}")
