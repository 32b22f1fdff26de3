"""What a solver returns: one immutable record with a status that is true."""

from __future__ import annotations

import enum
import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..arrays import Array
from ..errors import InputError
from ..evaluation import Evaluation, in_columns, plus_minus
from ..records import Record, field
from ..seeds import Seed


class Status(enum.Enum):
    """How a run ended; the value says what it means and what to do.

    >>> import prudent as pr
    >>> pr.Status.CONVERGED.ok
    True
    """

    CONVERGED = "on the draws it was fitted to, no change of the policy gains more than the tolerance, to first order"
    CONVERGED_WITHIN_LIMITS = (
        "on the draws it was fitted to, no change of the policy that keeps the limits there gains more than the "
        "tolerance, to first order; fresh draws, or all atoms, show the limits kept"
    )
    GRADIENT_VANISHED = (
        "the gradient by the policy's parameters fell to the tolerance; where the policy is saturated, or its class "
        "narrow, a better one may be left: certificate.stationarity, where there is one, says what a change could gain "
        "to first order"
    )
    ITERATION_LIMIT = "all iterations were used before the tolerance was met; continue with resume="
    STALLED = (
        "the objective on the sample no longer falls though a first-order gain is left, as at a kink of the risk; the "
        "best policy found is returned; more starts= or samples= may find a better one"
    )
    SAMPLE_LIMIT = (
        "samples of posterior draws up to the largest still moved the answer by more than its standard error; raise "
        "largest="
    )
    START_KEPT = "no policy was found that is better than the start on held-out draws; the start is returned"
    PLAN_KEPT = (
        "another plan's policy has a lower risk than what the search found, on draws set aside to choose by or on all "
        "atoms; the plan's policy is returned"
    )
    DIVERGED = "the policy is worse than the one it started from; use a shorter step"
    NON_FINITE = (
        "the objective or its gradient became NaN or infinite; the last finite policy is returned; check the loss"
    )
    INFINITE = (
        "at some posterior draws the policy's loss is infinite, and so are its mean and its risk; more data, a belief "
        "that is cut off closer, or a finite horizon may give a finite one"
    )
    INFEASIBLE = (
        "no policy keeps the limits: proved on the posterior's atoms, or from fresh draws with 95 % confidence; the "
        "policy that breaks them least, as far as was found, is returned; raise a limit"
    )
    LIMIT_BROKEN = (
        "the policy breaks a limit on fresh draws, or on the atoms, and none was found that keeps it; whether there is "
        "one is not known; raise the limit, or try more starts="
    )
    LIMIT_OPEN = (
        "fresh draws leave open whether a limit is kept; more of them (evaluation=) may tell, and a limit with "
        "confidence= is aimed at with more to spare"
    )
    PLANNED = "planned exactly; there was nothing to iterate"
    UNCERTIFIED = (
        "planning ended before its error bound came down; the best policy found is returned; the solution's plan "
        "holds the bound"
    )

    @property
    def ok(self) -> bool:
        """Whether the policy can be used as it is (more iterations may still improve it)."""
        return self not in (
            Status.DIVERGED,
            Status.NON_FINITE,
            Status.INFINITE,
            Status.INFEASIBLE,
            Status.LIMIT_BROKEN,
            Status.LIMIT_OPEN,
            Status.UNCERTIFIED,
        )

    @property
    def with_plan(self) -> Status:
        """How a run ended whose answer gave way to another plan's policy: what still holds of the search is kept."""
        holds = self in (Status.ITERATION_LIMIT, Status.SAMPLE_LIMIT, Status.STALLED)
        return self if holds else Status.PLAN_KEPT


# Lines of the summary that a notebook shows.
SHOWN = ("promise", "risk", "interval", "evidence", "gap", "driven by", "mean loss", "unstable", "truncation")


@dataclass(frozen=True, eq=False)
class SolveRequest:
    """What a solution answers.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=2), seed=7).asked.seed
    7

    Attributes:
        objective: what was minimised.
        belief: the posterior.
        risk: the risk over it.
        seed: of the draws.
    """

    objective: Any
    belief: Any
    risk: Any
    seed: Seed


class History(Record):
    """One entry an iteration: the sampled objective, the norm of its projected gradient, the step taken.

    >>> import numpy as np, prudent as pr
    >>> len(pr.History(objective=np.array([3.0, 2.0]), gradient_norm=np.array([1.0, 0.5]), step=np.array([1.0, 0.5])))
    2
    """

    objective: Float[Array, " T"]
    gradient_norm: Float[Array, " T"]
    step: Float[Array, " T"]

    def __len__(self) -> int:
        return len(self.objective)

    def lines(self) -> list[tuple[float, float, float]]:
        """Return an entry for each iteration."""
        columns = (np.asarray(column).tolist() for column in (self.objective, self.gradient_norm, self.step))
        return list(zip(*columns, strict=True))


class Checkpoint(Record):
    """Enough to go on as if the run had not stopped.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> solution = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=5))
    >>> int(solution.checkpoint.state.steps)
    5

    Attributes:
        state: the loop's own state: iterate, optimiser, output rule, steps taken.
        seed: of the draws.
        parts: digests of the parts the state was made with; None where it comes from a file, which names them itself.
    """

    state: Any
    seed: Seed = field(static=True)
    parts: tuple[tuple[str, str], ...] | None = field(static=True, default=None)


class Solution(Record):
    """A policy, how good it is, and how it was found.

    >>> import prudent as pr
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> half = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=10))
    >>> whole = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=10), resume=half)
    >>> whole.iterations, whole.status.name
    (20, 'ITERATION_LIMIT')

    Attributes:
        status: how the run ended.
        policy: the policy; of a table, `policy.probabilities` is `[S, A]`.
        evaluation: the policy on fresh posterior draws, not those it was fitted to; on all atoms where the posterior is
            a few. Its risk, losses, interval and draws are attributes of the solution, too.
        history: objective, gradient norm and step of every iteration.
        iterations: how many were made, those of a resumed run included; a planner's own for a baseline.
        seconds: wall time, compilation included; in a batch, the whole batch's.
        parameters: the policy's parameters; of a planned policy, its table.
        checkpoint: pass the solution as `resume=` to go on; None for a baseline, which cannot be resumed.
        plan: what a baseline's planner gave, with its certificate; None for a run of `solve`.
        models: gradients of single models that were evaluated to find the policy.
        certificate: how good the policy is, a `Certificate`; None for a baseline or where none was asked for.
        iterates: `[T, ...]` the parameters before each step if `BRPG(keep_iterates=True)`, else None; a resumed
            run's begin where they were first kept.
        limits: of `subject_to`, in their order: value, whether it is kept, how surely, and its multiplier.
        asked: what was asked, a `SolveRequest`; None where it is not known, as of a solution that was loaded.
    """

    status: Status = field(static=True)
    policy: Any
    evaluation: Evaluation
    history: History
    iterations: int
    seconds: float
    parameters: Any
    checkpoint: Checkpoint | None
    plan: Any = None
    models: int = 0
    certificate: Any = None
    iterates: Any = None
    limits: tuple[Any, ...] = ()
    asked: Any = None

    @property
    def risk(self) -> float:
        """`rho_theta(C)` of the policy on fresh posterior draws."""
        return self.evaluation.risk

    @property
    def risk_standard_error(self) -> float:
        """Monte-Carlo error of the risk, 0 where it is exact."""
        return self.evaluation.risk_standard_error

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the risk; NaN where none can be had."""
        return self.evaluation.interval

    @property
    def losses(self) -> Float[Array, " M"]:
        """The policy's loss at each fresh draw."""
        return self.evaluation.losses

    @property
    def weights(self) -> Float[Array, " M"]:
        """The density xi* that attains the risk on the fresh draws."""
        return self.evaluation.weights

    @property
    def thetas(self) -> Float[Array, "M ..."]:
        """The fresh draws."""
        return self.evaluation.thetas

    @property
    def probabilities(self) -> Float[Array, " M"]:
        """Of the draws: equal, or those of the atoms."""
        return self.evaluation.probabilities

    @property
    def exact(self) -> bool:
        """Whether the draws are the whole posterior."""
        return self.evaluation.exact

    @property
    def evidence(self) -> Any:
        """What the risk stands on: sound, thin or unsupported; None where no certificate was asked for."""
        return self.evaluation.evidence

    @property
    def truncation(self) -> float:
        """Mass of the occupancy that a truncated method may leave out; 0 for an exact one."""
        return self.evaluation.truncation

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the printed summary, as (label, text)."""
        norm = float(self.history.gradient_norm[-1]) if len(self.history) else 0.0
        # Below rounding the digits of a norm are noise.
        last = f", last gradient norm {norm:.3g}" if not norm < 1e-12 else ""
        carried = self.evidence is None or self.evidence.word is None or not self.evidence.word.warns
        certificate = [] if self.certificate is None else self.certificate.rows(bounded=carried)
        return [
            *([] if carried else [("promise", "none: the log does not carry this policy")]),
            ("status", f"{self.status.name.lower().replace('_', ' ')}: {self.status.value}"),
            *self.evaluation.risk_rows(),
            *(row for number, each in enumerate(self.limits) for row in each.rows(number)),
            *([] if self.evidence is None else self.evidence.rows()),
            *certificate,
            *self.evaluation.note_rows(),
            ("mean loss", f"{self.evaluation.mean:.4f}"),
            *self.evaluation.truncation_rows(),
            ("iterations", f"{self.iterations}{last}"),
            ("seconds", f"{self.seconds:.2f}"),
        ]

    def __str__(self) -> str:
        return in_columns(self.rows())

    def __repr__(self) -> str:
        risk = plus_minus(self.risk, self.risk_standard_error) if not self.exact else f"{self.risk:.4f}, exact"
        return f"Solution({self.status.name}: risk {risk}, {self.iterations} iterations; {self.policy!r})"

    def _repr_html_(self) -> str:
        """A compact table for notebooks."""
        head = f"<caption>{html.escape(self.status.name.lower().replace('_', ' '))}</caption>"
        names = {each.limit.called(number) for number, each in enumerate(self.limits)}
        kept = [(label, text) for label, text in self.rows() if label in SHOWN or label in names]
        cell = "<td style='text-align:left'>"
        rows = (f"<tr><th>{html.escape(k)}</th>{cell}{html.escape(text)}</td></tr>" for k, text in kept)
        return f"<table>{head}{''.join(rows)}</table>"

    # What comes after a solution (its page, its picture, its file) is made by later stages, and asked for here.

    def save(self, path: str | Path) -> Path:
        """Write the solution to one file, without pickle; `Solution.load` reads it back, on any machine.

        Kept are status, policy, evaluation, history, certificate, and parameters that are arrays; not kept are what was
        asked, the checkpoint (go on with `start=solution.parameters`) and a baseline's plan.

        >>> import prudent as pr, tempfile
        >>> lake = pr.envs.frozen_lake("SF\\nHG")
        >>> solution = pr.solve(lake, lake.prior, solver=pr.BRPG(iterations=5))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pr.Solution.load(solution.save(f"{folder}/solution.safetensors")).risk == solution.risk
        True
        """
        from ..runs import save_solution

        return save_solution(self, path)

    @staticmethod
    def load(path: str | Path) -> Solution:
        """The solution that `save` wrote; a damaged file is refused."""
        from ..runs import load_solution

        return load_solution(path)

    def report(self, path: str | Path, *, rivals: Any = None, **shown: Any) -> Path:
        """Write the page of the solution: one HTML file that needs nothing beside itself (extra `report`).

        Args:
            path: the file to write.
            rivals: by name, solutions to set beside it, such as those of `pr.rivals`.
            shown: other fields of the record, such as `title` and `loss_name`.
        """
        from ..runs import report_solution

        return report_solution(self, path, rivals=rivals, **shown)

    def plot(self, path: str | Path | None = None) -> Any:
        """The losses over the posterior as a matplotlib figure, written as a PNG if a path is given."""
        from ..runs import plot_solution

        return plot_solution(self, path)

    def to_frame(self, backend: str | None = None) -> Any:
        """A frame with a row for each posterior draw: `probability`, `weight` (xi*), `loss`, and the unknowns by name.

        Args:
            backend: `pandas`, `polars` or `pyarrow`; when left out, the first of these that is installed.
        """
        from ..runs import solution_frame

        return solution_frame(self, backend)

    def __rich__(self) -> Any:
        """A table for rich consoles: `rich.print(solution)`."""
        from rich.table import Table

        table = Table(show_header=False, title="prudent solution", title_justify="left")
        table.add_column(style="bold")
        table.add_column()
        for label, text in self.rows():
            table.add_row(label, f"[{'green' if self.status.ok else 'red'}]{text}" if label == "status" else text)
        return table


def resumable(solution: Solution, parts: tuple[tuple[str, str], ...], seed: Seed) -> Checkpoint:
    """What a solution can be resumed from under these parts and this seed; refused where they are others."""
    checkpoint = checkpoint_of(solution)
    if checkpoint.seed != seed:
        raise InputError("resume needs the seed of the first call, so that the draws go on where they stopped")
    for (name, now), (_, before) in zip(parts, checkpoint.parts or parts, strict=True):
        if now != before:
            raise InputError(
                f"resume needs the {name} of the first call, this one is another; leave resume= out and begin at its "
                "policy with start=solution.parameters"
            )
    return checkpoint


def checkpoint_of(solution: Solution) -> Checkpoint:
    """Return what a solution can be resumed from; refuse one that has no checkpoint."""
    if solution.checkpoint is None and solution.asked is None:
        raise InputError(
            f"resume needs a Solution that solve() has returned; this one ({solution.status.name}) was loaded from a "
            "file, which keeps no checkpoint; leave resume= out, and begin at its policy with start=solution.parameters"
        )
    if solution.checkpoint is None:
        raise InputError(
            f"resume needs a Solution of solve(); this one ({solution.status.name}) is a baseline's and has no "
            "checkpoint; leave resume= out, or begin at its policy with policy=Direct(), start=policy.probabilities"
        )
    return solution.checkpoint
