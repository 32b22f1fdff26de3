"""`prudent reproduce`: the paper's results beside the published figures."""

from __future__ import annotations

from typing import Annotated

import typer

from .terminal import clear_errors, console

app = typer.Typer(help="The paper's results, beside the published figures.", no_args_is_help=True)


@app.command()
def brpg(
    replications: Annotated[int, typer.Option(help="Data sets a cell.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
) -> None:
    """The twelve BR-PG cells of the frozen-lake tables beside the published means.

    Example: prudent reproduce brpg --replications 50
    """
    with clear_errors():
        import time

        from rich.table import Table

        from ..experiments.lake_tables import brpg_cells

        clock = time.perf_counter()
        cells = brpg_cells(replications, seed)
        seconds = time.perf_counter() - clock
        table = Table(title="Loss under the truth, on our reconstruction of the paper's map", title_justify="left")
        for column in ("table", "escape", "N", "beta", "mean", "s.e.", "+variance", "published", "s.e.", "off by", "z"):
            table.add_column(column, justify="left" if column == "table" else "right")
        for cell in cells:
            table.add_row(
                cell.table,
                f"{cell.escape:g}",
                str(cell.n),
                f"{cell.beta:g}",
                f"{cell.mean:.3f}",
                f"{cell.standard_error:.4f}",
                f"{cell.positive_variance:.4f}",
                f"{cell.published:.3f}",
                f"{cell.published_error:.4f}",
                f"{cell.deviation:+.2%}",
                f"{cell.z:+.1f}",
                end_section=cell.beta == 0.9,
            )
        console().print(table)
        typer.echo(f"{replications} data sets a cell, {seconds:.1f} s, compilation included")


@app.command()
def episodic(
    replications: Annotated[int, typer.Option(help="Worlds of each plan and level.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of worlds and draws.", min=0)] = 0,
) -> None:
    """The same hundred iterations in 5, 10 or 20 episodes, each with data from the newest policy.

    Example: prudent reproduce episodic --replications 50
    """
    with clear_errors():
        from rich.table import Table

        from ..experiments.episodic import STEPS, TRUTH
        from ..experiments.episodic import episodic as run

        rows = run(replications, seed)
        table = Table(
            title=f"Loss under the truth, slip {TRUTH[0]}, escape {TRUTH[1]}, {STEPS} steps logged an episode, on our "
            f"reconstruction of the paper's map; means over {replications} worlds",
            title_justify="left",
        )
        for column in ("episodes x iterations", "beta", "episode", "trials", "loss", "s.e.", "above optimum", "D", "E"):
            table.add_column(column, justify="right")
        for row in rows:
            if row.episode in (0, 1, row.episodes // 2, row.episodes):
                table.add_row(
                    f"{row.episodes} x {row.iterations}",
                    f"{row.level:g}",
                    str(row.episode),
                    f"{row.observations:.0f}",
                    f"{row.loss:.3f}",
                    f"{row.loss_error:.3f}",
                    f"{row.gap:.3f}",
                    f"{row.loss_gap:.3f}",
                    f"{row.gradient_gap:.3f}",
                    end_section=row.episode == row.episodes,
                )
        console().print(table)
        typer.echo("D and E: how far the objective and its gradient are from those under the truth, at the policy.")
