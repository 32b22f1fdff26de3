"""Commands on problem files: `prudent init`, `check`, `solve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import clear_errors, console

if TYPE_CHECKING:
    from ..runs import Run

Problem = Annotated[Path, typer.Argument(help="The problem file, TOML.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Trust = Annotated[bool, typer.Option("--trust", help="Import and run the code that the file's family names.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing; the exit code tells.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Leave out the rival plans and report.html.")]


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write; made if there is none.")] = Path("."),
    force: Force = False,
) -> None:
    """Write a commented example that solves as it is: problem.toml, log.csv, costs.csv.

    Example: prudent init machine && cd machine && prudent solve problem.toml
    """
    with clear_errors():
        from ..problems import write_example

        for path in write_example(folder, force):
            typer.echo(f"wrote {path}")
        typer.echo(f"next:  prudent solve {folder / 'problem.toml'}")


def check(problem: Problem, trust: Trust = False, as_json: AsJson = False) -> None:
    """Read a problem and everything it names, and say what was understood, without solving.

    Example: prudent check problem.toml
    """
    with clear_errors():
        import json

        from ..problems import read_problem
        from ..problems.describing import coverage, describe

        case = read_problem(problem, trust=trust)
        if as_json:
            said = {"states": list(case.states), "actions": list(case.actions), "shape": case.shape}
            typer.echo(json.dumps(said | coverage(case) | {"digest": case.digest()}, indent=2))
            return
        lines(describe(case), f"{problem}: ready to be solved")


def solve(
    problem: Problem,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files; made if there is none.")] = Path(
        "run"
    ),
    risk: Annotated[str, typer.Option(help="Another risk than the file's, such as cvar:0.9 or worst-case.")] = "",
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.", min=0, show_default=False)] = None,
    iterations: Annotated[int | None, typer.Option(help="Another limit.", min=0, show_default=False)] = None,
    force: Force = False,
    trust: Trust = False,
    no_report: NoReport = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Solve a problem file: policy.csv, solution.json, weights.csv, a checkpoint and report.html in a folder.

    The exit code is 0 if solved, 1 if not converged (the files are written all the same), 2 for bad input.

    Example: prudent solve problem.toml --out run
    """
    with clear_errors():
        from ..problems import risk_from_words
        from ..runs import solve_problem

        changes: dict[str, Any] = {"risk": risk_from_words(risk)} if risk else {}
        changes |= {} if seed is None else {"seed": seed}
        changes |= {} if iterations is None else {"solver.iterations": iterations}
        run = solve_problem(
            problem,
            out,
            force=force,
            trust=trust,
            report=not no_report,
            progress=False if quiet or as_json else None,
            changes=changes,
        )
        show_run(run, as_json, quiet, no_report)
    if not run.solved:
        raise typer.Exit(1)


def lines(rows: list[tuple[str, str]], title: str) -> None:
    """Labels and texts; names from files are printed as they are, never as markup."""
    from rich.table import Table
    from rich.text import Text

    terminal = console()
    terminal.print(title, markup=False, highlight=False)
    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    terminal.print(table)


def show_run(run: Run, as_json: bool, quiet: bool, no_report: bool = False) -> None:
    """What a run prints when it is done."""
    import json

    summary = run.record.summary
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    if quiet:
        return
    from rich.table import Table
    from rich.text import Text

    terminal = console()
    risk = run.record.risk_name
    heading = f"{run.record.loss_name} over {summary['draws']} fresh posterior draws, lower is better"
    terminal.print(heading, markup=False, highlight=False)
    table = Table()
    table.add_column("plan", no_wrap=True)
    for column in (risk, "mean", f"VaR {summary['tail_level']:g}"):
        table.add_column(Text(column), justify="right")
    for view in run.record.views:
        table.add_row(
            Text(view.name),
            f"{view.risk:.4f} ± {_error(view.risk_standard_error)}",
            f"{view.mean:.4f} ± {_error(view.mean_standard_error)}",
            f"{view.value_at_risk:.4f}",
        )
    terminal.print(table)
    status = summary["status"].lower().replace("_", " ")
    rows = [f"{status}: {summary['message']}", f"{summary['iterations']} iterations, {summary['seconds']:.1f} s"]
    if summary["lower_bound"] is not None:
        rows.append(f"no policy has a risk below {summary['lower_bound']:.4f}")
    if summary["known_theta_risk"] is not None:
        told = summary["known_theta_risk"]
        gap = summary["risk"] - told
        rows.append(f"{gap:.4f} of the risk comes from not knowing theta: who is told it first risks {told:.4f}")
    if summary["status"] == "ITERATION_LIMIT":
        rows.append(f"go on with: prudent continue {run.folder}")
    rows += [f"wrote {path}" for path in run.files]
    if not no_report and not any(path.suffix == ".html" for path in run.files):
        rows.append("no report.html: it needs the extra report, pip install 'prudent[report]'")
    for row in rows:
        terminal.print(row, markup=False, highlight=False, soft_wrap=True)


def _error(value: float) -> str:
    return "unknown" if value != value else f"{value:.4f}"
