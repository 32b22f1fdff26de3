"""Commands that ask more of a run: `prudent frontier`, `worth`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..interrupts import working_on
from .runs import Folder
from .solve import AsJson, Trust, Wait
from .terminal import clear_errors, say, table


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
            typer.echo(json.dumps(found.model_dump(mode="json"), indent=2))
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
            typer.echo(json.dumps(found.model_dump(mode="json"), indent=2))
            return
        head, rows = worth_rows(found)
        table("What to measure next", rows, head)
        for line in worth_notes(found):
            say(line)
