"""Commands on problem files: `prudent init`, `check`, `solve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import apart, clear_errors, console, meaning, over, short, with_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..runs import Run, View
    from ..runs.record import Record

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
        from dataclasses import asdict

        from ..problems import coverage, describe, read_problem, risk_name, suggestion_of
        from ..report.words import standing_words
        from ..runs.footing import standing_before

        case = read_problem(problem, trust=trust)
        suggestion, standing = suggestion_of(case), standing_before(case)
        if as_json:
            said = {"states": list(case.states), "actions": list(case.actions), "shape": case.shape}
            said |= coverage(case) | {"digest": case.digest()}
            said |= {"suggestion": None if suggestion is None else suggestion.plain()}
            said |= {"footing": None if standing is None else asdict(standing)}
            typer.echo(json.dumps(said, indent=2))
            return
        lines(describe(case), f"{problem}: ready to be solved")
        if standing is not None:
            words = standing_words(standing, risk_name(case.facts.file.risk))
            lines(words, "A plan for the posterior mean, before anything is solved:")
        # Printed as it is, not wrapped: to be copied into the file.
        for line in [] if suggestion is None else suggestion.lines():
            typer.echo(line)


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

    The exit code is 0 if it converged, 1 if not (the files are written all the same), 2 for bad input.

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

    from ..report.words import standing_words
    from ..runs.footing import standing_from

    terminal = console()
    risk, ours = run.record.risk_name, run.record.views[0]
    terminal.print(f"{run.record.loss_name} {over(ours)}, lower is better", markup=False, highlight=False)
    table = Table()
    table.add_column("plan", no_wrap=True)
    for column in (risk, f"{risk} minus this policy's", "mean", f"VaR {summary['tail_level']:g}"):
        table.add_column(Text(column), justify="right")
    for view in run.record.views:
        table.add_row(
            Text(view.name),
            with_error(view.risk, view.risk_standard_error, view.exact),
            apart(view.difference),
            with_error(view.mean, view.mean_standard_error, view.exact),
            short(view.value_at_risk),
        )
    terminal.print(table)
    status = summary["status"].lower().replace("_", " ")
    rows = [meaning(ours.exact), f"{status}: {summary['message']}"]
    rows.append(f"{summary['iterations']} iterations, {summary['seconds']:.1f} s")
    standing = standing_from(summary["footing"])
    rows += [] if standing is None else [f"{label}: {text}" for label, text in standing_words(standing, risk)]
    rows += [*_plan_words(run.record.views), *_bound_words(summary), *_driver_words(run.record)]
    rows += [f"wrote {path}" for path in run.files]
    if not no_report and not any(path.suffix == ".html" for path in run.files):
        rows.append("no report.html: it needs the extra report, pip install 'prudent[report]'")
    for row in rows:
        terminal.print(row, markup=False, highlight=False, soft_wrap=True)


def _plan_words(views: Sequence[View]) -> list[str]:
    """What the comparison with the deterministic policy and with the best rival comes to."""
    from ..report.words import compared

    certain = [view for view in views if view.kind == "deterministic"]
    words = [f"one action in each state, at best as found: risk {compared(view.difference)}" for view in certain]
    rivals = [view for view in views if view.kind == "rival"]
    if rivals:
        best = min(rivals, key=lambda view: view.risk)
        words.append(f"best rival, {best.name}: risk {compared(best.difference)}")
    return words


def _bound_words(summary: dict[str, Any]) -> list[str]:
    """How much better a policy could be at most."""
    certificate, bound, gap = summary["certificate"], summary["lower_bound"], summary["gap"]
    if bound is None or gap is None:
        why = certificate["no_bound_because"] if certificate else None
        return [f"no lower bound on the risk of every policy: {why}"] if why else []
    few = certificate["draws"] < summary["draws"]
    there = f"on the first {certificate['draws']} draws " if few else "" if summary["exact"] else "on these draws "
    told = " (that of who is told theta before planning)" if summary["known_theta_risk"] is not None else ""
    words = [
        f"{there}the risk of every policy is at least {short(bound)}{told}, {short(gap)} less than this policy's"
        + (" there" if few else "")
    ]
    if summary["exact"] and not few:
        return [*words, "no policy is better by more, and learning theta is worth no more"]
    if summary["gap_limit"] is not None:
        most = f"{short(summary['gap_limit'])}, and learning theta is worth no more"
        words.append(f"with 95 % confidence no policy is better by more than {most}")
    return words


def _driver_words(record: Record) -> list[str]:
    """Which unknowns stand out, or that none does."""
    certificate = record.summary["certificate"]
    if certificate is None or not certificate["drivers_considered"]:
        return []
    looked = f"of {certificate['drivers_considered']:,} unknowns that the policy meets"
    if not record.drivers:
        return [f"{looked}, none stands out in what makes up the risk"]
    first = record.drivers[0]
    error = "" if record.summary["exact"] else f" (by chance alone {first.standard_error:.2g})"
    return [f"{looked}, {first.name} moves farthest under the risk's weights: {first.shift:+.2f} s.d.{error}"]
