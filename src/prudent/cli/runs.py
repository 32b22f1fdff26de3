"""Commands on runs and policies: `prudent evaluate`, `compare`, `continue`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .solve import AsJson, Force, NoReport, Problem, Quiet, Trust, show_run
from .terminal import apart, clear_errors, meaning, over, table

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

        from ..problems import read_problem, risk_name
        from ..report import footing_words, number, with_error
        from ..runs import evaluate_problem

        case = read_problem(problem, trust=trust)
        judged = evaluate_problem(policy, case, samples=samples)
        if as_json:
            said = {"policy": str(policy), "problem": str(problem)}
            typer.echo(json.dumps(said | judged.model_dump(mode="json"), indent=2))
            return
        assert judged.footing is not None
        risk = risk_name(case.facts.file.risk)
        rows = [
            (risk, with_error(judged.risk, judged.risk_standard_error, 5)),
            ("mean", with_error(judged.mean, judged.mean_standard_error, 5)),
            (f"VaR {judged.tail_level:g}", number(judged.value_at_risk, 5)),
            (f"CVaR {judged.tail_level:g}", number(judged.tail_mean, 5)),
            *footing_words(judged.footing, risk),
        ]
        table(f"{policy} {over(judged)}", rows)


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

        from ..report import with_error
        from ..runs import compare_runs

        rows = compare_runs(folders, samples=samples, trust=trust)
        if as_json:
            said = [
                {
                    "folder": str(row.folder),
                    "same_problem": row.same_problem,
                    **row.policy.model_dump(mode="json"),
                    "status": row.record.status,
                    "risk_difference": row.risk_difference.model_dump(),
                    "mean_difference": row.mean_difference.model_dump(),
                }
                for row in rows
            ]
            typer.echo(json.dumps(said, indent=2))
            return
        first = rows[0]
        risk = first.record.risk_name
        table(
            f"Under the problem of {first.folder}, {over(first.policy)}",
            [
                (
                    str(row.folder) + ("" if row.same_problem else " *"),
                    row.record.status.lower().replace("_", " "),
                    with_error(row.policy.risk, row.policy.risk_standard_error, 5),
                    apart(row.risk_difference),
                    with_error(row.policy.mean, row.policy.mean_standard_error, 5),
                    apart(row.mean_difference),
                )
                for row in rows
            ],
            ("run", "status", risk, f"{risk} minus the first's", "mean", "mean minus the first's"),
            left=2,
        )
        typer.echo(meaning(first.policy.exact, [row.risk_difference for row in rows]))
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
