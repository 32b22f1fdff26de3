"""The commands of the studies of solvers; each imports its study, and with it JAX, only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli import clear_errors, console
from prudent.errors import InputError

from .commands import empty_table, print_item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .linear import LinearRow


def linear(
    replications: Annotated[int, typer.Option(help="Logs of each size.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the first log.", min=0)] = 0,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Transitions of a log; 24, 60 and 240 when left out. May be repeated.", min=6),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the CVaR; 0 for the mean.", min=0.0, max=0.99)] = 0.9,
    rates: Annotated[
        bool, typer.Option("--rates", help="Measure the paper's rates in draws and iterations instead.")
    ] = False,
) -> None:
    """A linear system from little data: certainty equivalence against the Bayesian-risk gain; about ten minutes.

    Example: prudent linear --replications 5 --size 60
    """
    with clear_errors():
        from rich.console import Console

        from . import linear as study

        if rates:
            if size:
                raise InputError(f"--rates are those of one log, of {study.RATES_SIZE} transitions; leave --size out")
            with Console(stderr=True).status("measuring"):
                records = study.rates(seed, replications)
            print_item(console(), "theory", f"The paper's rates on a linear system, {replications} runs", records)
            return
        with Console(stderr=True).status("solving"):
            rows = list(study.compare(tuple(size or study.SIZES), replications, seed, level))
        print_rows(console(), rows, level)


def fit(
    logs: Annotated[int, typer.Option(help="Simulated logs of each kind.", min=2)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the first log.", min=0)] = 0,
    only: Annotated[str, typer.Option(help="Kinds of logs whose names begin so, such as right or order.")] = "",
) -> None:
    """How often the tests of `prudent check` raise a false alarm, and find what is wrong; about ten minutes.

    Example: prudent fit --logs 50 --only order
    """
    with clear_errors():
        from . import fit as study

        title = f"Share of {logs} simulated logs in which a test says no at 5 %"
        table = empty_table(title, ("log", *study.NAMES, "any"), ("log",))
        for kind, row in study.compare(logs, seed, only):
            table.add_row(kind, *(f"{100.0 * share:.1f} %" if share == share else "–" for share in row))
        console().print(table)
        console().print("single tests by their own p values; any: one of them says no, adjusted for their number")


def print_rows(terminal: Any, rows: Sequence[LinearRow], level: float) -> None:
    """The table of the study, a column for each size of log."""
    from rich.table import Table

    title = f"CVaR {level:g} of a three-state system, means over {rows[0].logs} logs of each size"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row.size} transitions", justify="right")
    names = ("certainty equivalence", "cautious gain", "ours")
    lines = [
        *((f"finite risk, {name}", [f"{row.finite[k]} of {row.logs}" for row in rows]) for k, name in enumerate(names)),
        ("risk, certainty equivalence", [_number(row.risks[0]) for row in rows]),
        ("risk, ours", [_number(row.risks[1]) for row in rows]),
        ("lower bound", [_number(row.bound) for row in rows]),
        ("gap", ["–" if row.gap != row.gap else f"{row.gap:.2%}" for row in rows]),
        ("logs where ours is worse", [f"{row.worse} of {row.logs}" for row in rows]),
        *((f"unstable draws, {name}", [f"{row.unstable[k]:.2%}" for row in rows]) for k, name in enumerate(names)),
        *((f"cost at the truth, {name}", [_number(row.truths[k]) for row in rows]) for k, name in enumerate(names)),
        ("cost at the truth if it were known", [_number(row.best) for row in rows]),
        ("seconds of the longest solution", [f"{row.seconds:.0f}" for row in rows]),
    ]
    for label, cells in lines:
        table.add_row(label, *cells)
    terminal.print(table)
    terminal.print(
        "risks, bound and gap: over the logs in which certainty equivalence and ours are both finite, on the same "
        "fresh draws; the rest over all logs"
    )


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def proofs(
    seconds: Annotated[float, typer.Option(help="Of the search, for each.", min=0.1)] = 60.0,
    only: Annotated[
        str, typer.Option(help="Posteriors with this in name and level, such as lake or 'Beta(1, 6), 0.5'.")
    ] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Have the verifier check each proof.")] = False,
    figure: Annotated[Path | None, typer.Option(help="A PNG of the gap over time.")] = None,
) -> None:
    """How far the gap to the best stationary policy is proved closed, on posteriors of 36 or 64 atoms; minutes.

    What was proved of each is said as it comes.

    Example: prudent proofs --seconds 10 --only lake
    """
    with clear_errors():
        from .proofs import TIMES, cells, gap_figure
        from .proofs import proofs as proved

        if not any(only in cell.label for cell in cells()):
            labels = "; ".join(cell.label for cell in cells())
            raise InputError(f"no posterior and level have {only!r} in them; there are {labels}")

        reached = [when for when in TIMES if when <= seconds]
        table = empty_table(
            f"Gap to the best stationary policy, as a share of the risk, proved in {seconds:g} s",
            [
                "posterior",
                "beta",
                "risk",
                "theta known",
                *(f"{when:g} s" for when in reached),
                "at the end",
                "boxes",
                "seconds",
                "of processors",
                "gained on solve",
                *(["verified gap"] if verify else []),
            ],
            words=["posterior"],
        )
        rows = []
        for row in proved(seconds, only, verify):
            rows.append(row)
            console().print(f"{row.name}, CVaR {row.level:g}: {row.gaps[-1]:.3%} after {row.seconds:.1f} s")
        for row in rows:
            notes = [f"{gap:.3%}" for gap in row.gaps[:-1]] + [""] * (len(reached) + 1 - len(row.gaps))
            table.add_row(
                row.name,
                f"{row.level:g}",
                f"{row.risk:.3f}",
                f"{row.known_gap:.3%}",
                *notes[: len(reached)],
                f"{row.gaps[-1]:.3%}",
                f"{row.nodes}",
                f"{row.seconds:.1f}",
                f"{row.processor:.1f}",
                f"{row.better:.3%}",
                *([] if row.verified is None else [f"{(row.risk - row.verified) / abs(row.risk):.3%}"]),
            )
        console().print(table)
        if figure is not None and rows:
            gap_figure(rows, figure)
            typer.echo(f"wrote {figure}")


def optimisers(
    replications: Annotated[int, typer.Option(help="Data sets a cell.", min=1)] = 1,
    references: Annotated[int, typer.Option(help="Data sets with 64 long runs from random starts.", min=0)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
) -> None:
    """The paper's algorithm, one natural-gradient run and the default on the lake's twelve cells; some minutes.

    Example: prudent optimisers --replications 50
    """
    with clear_errors():
        from .optimisers import COMMON, FRUGAL, PAPER, RANDOM_STARTS, compare_optimisers

        rows = compare_optimisers(replications, references, seed)
        terminal = console()
        cell, best = ("escape", "N", "beta"), f"above best of {RANDOM_STARTS}"
        objectives = empty_table(
            f"CVaR of the loss on {COMMON} common draws, on our reconstruction of the paper's map; means over "
            f"{replications} data sets",
            (*cell, "paper", "natural", "against paper", "default", best, "gap"),
        )
        costs = empty_table(
            "Gradients of a model, and loss under the truth",
            (*cell, "paper", "natural", "default", "truth: paper", "natural", "default"),
        )
        for row in rows:
            place = (f"{row.escape:g}", str(row.n), f"{row.beta:g}")
            objectives.add_row(
                *place,
                f"{row.paper:.3f}",
                f"{row.natural:.3f}",
                f"{row.natural / row.paper - 1.0:+.2%}",
                f"{row.default:.3f}",
                f"{row.above_best:+.3%}" if references else "–",
                f"{row.gap:.3f}",
                end_section=row.beta == 0.9,
            )
            counts = (PAPER.samples * PAPER.iterations, row.natural_models, row.default_models)
            costs.add_row(
                *place,
                *(f"{count:.0f}" for count in counts),
                *(f"{loss:.3f}" for loss in row.truth),
                end_section=row.beta == 0.9,
            )
        terminal.print(objectives)
        terminal.print(costs)
        worst = max(row.worst_against_paper for row in rows)
        typer.echo(
            f"natural: one start, at most {FRUGAL.samples * FRUGAL.iterations} gradients; at worst {worst:+.2%} "
            f"against the paper's algorithm on any data set.\nabove best of {RANDOM_STARTS}: the default against the "
            f"best of that many long runs from random policies, at worst on {min(references, replications)} data sets."
        )


def limits(
    problem: Annotated[str, typer.Option(help="maintenance or inventory.")] = "maintenance",
    truths: Annotated[int, typer.Option(help="Drawn from the prior, each with a log; 0 for the example.", min=0)] = 0,
    chance: Annotated[float, typer.Option(help="With which the limit is asked for.", min=0.5, max=0.999)] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of truths, data and draws.", min=0)] = 1,
    figure: Annotated[Path | None, typer.Option(help="Where to draw the example's curve, a PNG.")] = None,
) -> None:
    """What a limit costs and who keeps it: one log, its curve and plans beside it; or many truths, some seconds each.

    Example: prudent limits --problem inventory --truths 200
    """
    with clear_errors():
        from . import limits as study

        if problem not in study.SETTINGS:
            raise InputError(f"--problem {problem!r} is unknown; use {' or '.join(study.SETTINGS)}")
        setting = study.SETTINGS[problem]()
        if not truths:
            _print_example(setting, study.example(setting, chance, seed), chance, figure)
            return
        found = []
        for outcome in study.outcomes(setting, truths, chance, seed):
            found.append(outcome)
            if len(found) % 10 == 0 and len(found) < truths:
                so_far = study.summary(found, chance)
                typer.echo(
                    f"{len(found)} truths: {so_far['shown to be kept']} shown, {so_far['kept by the truth']:.1%} kept",
                    err=True,
                )
        table = empty_table(f"{problem}: a limit asked for with a chance of {chance:g}", ("", "value"), ("",))
        for name, value in study.summary(found, chance).items():
            table.add_row(name, f"{value:.4g}")
        console().print(table)


def _print_example(setting: Any, found: Any, chance: float, figure: Path | None) -> None:
    """Policy, curve, price and plans of an example."""
    terminal = console()
    terminal.print(
        f"{setting.name}: {setting.limit_name}, at most {setting.at_most:g} {setting.unit} with a chance of {chance:g}",
        highlight=False,
    )
    table = empty_table("Policy", ("state", *setting.actions), ("state",))
    for name, row in zip(setting.states, found.solution.policy.probabilities, strict=True):
        table.add_row(name, *(f"{share:.3f}" for share in row))
    terminal.print(table)
    for label, text in found.solution.rows():
        if label in ("status", "risk", setting.limit_name) or not label:
            terminal.print(f"{label or 'price'}: {text}", highlight=False)
    head, *rows = found.curve.rows()
    table = empty_table(f"What {setting.limit_name} at most so much cost", head)
    for row in rows:
        table.add_row(*row)
    terminal.print(table)
    if found.curve.least == found.curve.least:
        terminal.print(f"below {found.curve.least:.4g} no policy keeps it (95 % confidence)", highlight=False)
    head = ("plan", "CVaR 0.9", "mean cost", f"mean {setting.limit_name}", "breaks the limit")
    table = empty_table(f"Plans at {found.truths:,} truths drawn from the belief", head, ("plan",))
    for plan in found.plans:
        share = f"{plan.broken:.1%} ({plan.low:.1%} to {plan.high:.1%})"
        table.add_row(plan.name, f"{plan.risk:.2f}", f"{plan.mean:.2f}", f"{plan.limited:.3f}", share)
    terminal.print(table)
    if figure is not None:
        from .limits import limit_frontier_figure

        limit_frontier_figure(found.curve, figure)
