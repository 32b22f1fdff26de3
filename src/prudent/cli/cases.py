"""`prudent case`: a real case from its data to its page, and its plans on what they did not see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .solve import Force, show_run
from .terminal import clear_errors, console, say, table


def case(
    name: Annotated[str, typer.Argument(help="bus, nile or hiv.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder; the name when left out.")] = None,
    splits: Annotated[int, typer.Option(help="How often a part of the data is drawn to plan on.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the parts.", min=0)] = 0,
    write_only: Annotated[
        bool, typer.Option("--write-only", help="Write the problem file and its tables alone.")
    ] = False,
    force: Force = False,
) -> None:
    """Run a real case: bus engines, a reservoir on the Nile, HIV treatment; the report, and plans on held-out data.

    Example: prudent case nile --out nile
    """
    with clear_errors():
        from ..cases import run_case, summary, table_rows, write_case

        folder = Path(name) if out is None else out
        if write_only:
            for path in write_case(name, folder, force):
                say(f"wrote {path}")
            return
        found = run_case(name, folder, splits=splits, seed=seed, force=force)
        show_run(found.run, as_json=False, quiet=False)
        rows = summary(found.outcomes)
        heads, cells = table_rows(rows, any(row.tail == row.tail for row in rows))
        table("Plans made on a part of the data, and what became of them on the rest; lower is better", cells, heads, 3)
        for line in (
            "held out: with one standard error over the splits, or by resampling the units of a single one",
            "less cautious: the loss less that of the cautious plan, split by split",
            "kept: splits in which the loss was at most the stated CVaR, of those in which the plan can be made",
            f"wrote {found.files[-1]}",
        ):
            console().print(line, markup=False, highlight=False, soft_wrap=True)
