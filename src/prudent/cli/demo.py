"""`prudent demo`: the main job on the built-in lake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .terminal import clear_errors, console


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
) -> None:
    """Solve the frozen lake from five observations: three levels of caution and the plug-in plan.

    Example: prudent demo --out demo
    """
    with clear_errors():
        import numpy as np
        from rich.columns import Columns
        from rich.panel import Panel
        from rich.table import Table

        from ..experiments.demo import REPORTED_LEVEL, TRUTH, marks, run_demo, summary
        from ..plots import loss_distributions

        # Before any work: a folder that cannot be written should not cost the user the run.
        out.mkdir(parents=True, exist_ok=True)
        terminal = console()
        terminal.print(
            "Frozen lake (our reconstruction of the paper's map), discount 0.97; losses are discounted costs"
        )
        lake, belief, rows = run_demo(seed)
        terminal.print(f"The data: {summary(belief)}. The truth: slip {TRUTH[0]}, escape {TRUTH[1]}.\n")
        table = Table(title="Loss under the truth and over the posterior, lower is better", title_justify="left")
        table.add_column("policy", no_wrap=True)
        for column in ("truth", "mean", f"CVaR {REPORTED_LEVEL:g}", "seconds"):
            table.add_column(column, justify="right")
        for row in rows:
            result = row.evaluation
            table.add_row(
                row.name,
                f"{row.truth_loss:.2f}",
                f"{result.mean:.2f} ± {result.mean_standard_error:.2f}",
                f"{result.risk:.2f} ± {result.risk_standard_error:.2f}",
                f"{row.seconds:.2f}",
            )
        terminal.print(table)
        terminal.print("± one Monte-Carlo standard error; seconds of the first row include compilation\n")
        terminal.print(Columns([Panel(lake.draw(row.policy), title=row.name, expand=False) for row in rows]))
        path = out / "loss-distributions.png"
        loss_distributions(
            {row.name: np.asarray(row.evaluation.losses) for row in rows},
            path,
            marks={row.name: marks(row) for row in rows},
            title=f"Loss over the posterior (reconstructed lake)\n{summary(belief)}",
            label="expected discounted cost",
        )
        terminal.print(f"figure: {path}")
