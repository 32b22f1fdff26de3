"""What cases share: their tables, and plans made on a part of the units held against what became of them on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..baselines import rivals, row_radius
from ..risks import CVaR
from ..solvers import SampleAverage, solve

LEVEL = 0.9
CAUTIOUS = "cautious"

# What a row has the mean of over splits.
AVERAGED = ("mean", "risk", "loss", "tail")

# So many draws for a plan, and for what is stated of it: enough to compare plans, not to certify one.
QUICK: dict[str, Any] = {"samples": 128, "largest": 128, "starts": 2, "evaluation": 1000}


def bundled(name: str) -> str:
    """A file that comes with the cases."""
    return (resources.files("prudent.cases") / "data" / name).read_text(encoding="utf-8")


def lines(name: str) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a table; none of their cells has a comma in it."""
    header, *rows = [line.split(",") for line in bundled(name).splitlines()]
    return header, rows


def column(name: str, which: str) -> np.ndarray:
    """A column of numbers, NaN where a cell is empty."""
    header, rows = lines(name)
    place = header.index(which)
    return np.array([float(row[place]) if row[place] else np.nan for row in rows])


class StatedPlan(NamedTuple):
    """A plan, and what its belief states of it.

    Attributes:
        table: `[S, A]` chance of each action.
        mean: stated mean of the loss.
        risk: stated CVaR 0.9 of the loss.
    """

    table: Float[np.ndarray, "S A"]
    mean: float
    risk: float


def plans_of(model: Any, belief: Any, counts: Float[np.ndarray, "S A"], seed: int) -> dict[str, StatedPlan]:
    """The cautious plan and the four others of one belief.

    Args:
        model: the family.
        belief: after the part of the log that the plans are made on.
        counts: `[S, A]` how many rows each pair rests on, for the radius of the robust plan.
        seed: of all draws.
    """
    solver, risk = SampleAverage(**QUICK), CVaR(LEVEL)
    found = {CAUTIOUS: solve(model, belief, risk=risk, solver=solver, seed=seed, certify=False, progress=False)}
    radius = row_radius(model.support, counts + 1.0)
    found |= rivals(model, belief, risk=risk, radius=radius, solver=solver, seed=seed, evaluation=QUICK["evaluation"])
    return {
        name.removesuffix(" plan").removesuffix(" policy"): StatedPlan(
            np.asarray(each.policy.probabilities), float(each.evaluation.mean), float(each.risk)
        )
        for name, each in found.items()
    }


class HeldOutOutcome(NamedTuple):
    """One plan of one part, and what became of it on the rest.

    Attributes:
        part: what the plan was made on, such as "20 years".
        split: which of the splits.
        plan: its name.
        mean, risk: stated by its belief.
        loss: on the units held out.
        low, high: its 95 % interval, by resampling these units; NaN where there is none.
        tail: mean of the worst tenth of the units held out; NaN where units have no loss of their own.
        rule: the plan in a word.
    """

    part: str
    split: int
    plan: str
    mean: float
    risk: float
    loss: float
    low: float
    high: float
    tail: float
    rule: str


class Row(NamedTuple):
    """Outcomes of one part and plan over all splits: means, with a standard error over splits where there are several.

    Attributes:
        kept: share of splits in which the loss on the rest was at most the stated risk.
        apart, apart_error: the loss less that of the cautious plan, split by split.
    """

    part: str
    plan: str
    splits: int
    mean: float
    risk: float
    loss: float
    error: float
    apart: float
    apart_error: float
    kept: float
    tail: float
    rule: str


def summary(outcomes: Sequence[HeldOutOutcome]) -> list[Row]:
    """One row for each part and plan, in their order."""
    found = []
    for part, plan in dict.fromkeys((each.part, each.plan) for each in outcomes):
        mine = [each for each in outcomes if (each.part, each.plan) == (part, plan)]
        first = {each.split: each.loss for each in outcomes if (each.part, each.plan) == (part, CAUTIOUS)}
        apart = np.array([each.loss - first[each.split] for each in mine])
        several = len(mine) > 1
        # One split has an interval of its own; several have the spread over splits, whose units overlap.
        error = _error(np.array([each.loss for each in mine])) if several else (mine[0].high - mine[0].low) / 3.92
        found.append(
            Row(
                part=part,
                plan=plan,
                splits=len(mine),
                **{name: float(np.mean([getattr(one, name) for one in mine])) for name in AVERAGED},
                error=error,
                apart=float(apart.mean()),
                apart_error=_error(apart) if several else math.nan,
                kept=float(np.mean([one.loss <= one.risk for one in mine])),
                rule=mine[0].rule,
            )
        )
    return found


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def resampled(
    values: Float[np.ndarray, " U"],
    statistic: Callable[[np.ndarray], float],
    seed: int,
    block: int = 1,
    draws: int = 400,
) -> tuple[float, float]:
    """A 95 % interval by drawing units again, in blocks of neighbours where they follow one another."""
    generator, size = np.random.default_rng(seed), len(values)
    found = []
    for _ in range(draws):
        first = generator.integers(size, size=math.ceil(size / block))
        picked = ((first[:, None] + np.arange(block)) % size).ravel()[:size]
        found.append(statistic(picked))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def held_out(
    part: str,
    split: int,
    plans: dict[str, StatedPlan],
    played: Callable[[np.ndarray], np.ndarray],
    loss: Callable[[np.ndarray, np.ndarray], float],
    rule: Callable[[np.ndarray], str],
    units: int | None = None,
    **how: int,
) -> list[HeldOutOutcome]:
    """Plans on units that they were not made on, with intervals by resampling these.

    Args:
        part: what the plans were made on.
        split: which of the splits.
        plans: by name.
        played: what a plan's table comes to on the units, by unit or as a whole.
        loss: of some of the units, by number, from that.
        rule: a plan in a word.
        units: how many there are, where what is played is not by unit.
        how: see `resampled`.
    """
    found = []
    for name, plan in plans.items():
        each = played(plan.table)
        every = np.arange(units or len(each))
        low, high = resampled(every, lambda picked, each=each: loss(picked, each), split, **how)
        numbers = (plan.mean, plan.risk, loss(every, each), low, high, math.nan)
        found.append(HeldOutOutcome(part, split, name, *numbers, rule(plan.table)))
    return found


def splits_of(units: int, size: int, splits: int, seed: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """So many times, numbers of `size` units drawn without return, and of the others; in their order."""
    for split in range(splits):
        mixed = np.random.default_rng([seed, size, split]).permutation(units)
        yield np.sort(mixed[:size]), np.sort(mixed[size:])


def csv_rows(outcomes: Sequence[HeldOutOutcome]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of a table of outcomes."""
    text: Callable[[Any], str] = lambda value: "" if value != value else str(value)  # noqa: E731
    return HeldOutOutcome._fields, [tuple(text(value) for value in each) for each in outcomes]


def table_rows(rows: Sequence[Row], tails: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and cells of what is printed."""
    heads = ["made on", "plan", "rule", "stated mean", f"stated CVaR {LEVEL:g}", "held out", "less cautious"]
    heads += ["kept"] + (["worst tenth"] if tails else [])
    cells: list[tuple[str, ...]] = []
    for row in rows:
        error = "" if row.error != row.error else f" ± {row.error:.2g}"
        apart = "–" if row.plan == CAUTIOUS else f"{row.apart:+.3g}"
        apart += "" if row.apart_error != row.apart_error or row.plan == CAUTIOUS else f" ± {row.apart_error:.2g}"
        last = [f"{row.tail:.4g}"] if tails else []
        kept = "–" if row.risk != row.risk else f"{round(row.kept * row.splits)} of {row.splits}"
        stated = ["–" if each != each else f"{each:.4g}" for each in (row.mean, row.risk)]
        cells.append((row.part, row.plan, row.rule, *stated, f"{row.loss:.4g}{error}", apart, kept, *last))
    return tuple(heads), cells
