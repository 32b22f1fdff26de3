"""What comes with the library: `prudent demo`, the main job on the built-in lake, and `prudent case`, on real data."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .solve import Force, show_run
from .terminal import clear_errors, console, say, table

if TYPE_CHECKING:
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

        from ..envs import frozen_lake
        from ..evaluation import evaluate, loss_at
        from ..planning import plan
        from ..plots import loss_distributions
        from ..risks import CVaR
        from ..solvers import solve

        # Before any work: a folder that cannot be written should not cost the user the run.
        out.mkdir(parents=True, exist_ok=True)
        terminal = console()
        terminal.print(
            "Frozen lake (our reconstruction of the paper's map), discount 0.97; losses are discounted costs"
        )
        lake = frozen_lake()
        belief = lake.prior.update(lake.trials(OBSERVATIONS, TRUTH, seed))
        terminal.print(f"The data: {_summary(belief)}. The truth: slip {TRUTH[0]}, escape {TRUTH[1]}.\n")
        found: dict[str, tuple[TabularPolicy, float]] = {}
        for level in LEVELS:
            solution = solve(lake, belief, risk=CVaR(level), seed=seed)
            found[f"least CVaR {level:g}"] = solution.policy, solution.seconds
        clock = time.perf_counter()
        plug_in = plan(lake.at(belief.maximum_likelihood())).policy
        found["plug-in plan"] = plug_in, time.perf_counter() - clock
        tail, risk = f"CVaR {REPORTED_LEVEL:g}", CVaR(REPORTED_LEVEL)
        judged = {
            name: evaluate(policy, lake, belief, risk=risk, samples=SAMPLES) for name, (policy, _) in found.items()
        }
        rows = [
            (
                name,
                f"{float(loss_at(policy, lake, TRUTH)):.2f}",
                f"{judged[name].mean:.2f} ± {judged[name].mean_standard_error:.2f}",
                f"{judged[name].risk:.2f} ± {judged[name].risk_standard_error:.2f}",
                f"{seconds:.2f}",
            )
            for name, (policy, seconds) in found.items()
        ]
        heads = ("policy", "truth", "mean", tail, "seconds")
        table("Loss under the truth and over the posterior, lower is better", rows, heads)
        terminal.print("± one Monte-Carlo standard error; seconds of the first row include compilation\n")
        drawn = [Panel(lake.draw(policy), title=name, expand=False) for name, (policy, _) in found.items()]
        terminal.print(Columns(drawn))
        if find_spec("matplotlib") is None:
            say("no figure: it needs the extra report, pip install 'prudent[report]'")
            return
        path = out / "loss-distributions.png"
        loss_distributions(
            {name: np.asarray(each.losses) for name, each in judged.items()},
            path,
            marks={name: {"mean": each.mean, tail: each.risk} for name, each in judged.items()},
            title=f"Loss over the posterior (reconstructed lake)\n{_summary(belief)}",
        )
        terminal.print(f"figure: {path}")


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
            written = write_case(name, folder, force)
            for path in written:
                say(f"wrote {path}")
            trust = " --trust" if "\nfamily = " in written[0].read_text(encoding="utf-8") else ""
            say(f"next:  prudent solve {written[0]} --out {folder / 'run'}{trust}")
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
