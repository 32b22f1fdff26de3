"""Commands on problem files: `prudent init`, `check`, `solve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..interrupts import working_on
from ..phases import phase, status_line
from .terminal import apart, clear_errors, meaning, over, say, say_json, table

if TYPE_CHECKING:
    from ..report import SolutionRecord
    from ..runs import RuleChange, Run

# Choices that the terminal lists.
MOST_CHOICES = 12

Problem = Annotated[Path, typer.Argument(help="The problem file, TOML.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Trust = Annotated[bool, typer.Option("--trust", help="Import and run the code that the file's family names.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing; the exit code tells.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait while another process changes the folder.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Leave out the rival plans and report.html.")]


def init(
    folder: Annotated[
        Path, typer.Argument(help="Where to write, made if there is none; or a log, to write beside.")
    ] = Path("."),
    force: Force = False,
    linear: Annotated[bool, typer.Option("--linear", help="Of a linear system: problem.toml, log.csv.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="What a column is called, such as state=from; several make up one state.", show_default=False
        ),
    ] = None,
    trajectories: Annotated[
        bool, typer.Option("--trajectories", help="Rows of the log are consecutive steps, without next_state.")
    ] = False,
) -> None:
    """Write a commented example that solves as it is: problem.toml, log.csv, costs.csv. Of a log, its problem.toml.

    Example: prudent init machine && cd machine && prudent solve problem.toml; or: prudent init visits.csv
    """
    with clear_errors():
        if folder.is_file():
            from ..problems import begin_problem

            if linear:
                raise InputError(f"{folder}: is a log; --linear writes an example into a folder")
            begun = begin_problem(folder, force, _called(columns or []), trajectories)
            say(f"wrote {begun.path}")
            if begun.suggestion is not None:
                say(f"{begun.suggestion.sentence}; if you know that this cannot fail, the file says how to say so.")
            say(
                "next:  "
                + ("" if begun.costs else "give costs, which the log has none of; then ")
                + f"prudent check {begun.path}"
            )
            return
        if columns or trajectories:
            raise InputError(f"{folder}: is no log; --columns and --trajectories say how a log is to be read")
        from ..problems import write_example, write_linear_example

        for path in (write_linear_example if linear else write_example)(folder, force):
            say(f"wrote {path}")
        say(f"next:  prudent solve {folder / 'problem.toml'}")


def _called(words: list[str]) -> dict[str, str | list[str]]:
    """`state=from` as `data.columns` would have it; what is named several times is made of all these columns."""
    pairs = [each.partition("=") for each in words]
    for each, (column, sign, _) in zip(words, pairs, strict=True):
        if not column or not sign:
            raise InputError(f"--columns {each!r}: write it like state=from, once for each column")
    called: dict[str, list[str]] = {}
    for column, _, name in pairs:
        called.setdefault(column.strip(), []).append(name.strip())
    return {column: names[0] if len(names) == 1 else names for column, names in called.items()}


def check(problem: Problem, trust: Trust = False, as_json: AsJson = False) -> None:
    """Read a problem and everything it names, and say what was understood, without solving.

    Example: prudent check problem.toml
    """
    with clear_errors():
        from ..problems import read_content

        read_content(problem)  # what is no file or no TOML is refused before anything slow is imported
        from ..problems import fit_of, read_problem, risk_name, suggestion_of
        from ..report import evidence_words, fit_record, fit_words
        from ..runs import changed_by_rule, evidence_before

        case = read_problem(problem, trust=trust)
        said = {"states": list(case.states), "actions": list(case.actions)}
        if case.table() is None:
            said |= {"digest": case.digest(), "transitions": 0} | case.seen()
            if as_json:
                say_json(said)
            else:
                table(f"{problem}: ready to be solved", case.describe())
            return
        suggestion, evidence, fit = suggestion_of(case), evidence_before(case), fit_record(fit_of(case, bands=False))
        change = None if suggestion is None else changed_by_rule(case, suggestion.then)
        if as_json:
            said |= {"shape": case.shape} | case.seen() | {"digest": case.digest()}
            said |= {"suggestion": None if suggestion is None else suggestion.plain() | _plain(change)}
            said |= {"evidence": None if evidence is None else evidence.model_dump(mode="json")}
            said |= {"fit": None if fit is None else fit.model_dump(mode="json", exclude={"bands", "measure"})}
            say_json(said)
            return
        table(f"{problem}: ready to be solved", case.describe())
        if evidence is not None:
            words = evidence_words(evidence, risk_name(case.facts.file.risk))
            table("A plan for the posterior mean, before anything is solved:", words)
        if fit is not None:
            table(f"Does the model fit the log? Time is {fit.when}.", fit_words(fit))
        if change is not None:
            now, then = (f"{risk:.4g}" for risk in (change.risk_now, change.risk_then))
            many = f"{change.states:,} {'state' if change.states == 1 else 'states'}"
            say(
                f"A plan for the posterior mean has {risk_name(case.facts.file.risk)} {now} now and {then} with the "
                f"rule below, each under its own belief, and another action in {many}."
            )
        # Printed as it is, not wrapped: to be copied into the file.
        for line in [] if suggestion is None else suggestion.lines():
            say(line)


def _plain(change: RuleChange | None) -> dict[str, Any]:
    """What a rule would change, for JSON."""
    if change is None:
        return {"risk_now": None, "risk_then": None, "states_changed": None}
    return {"risk_now": change.risk_now, "risk_then": change.risk_then, "states_changed": change.states}


def solve(
    problem: Problem,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files; made if there is none.")] = Path(
        "run"
    ),
    risk: Annotated[str, typer.Option(help="Another risk than the file's, such as cvar:0.9 or worst-case.")] = "",
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.", min=0, show_default=False)] = None,
    iterations: Annotated[int | None, typer.Option(help="Another limit.", min=0, show_default=False)] = None,
    force: Force = False,
    wait: Wait = False,
    trust: Trust = False,
    no_report: NoReport = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Solve a problem file: policy.csv, solution.json, weights.csv, a checkpoint and report.html in a folder.

    The exit code is 0 if the solver converged and the log carries the policy, 1 if not (the files are written all the
    same), 2 for bad input.

    Example: prudent solve problem.toml --out run
    """
    progress = False if quiet or as_json else None
    with clear_errors(), status_line(progress):
        phase("reading")
        from ..problems import read_content

        read_content(problem)  # as above
        from ..problems import risk_from_words
        from ..runs import solve_problem

        working_on(out)
        given = {"risk": risk_from_words(risk) if risk else None, "seed": seed, "solver.iterations": iterations}
        changes = {key: value for key, value in given.items() if value is not None}
        how = {"force": force, "wait": wait, "trust": trust, "report": not no_report, "progress": progress}
        run = solve_problem(problem, out, **how, changes=changes)
    end_run(run, as_json, quiet, no_report)


def end_run(run: Run, as_json: bool, quiet: bool, no_report: bool) -> None:
    """Show a run; the exit code is 1 if it has not converged or the log does not carry its policy."""
    with clear_errors():
        show_run(run, as_json, quiet, no_report)
    if not run.solved:
        raise typer.Exit(1)


def show_run(run: Run, as_json: bool, quiet: bool, no_report: bool = False) -> None:
    """What a run prints when it is done."""
    record = run.record
    if as_json:
        say_json(record)
        return
    if quiet:
        return
    from ..report import evidence_words, limit_words, number, with_error

    risk = record.risk_name
    _show_decision(record, run.folder)
    table(
        f"{record.loss_name} {over(record)}, lower is better",
        [
            (
                plan.name,
                with_error(plan.risk, plan.risk_standard_error, 5),
                apart(plan.difference),
                with_error(plan.mean, plan.mean_standard_error, 5),
                number(plan.value_at_risk, 5),
            )
            for plan in record.plans
        ],
        ("plan", risk, f"{risk} minus this policy's", "mean", f"VaR {record.tail_level:g}"),
    )
    rows = [meaning(record.exact, [plan.difference for plan in record.plans])]
    rows.append(f"{record.status.lower().replace('_', ' ')}: {record.message}")
    rows.append(f"{record.iterations} iterations, {record.seconds:.1f} s")
    rows += [
        f"{limit.name}: {words}"
        for limit in record.limits
        for words in limit_words(limit, record.exact, record.loss_name)
    ]
    rows += [] if record.evidence is None else [f"{k}: {text}" for k, text in evidence_words(record.evidence, risk)]
    # What the log does not carry is no ground for an interval or a bound.
    rows += [*_plan_words(record), *_bound_words(record)] if record.carried else []
    rows += _driver_words(record)
    rows += [] if record.proof is None else [f"proof: {label}: {text}" for label, text in record.proof.lines]
    rows += [f"wrote {path}" for path in run.files]
    if not no_report and not any(path.suffix == ".html" for path in run.files):
        rows.append("no report.html: it needs the extra report, pip install 'prudent[report]'")
    for row in rows:
        say(row)


def _show_decision(record: SolutionRecord, folder: Path) -> None:
    """What to do, before any number: the rule, what is to be minded, and the choices that come up.

    Of many, the states where it begins are listed before others; `policy.csv` has all of them.
    """
    decision = record.decision
    if decision is None:
        return
    from ..report import VERDICTS, cost_words, not_carried_words, percent, promise_words, warnings_of

    found = "what to do" if record.carried else "what the search found"
    lines = [*filter(None, [not_carried_words(record)]), f"{found}: {decision.rule or 'see the table'}"]
    if decision.certain and decision.certain != decision.rule:
        lines.append(f"with nothing left to chance: {decision.certain}")
    lines += [f"{name}: {rule}" for name, rule in decision.others]
    lines += [f"mind: {warning}" for warning in warnings_of(record)]
    lines += [f"the promise: {promise_words(record)}"] if record.carried else []
    for line in lines:
        say(line)
    if not decision.choices:
        return
    order = sorted(
        decision.choices,
        key=lambda choice: (
            choice.number not in decision.starts,
            choice.verdict == "rare",
            not choice.plans,
            -choice.time,
        ),
    )
    order = order[:MOST_CHOICES]
    listed = [choice for choice in decision.choices if choice in order]
    # Whatever is listed, and whatever never comes up, the file has every state.
    every = len(record.state_names)
    left = f" ({len(listed):,} of {every:,}; all are in {folder / 'policy.csv'})" if len(listed) < every else ""
    if decision.alike:
        say(f"where all actions come to the same ({decision.alike:,} of the states that come up), any will do")
    table(
        f"states that come up{left}",
        [
            (each.state, each.act, percent(each.time), each.other or "–", cost_words(each), VERDICTS[each.verdict])
            for each in listed
        ],
        ("state", "do", "of its time", "next best", f"adds to {record.risk_name}", "so the choice"),
        left=2,
    )


def _plan_words(record: SolutionRecord) -> list[str]:
    """How well the risk is known, and what the comparison with the other policies comes to."""
    from ..report import between, compared

    words = [] if record.exact else [f"risk of this policy: {between(*record.interval, record.confidence, 5)}"]
    if record.deterministic is not None:
        words.append(f"one action in each state, at best as found: risk {compared(record.deterministic.difference)}")
    rivals = [plan for plan in record.rivals if plan.risk is not None]
    if rivals:
        best = min(rivals, key=lambda plan: plan.risk or 0.0)
        words.append(f"best rival, {best.name}: risk {compared(best.difference)}")
    return words


def _bound_words(record: SolutionRecord) -> list[str]:
    """How much better a policy could be at most."""
    from ..report import nominally, number

    certificate = record.certificate
    if certificate is None:
        return []
    if record.lower_bound is None or record.gap is None:
        why = certificate.no_bound_because
        return [f"no lower bound on the risk of every policy: {why}"] if why else []
    few = record.on_few
    there = f"on the first {certificate.draws} draws " if few else "" if record.exact else "on these draws "
    told = " (that of who is told theta before planning)" if record.known_theta_risk is not None else ""
    words = [
        f"{there}the risk of every {record.bounded} is at least {number(record.lower_bound, 5)}{told}, "
        f"{number(record.gap, 5)} less than this policy's" + (" there" if few else "")
    ]
    if record.exact and not few:
        return [*words, f"no {record.bounded} is better by more, and learning theta is worth no more"]
    if record.gap_limit is not None:
        sure = f"95 % confidence{nominally(certificate.gap_confidence)}"
        most = f"{number(record.gap_limit, 5)}, and learning theta is worth no more"
        words.append(f"with {sure} no {record.bounded.removesuffix(' there')} is better by more than {most}")
    return words


def _driver_words(record: SolutionRecord) -> list[str]:
    """Which unknowns stand out, or that none does."""
    from ..report import number

    if record.certificate is None or not record.certificate.drivers_considered:
        return []
    looked = f"of {record.certificate.drivers_considered:,} unknowns that the policy meets"
    if not record.drivers:
        return [f"{looked}, none stands out in what makes up the risk"]
    first = record.drivers[0]
    error = "" if record.exact else f" (by chance alone {number(first.standard_error, 2)})"
    shift = f"{'+' if (first.shift or 0.0) > 0 else ''}{number(first.shift, 3)} s.d."
    return [f"{looked}, {first.name} moves farthest under the risk's weights: {shift}{error}"]
