"""Stage 17: the command line. Parses, calls, prints; jax is imported only once a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="From a little data about a Markov decision process to a policy one can defend.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="The paper's results, beside the published figures.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Bad input ends with its message and exit code 2, not with a traceback."""
    from .errors import InputError

    try:
        yield
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        typer.echo(f"error: {error.strerror}: {error.filename}", err=True)
        raise typer.Exit(2) from None


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("prudent"))
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
) -> None:
    """Solve the frozen lake from five observations: three levels of caution and the plug-in plan.

    Example: prudent demo --out demo
    """
    with _clear_errors():
        import numpy as np
        from rich.columns import Columns
        from rich.console import Console
        from rich.panel import Panel
        from rich.table import Table

        from .experiments.demo import REPORTED_LEVEL, TRUTH, marks, run_demo, summary
        from .plots import loss_distributions

        # Before any work: a folder that cannot be written should not cost the user the run.
        out.mkdir(parents=True, exist_ok=True)
        console = Console()
        console.print("Frozen lake (our reconstruction of the paper's map), discount 0.97, a loss is a discounted cost")
        lake, belief, rows = run_demo(seed)
        console.print(f"The data: {summary(belief)}. The truth: slip {TRUTH[0]}, escape {TRUTH[1]}.\n")
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
        console.print(table)
        console.print("± one Monte-Carlo standard error; seconds of the first row include compilation\n")
        console.print(Columns([Panel(lake.draw(row.policy), title=row.name, expand=False) for row in rows]))
        path = out / "loss-distributions.png"
        loss_distributions(
            {row.name: np.asarray(row.evaluation.losses) for row in rows},
            path,
            marks={row.name: marks(row) for row in rows},
            title=f"Loss over the posterior (reconstructed lake)\n{summary(belief)}",
            label="expected discounted cost",
        )
        console.print(f"figure: {path}")


@app.command()
def estimators(
    seed: Annotated[int, typer.Option(help="Seed of policies, draws and directions.", min=0)] = 0,
) -> None:
    """Every loss and gradient estimator against the exact gradient, on a small lake; about a minute.

    Example: prudent estimators
    """
    with _clear_errors():
        from rich.console import Console
        from rich.table import Table

        from .experiments.estimators import DIRECTIONS, DRAWS, LEVEL, agreement, sweeps

        console = Console(width=None if sys.stdout.isatty() else 120)
        table = Table(
            title=f"Error of the gradient relative to the adjoint's (CVaR {LEVEL:g} of {DRAWS} posterior draws)",
            title_justify="left",
        )
        table.add_column("loss")
        table.add_column("check_loss, of the allowed", justify="right")
        table.add_column("variational", justify="right")
        for count in DIRECTIONS:
            table.add_column(f"zeroth order, m = {count}", justify="right")
        for row in agreement(seed):
            table.add_row(
                row.loss,
                f"{row.conformance.worst_share():.0e}",
                f"{row.variational:.1e}",
                *(f"{error:.1e}" for error in row.zeroth_order),
            )
        console.print(table)
        for sweep in sweeps(seed):
            console.print(f"\nZeroth order against {sweep.setting}: {sweep.law}")
            table = Table()
            table.add_column(sweep.setting)
            table.add_column("relative error", justify="right")
            for value, error in zip(sweep.values, sweep.errors, strict=True):
                table.add_row(f"{value:g}", f"{error:.1e}")
            console.print(table)


@reproduce.command()
def brpg(
    replications: Annotated[int, typer.Option(help="Data sets a cell.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of data and draws.", min=0)] = 0,
) -> None:
    """The twelve BR-PG cells of the frozen-lake tables beside the published means.

    Example: prudent reproduce brpg --replications 50
    """
    with _clear_errors():
        import time

        from rich.console import Console
        from rich.table import Table

        from .experiments.lake_tables import brpg_cells

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
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        typer.echo(f"{replications} data sets a cell, {seconds:.1f} s, compilation included")


@reproduce.command()
def episodic(
    replications: Annotated[int, typer.Option(help="Worlds of each plan and level.", min=1)] = 50,
    seed: Annotated[int, typer.Option(help="Seed of worlds and draws.", min=0)] = 0,
) -> None:
    """The same hundred iterations in 5, 10 or 20 episodes, each with data from the newest policy.

    Example: prudent reproduce episodic --replications 50
    """
    with _clear_errors():
        from rich.console import Console
        from rich.table import Table

        from .experiments.episodic import STEPS, TRUTH
        from .experiments.episodic import episodic as run

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
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        typer.echo("D and E: how far the objective and its gradient are from those under the truth, at the policy.")


@app.command()
def gymnasium(
    seed: Annotated[int, typer.Option(help="Seed of walks, draws and tests.", min=0)] = 0,
    rollouts: Annotated[int, typer.Option(help="Walks of the uniform policy that are logged.", min=1)] = 100,
    episodes: Annotated[int, typer.Option(help="Test episodes of each policy.", min=1)] = 2000,
) -> None:
    """Gymnasium's FrozenLake-v1 solved from its own rollouts, and the policies tested in it.

    Example: prudent gymnasium --rollouts 100
    """
    with _clear_errors():
        from rich.console import Console
        from rich.table import Table

        from .experiments.gymnasium_lake import LEVEL, run_gymnasium

        result = run_gymnasium(seed, rollouts, episodes)
        table = Table(
            title=f"FrozenLake-v1 from {result.transitions} logged steps ({result.rollouts} uniform walks), tested on "
            f"{result.episodes} episodes",
            title_justify="left",
        )
        table.add_column("policy")
        for column in ("success", "s.e.", "mean steps", f"CVaR {LEVEL:g} over the posterior", "loss in truth"):
            table.add_column(column, justify="right")
        for row in result.rows:
            table.add_row(
                row.name,
                f"{row.success:.1%}",
                f"{row.standard_error:.1%}",
                f"{row.steps:.1f}",
                f"{row.risk:.4f}",
                f"{row.truth_loss:.4f}",
            )
        Console(width=None if sys.stdout.isatty() else 120).print(table)
