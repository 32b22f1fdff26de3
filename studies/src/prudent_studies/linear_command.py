"""The command of the linear study; it imports the study, and with it JAX, only when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli import clear_errors, console

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
) -> None:
    """A linear system from little data: certainty equivalence against the Bayesian-risk gain; about ten minutes.

    Example: prudent linear --replications 5 --size 60
    """
    with clear_errors():
        from rich.console import Console

        from . import linear as study

        with Console(stderr=True).status("solving"):
            rows = list(study.compare(tuple(size or study.SIZES), replications, seed))
        print_rows(console(), rows)


def print_rows(terminal: Any, rows: Sequence[LinearRow]) -> None:
    """The table of the study, a column for each size of log."""
    from rich.table import Table

    from . import linear as study

    title = f"CVaR {study.LEVEL:g} of a three-state system, means over {rows[0].logs} logs of each size"
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
