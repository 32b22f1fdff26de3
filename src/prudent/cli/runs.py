"""Commands on runs: `prudent evaluate`, `compare`, `continue`, `prove`, `verify`, `frontier`, `worth`, `report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..interrupts import working_on
from ..phases import phase, status_line
from .solve import AsJson, Force, NoReport, Problem, Quiet, Trust, Wait, end_run
from .terminal import apart, clear_errors, console, meaning, over, say, say_json, table

if TYPE_CHECKING:
    from ..proofs import Moment

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
        from ..problems import read_content

        read_content(problem)  # what is no file or no TOML is refused before anything slow is imported
        from ..problems import read_problem, risk_name
        from ..report import evidence_words, not_carried_words, number, with_error
        from ..runs import evaluate_problem

        case = read_problem(problem, trust=trust)
        judged = evaluate_problem(policy, case, samples=samples)
        if as_json:
            said = {"policy": str(policy), "problem": str(problem)}
            say_json(said | judged.model_dump(mode="json"))
            return
        assert judged.evidence is not None
        risk, tail = risk_name(case.facts.file.risk), f"CVaR {judged.tail_level:g}"
        rows = [
            (risk, with_error(judged.risk, judged.risk_standard_error, 5)),
            ("mean", with_error(judged.mean, judged.mean_standard_error, 5)),
            (f"VaR {judged.tail_level:g}", number(judged.value_at_risk, 5)),
            *([] if risk == tail else [(tail, number(judged.tail_mean, 5))]),
            *evidence_words(judged.evidence, risk),
        ]
        if not judged.carried:
            say(not_carried_words(judged))
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
        from ..report import with_error
        from ..runs import compare_runs

        rows = compare_runs(folders, samples=samples, trust=trust)
        if as_json:
            apart_by = ("risk_difference", "mean_difference")
            said = [
                {"folder": str(row.folder), "same_problem": row.same_problem, **row.policy.model_dump(mode="json")}
                | {"status": row.record.status}
                | {name: getattr(row, name).model_dump() for name in apart_by}
                for row in rows
            ]
            say_json(said)
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
        say(meaning(first.policy.exact, [row.risk_difference for row in rows]))
        if not all(row.same_problem for row in rows):
            say("* was solved for another question: other data, risk, loss or model")


def continue_(
    folder: Folder,
    data: Annotated[
        list[Path] | None, typer.Option(help="A log of what was observed since: the next episode.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Count a log that was counted before once more.")] = False,
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Of a log that begins with rows counted before, count the others.")
    ] = False,
    iterations: Annotated[int | None, typer.Option(help="How many more at most.", min=0, show_default=False)] = None,
    tolerance: Annotated[float | None, typer.Option(help="Another tolerance.", min=0.0, show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Another folder to write to.", show_default=False)
    ] = None,
    force: Force = False,
    wait: Wait = False,
    trust: Trust = False,
    no_report: NoReport = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run: more iterations, or with --data the next episode under what was observed since.

    Example: prudent continue run --data this-week.csv
    """
    progress = False if quiet or as_json else None
    with clear_errors(), status_line(progress):
        phase("reading")
        from ..runs import continue_run

        working_on(folder if out is None else out)
        how = {"force": force, "wait": wait, "trust": trust, "report": not no_report, "progress": progress}
        more = {"again": again, "only_new": only_new, "iterations": iterations, "tolerance": tolerance, "out": out}
        run = continue_run(folder, data=list(data) if data else None, **more, **how)
    if only_new and data and not (quiet or as_json):
        for log in run.case.facts.counted[-len(data) :]:
            held = log.order.rows - log.new
            say(f"{log.name}: {log.new:,} new rows count; the {held:,} before them had been counted")
    end_run(run, as_json, quiet, no_report)


def prove(
    folder: Folder,
    gap: Annotated[float, typer.Option(help="Stop at this share of the risk.", min=0.0)] = 1e-3,
    seconds: Annotated[float, typer.Option(help="Or after searching so long.", min=0.1)] = 60.0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Of policies with one action a state only.")
    ] = False,
    samples: Annotated[int, typer.Option(help="Draws of a posterior that is not a few points.", min=2)] = 64,
    replications: Annotated[int, typer.Option(help="Samples, from which it speaks of the posterior.", min=1)] = 1,
    wait: Wait = False,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Search all stationary policies for a better one than the run's, and prove how much better any could be.

    Example: prudent prove run --seconds 30
    """
    with clear_errors():
        from ..runs import prove_run

        working_on(folder)
        with _searching(quiet) as progress:
            how = {"gap": gap, "seconds": seconds, "deterministic": deterministic, "samples": samples}
            more = {"replications": replications, "wait": wait, "trust": trust, "progress": progress}
            proved = prove_run(folder, **how, **more)
        table(f"Proof for {folder}", proved.proof.rows())
        if proved.path is None:
            say("no file for the verifier: it knows expected costs under the mean, CVaR and mixtures of these")
        else:
            say(f"wrote {proved.path}; check it with prudent verify {folder}")


def verify(folder: Folder, trust: Trust = False) -> None:
    """Check the proof of a run by code that shares nothing with what found it; exit code 2 if it does not hold.

    Example: prudent verify run
    """
    with clear_errors():
        from ..runs import verify_run

        say(verify_run(folder, trust=trust))


def frontier(
    folder: Folder,
    limit: Annotated[str | None, typer.Option(help="The limit to vary; the first one if not named.")] = None,
    points: Annotated[int, typer.Option(help="Levels of the limit.", min=2, max=100)] = 7,
    caution: Annotated[bool, typer.Option("--caution", help="Mean against tail, whatever limits there are.")] = False,
    wait: Wait = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """What a limit of a run costs, level by level; without limits, what caution costs. Both go to its page.

    Example: prudent frontier run
    """
    with clear_errors():
        from ..report import frontier_notes, frontier_rows
        from ..runs import frontier_run, read_record

        working_on(folder)
        found = frontier_run(folder, limit=limit, points=points, caution=caution, trust=trust, wait=wait)
        if as_json:
            say_json(found)
            return
        head, rows = frontier_rows(found)
        record = read_record(folder)
        table(f"{record.risk_name} of the {record.loss_name}, lower is better", rows, head)
        for line in frontier_notes(found, record.loss_name):
            say(line)


def worth(
    folder: Folder,
    observations: Annotated[int, typer.Option(help="How many more of each.", min=1)] = 10,
    pairs: Annotated[int, typer.Option(help="Pairs to look at, those met most first.", min=1)] = 6,
    replications: Annotated[int, typer.Option(help="Simulated logs of each.", min=1)] = 32,
    wait: Wait = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """What to measure next: how far more observations of a pair are expected to lower the least risk.

    Example: prudent worth run --observations 20
    """
    with clear_errors():
        from ..report import worth_notes, worth_rows
        from ..runs import worth_run

        working_on(folder)
        how = {"observations": observations, "pairs": pairs, "replications": replications}
        found = worth_run(folder, **how, trust=trust, wait=wait)
        if as_json:
            say_json(found)
            return
        head, rows = worth_rows(found)
        table("What to measure next", rows, head)
        for line in worth_notes(found):
            say(line)


@contextmanager
def _searching(quiet: bool) -> Iterator[Callable[[Moment], None] | None]:
    """A line with the gap as it falls, on a terminal."""
    screen = console(stderr=True)
    if quiet or not screen.is_terminal:
        yield None
        return
    with screen.status("searching") as status:

        def show(moment: Moment) -> None:
            gap = moment.risk - moment.bound
            status.update(f"searching: gap {gap:.4g}, {moment.nodes:,} boxes, {moment.seconds:.0f} s")

        yield show


def report(folder: Folder, wait: Wait = False) -> None:
    """Write report.html of a run again, without solving.

    Example: prudent report run
    """
    with clear_errors():
        from ..runs import report_run

        working_on(folder)
        say(f"wrote {report_run(folder, wait=wait)}")
