"""What comes with the library: `prudent demo`, the main job on the built-in lake, and `prudent case`, on real data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from .solve import Force, show_run
from .terminal import clear_errors, console, say, table

if TYPE_CHECKING:
    from ..envs import FrozenLake
    from ..evaluation import Evaluation
    from ..policies import TabularPolicy
    from ..posteriors import Beta

TRUTH = (0.3, 0.02)
OBSERVATIONS = 5
LEVELS = (0.0, 0.5, 0.9)
REPORTED_LEVEL = 0.9
SAMPLES = 5000


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

        from ..plots import loss_distributions

        # Before any work: a folder that cannot be written should not cost the user the run.
        out.mkdir(parents=True, exist_ok=True)
        terminal = console()
        terminal.print(
            "Frozen lake (our reconstruction of the paper's map), discount 0.97; losses are discounted costs"
        )
        lake, belief, rows = _solved(seed)
        terminal.print(f"The data: {_summary(belief)}. The truth: slip {TRUTH[0]}, escape {TRUTH[1]}.\n")
        tail = f"CVaR {REPORTED_LEVEL:g}"
        table(
            "Loss under the truth and over the posterior, lower is better",
            [
                (
                    row.name,
                    f"{row.truth_loss:.2f}",
                    f"{row.evaluation.mean:.2f} ± {row.evaluation.mean_standard_error:.2f}",
                    f"{row.evaluation.risk:.2f} ± {row.evaluation.risk_standard_error:.2f}",
                    f"{row.seconds:.2f}",
                )
                for row in rows
            ],
            ("policy", "truth", "mean", tail, "seconds"),
        )
        terminal.print("± one Monte-Carlo standard error; seconds of the first row include compilation\n")
        terminal.print(Columns([Panel(lake.draw(row.policy), title=row.name, expand=False) for row in rows]))
        path = out / "loss-distributions.png"
        loss_distributions(
            {row.name: np.asarray(row.evaluation.losses) for row in rows},
            path,
            marks={row.name: {"mean": row.evaluation.mean, tail: row.evaluation.risk} for row in rows},
            title=f"Loss over the posterior (reconstructed lake)\n{_summary(belief)}",
            label="expected discounted cost",
        )
        terminal.print(f"figure: {path}")


class _Row(NamedTuple):
    """How a policy was found, its loss under the truth and over draws common to all rows, the time to find it."""

    name: str
    policy: TabularPolicy
    truth_loss: float
    evaluation: Evaluation
    seconds: float


def _solved(seed: int) -> tuple[FrozenLake, Beta, list[_Row]]:
    """The lake at each level, and by exact planning at the maximum-likelihood theta."""
    from ..envs import frozen_lake
    from ..evaluation import evaluate, loss_at
    from ..planning import plan
    from ..risks import CVaR
    from ..solvers import solve

    lake = frozen_lake()
    belief = lake.prior.update(lake.trials(OBSERVATIONS, TRUTH, seed))
    found: list[tuple[str, TabularPolicy, float]] = []
    for level in LEVELS:
        solution = solve(lake, belief, risk=CVaR(level), seed=seed)
        found.append((f"least CVaR {level:g}", solution.policy, solution.seconds))
    clock = time.perf_counter()
    plug_in = plan(lake.at(belief.maximum_likelihood())).policy
    found.append(("plug-in plan", plug_in, time.perf_counter() - clock))
    return (
        lake,
        belief,
        [
            _Row(
                name,
                policy,
                float(loss_at(policy, lake, TRUTH)),
                evaluate(policy, lake, belief, risk=CVaR(REPORTED_LEVEL), samples=SAMPLES),
                seconds,
            )
            for name, policy, seconds in found
        ],
    )


def _summary(belief: Beta) -> str:
    """The data in words."""
    import numpy as np

    (slips, moves), (escapes, tries) = ((int(counts[0]), int(counts.sum())) for counts in np.asarray(belief.counts))
    return f"{slips} of {moves} moves slipped, {escapes} of {tries} tries escaped"


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
            say(line)
