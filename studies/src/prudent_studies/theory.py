"""The paper's statements, measured on the lake: how errors fall with the sample, the iterations and the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from prudent import BRPG, CVaR, Objective, Posterior, Sobol, plan, solve_many
from prudent.arrays import Array, in_float64
from prudent.envs import frozen_lake
from prudent.gradients import Adjoint, SampledRisk
from prudent.records import tree_map
from prudent.seeds import child

from .curves import iterates_of
from .episodic import PLANS
from .episodic import SETTING as EPISODIC
from .estimators import sweeps
from .lake import LEVELS, SETTINGS, Setting, data_sets, truth_losses
from .theorem import estimate_scales
from .work import RunFolder, Unit

SAMPLES = (10, 32, 100, 316, 1000)
ESTIMATES = 200
REFERENCE_DRAWS = 2**16

STATIONARY_SAMPLES = (3, 10, 30, 100)
STATIONARY_ITERATIONS = (10, 32, 100, 316, 1000)
STATIONARY_POINTS = 20
STATIONARY_DRAWS = 512
STATIONARY_RUNS = 20

DATA_SIZES = (5, 20, 80, 320, 1280, 5120)
CONSISTENCY_POLICIES = 12
CONSISTENCY_DRAWS = 256

GRADIENT_NORM = "norm of the gradient"

LEVEL = 0.5
RESAMPLES = 1000


class Slope(NamedTuple):
    """A power law fitted to means over replications, with a 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def fitted_slope(
    x: Sequence[float], y: Float[np.ndarray, "M K"], logarithmic: bool = True, resamples: int = RESAMPLES
) -> Slope:
    """The slope of `log mean y` against `log x` (or x), over M replications that are resampled together."""
    horizontal = np.log(x) if logarithmic else np.asarray(x, dtype=float)
    random = np.random.default_rng(0)

    def slope(rows: np.ndarray) -> float:
        return float(np.polyfit(horizontal, np.log(rows.mean(axis=0)), 1)[0])

    drawn = [slope(y[random.integers(len(y), size=len(y))]) for _ in range(resamples)] if len(y) > 1 else [slope(y)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Slope(slope(y), float(low), float(high))


def theory_units(replications: int, seed: int) -> list[Unit]:
    """One unit a statement; the objective gap of the episodic algorithm comes from the episodic units."""
    common = {"seed": seed}
    return [
        Unit("theory/gradient-error", gradient_errors, common, compiled=True, cost=25.0),
        Unit(
            "theory/stationarity",
            stationarity,
            {**common, "replications": min(replications, STATIONARY_RUNS)},
            compiled=True,
            cost=4.0 * min(replications, STATIONARY_RUNS),
        ),
        Unit("theory/consistency", consistency, {**common, "replications": replications}, compiled=True, cost=12.0),
        Unit("theory/zeroth-order", zeroth_order, common, compiled=True, cost=35.0),
    ]


@in_float64
def gradient_errors(seed: int) -> dict[str, Any]:
    """Squared error of the gradient on r draws, `[estimate, r]`, at a fixed policy."""
    sets = data_sets(SETTINGS[0], 1, seed)
    belief, random = sets.beliefs[0], np.random.default_rng(seed)
    logits = random.normal(size=sets.lake.support.shape[:2])
    # Sobol points: their own error is some thousand times below that of the largest sample.
    reference = Sobol(belief).draw(random, REFERENCE_DRAWS)
    return errors_on(frozen_lake().objective(), belief, logits, reference, random)


def errors_on(
    objective: Objective,
    belief: Posterior,
    parameters: Float[np.ndarray, "S A"],
    reference: Float[np.ndarray, "R ..."],
    random: np.random.Generator,
) -> dict[str, Any]:
    """Squared error of the gradient on r draws, `[estimate, r]`, against that on a large sample."""
    exact = _gradients(_problem(objective, 1), parameters[None], reference[None])[0]
    columns = []
    for samples in SAMPLES:
        thetas = belief.draw(random, ESTIMATES * samples).reshape(ESTIMATES, samples, *reference.shape[1:])
        same = np.broadcast_to(parameters, (ESTIMATES, *parameters.shape))
        estimates = _gradients(_problem(objective, ESTIMATES), same, thetas)
        columns.append(((estimates - exact) ** 2).sum(axis=(1, 2)))
    return {"squared_errors": np.stack(columns, axis=1).tolist(), "squared_norm": float((exact**2).sum())}


@in_float64
def stationarity(seed: int, replications: int) -> dict[str, Any]:
    """`norms_on` of the lake."""
    sets = data_sets(SETTINGS[0], 1, seed)
    belief = sets.beliefs[0]
    reference = Sobol(belief).draw(np.random.default_rng(seed), STATIONARY_DRAWS)
    objective = sets.lake.objective()
    norms = norms_on(objective, belief, reference, sets.solve_seed, replications, evenly_spaced(), step=1.0)
    return {"norms": norms.tolist()}


class Places(NamedTuple):
    """Iterates at which the gradient is looked at, and their shares in the mean over the first T for each T."""

    needed: Int[np.ndarray, " I"]
    shares: Float[np.ndarray, "T I"]


def evenly_spaced() -> Places:
    """Some between the first and the last; right where the gradient falls slowly."""
    places = [np.unique(np.linspace(0, most - 1, STATIONARY_POINTS).astype(int)) for most in STATIONARY_ITERATIONS]
    needed = np.unique(np.concatenate(places))
    return Places(needed, np.stack([np.isin(needed, place) / len(place) for place in places]))


def interpolated(points: int = 60) -> Places:
    """Closer together at first, where the gradient falls by much in a step; linear in between."""
    needed = np.unique(np.geomspace(1, STATIONARY_ITERATIONS[-1], points).round().astype(int)) - 1
    hats = np.stack([np.interp(np.arange(needed[-1] + 1), needed, hat) for hat in np.eye(len(needed))])
    return Places(needed, np.stack([hats[:, :most].mean(axis=1) for most in STATIONARY_ITERATIONS]))


def norms_on(
    objective: Objective,
    belief: Posterior,
    reference: Float[np.ndarray, "R ..."],
    seed: int,
    replications: int,
    places: Places,
    step: float,
    start: Any = None,
) -> Float[np.ndarray, "K M T"]:
    """`[r, replication, T]` the norm of the gradient of G at an iterate drawn uniformly from the first T.

    The mean over iterates is made of a few of them; the gradient of G is on one large sample.
    """
    norms = []
    for samples in STATIONARY_SAMPLES:
        settings = BRPG(
            samples=samples, iterations=STATIONARY_ITERATIONS[-1], step=step, evaluation=2, keep_iterates=True
        )
        grid = solve_many(
            objective,
            [belief] * replications,
            [CVaR(LEVEL)],
            start=None if start is None else [[start]] * replications,
            solver=settings,
            seed=child(seed, samples),
            progress=False,
            certify=False,
        )
        iterates = np.stack([iterates_of(row[0])[places.needed] for row in grid])
        groups = len(places.needed)
        problem = _problem(objective, groups)
        thetas = np.broadcast_to(reference, (groups, *reference.shape))
        found = np.stack([np.linalg.norm(_gradients(problem, run, thetas), axis=(1, 2)) for run in iterates])
        norms.append(found @ places.shares.T)
    return np.stack(norms)


@in_float64
def consistency(seed: int, replications: int) -> dict[str, Any]:
    """D_N and E_N, `[replication, N]`: the largest gap from the truth over a set of policies."""
    lake, truth = frozen_lake(), SETTINGS[0].truth
    random = np.random.default_rng(seed)
    shape = lake.support.shape[:2]
    best = 4.0 * np.asarray(plan(lake.at(truth)).policy.probabilities)
    logits = np.concatenate([np.zeros((1, *shape)), best[None], random.normal(size=(CONSISTENCY_POLICIES - 2, *shape))])
    objective = frozen_lake().objective()
    against = np.broadcast_to(np.asarray(truth), (replications * len(logits), 1, 2))
    gaps = []
    for number, n in enumerate(DATA_SIZES):
        own = child(seed, number)
        sets = data_sets(Setting(30 + number, "theory", truth[1], n), replications, own)
        thetas = np.stack([Sobol(belief).draw(random, CONSISTENCY_DRAWS) for belief in sets.beliefs])
        rows = [row for _ in sets.beliefs for row in logits]
        scales = estimate_scales(objective, CVaR(LEVEL), rows, thetas.repeat(len(logits), axis=0), against)
        found = np.array(scales)[:, :2].reshape(replications, len(logits), 2)
        gaps.append(found.max(axis=1))
    together = np.stack(gaps, axis=1)
    return {"loss_gap": together[..., 0].tolist(), "gradient_gap": together[..., 1].tolist()}


def zeroth_order(seed: int) -> dict[str, Any]:
    """The relative error of the zeroth-order estimator against m, K and nu, by replication."""
    return {
        "sweeps": [
            {"setting": sweep.setting, "values": list(sweep.values), "errors": sweep.relative_errors.tolist()}
            for sweep in sweeps(seed)
        ]
    }


def theory_records(folder: RunFolder) -> list[dict[str, Any]]:
    """One row a point of each series; a series' slope, where a law is claimed, is on all its rows."""
    norms = np.array(folder.values("theory/stationarity")["norms"])
    rows = rate_records(folder.values("theory/gradient-error"), norms)
    found = folder.values("theory/consistency")
    for name, label in (("loss_gap", "D"), ("gradient_gap", "E")):
        rows += _series(
            f"consistency, {label}", "largest gap from the truth", "N, trials a coordinate", DATA_SIZES,
            np.array(found[name]), "below 0",
        )  # fmt: skip
    for sweep in folder.values("theory/zeroth-order")["sweeps"]:
        rows += _sweep_series(sweep)
    lake = frozen_lake()
    optimum = truth_losses([plan(lake.at(EPISODIC.truth)).policy], EPISODIC)[0]
    episodes, iterations = PLANS[-1]
    for level in LEVELS:
        curves = np.array(folder.values(f"episodic/{episodes}x{iterations}/brpg-{level:g}")["curves"])[
            :, iterations::iterations
        ]
        rows += _series(
            f"episodic gap, beta {level:g}", "loss above the optimum", "episodes", range(1, episodes + 1),
            curves - optimum, "below 0",
        )  # fmt: skip
    return rows


def rate_records(errors: dict[str, Any], norms: Float[np.ndarray, "K M T"]) -> list[dict[str, Any]]:
    """The series of what `errors_on` and `norms_on` found: in r, and in r and T."""
    draws = "r, posterior draws"
    squared = np.array(errors["squared_errors"]) / errors["squared_norm"]
    rows = _series("gradient error", "squared error, relative", draws, SAMPLES, squared, "-1")
    for samples, runs in zip(STATIONARY_SAMPLES, norms, strict=True):
        rows += _series(
            f"stationarity, r = {samples}", GRADIENT_NORM, "T, iterations", STATIONARY_ITERATIONS, runs, "-1/2 or less"
        )
    longest = f"stationarity, T = {STATIONARY_ITERATIONS[-1]}"
    rows += _series(longest, GRADIENT_NORM, draws, STATIONARY_SAMPLES, norms[:, :, -1].T, "-1/2, while r is what binds")
    return rows


def _sweep_series(sweep: dict[str, Any]) -> list[dict[str, Any]]:
    """The zeroth-order error: a power of m, exponential in K, with a least value in nu."""
    name, values, errors = sweep["setting"], sweep["values"], np.array(sweep["errors"])
    statement = f"zeroth order, {name[: name.index(',')]}"
    if name.startswith("m"):
        return _series(statement, "squared error, relative", name, values, errors**2, "-1")
    if name.startswith("K"):
        decay = f"{np.log(frozen_lake().discount):.4f} a step (log discount)"
        # The first horizons are not yet in the range where the discount decides.
        fit = fitted_slope(values[2:], errors[:, 2:], logarithmic=False)
        return _series(statement, "error, relative", name, values, errors, decay, fit, "a step")
    return _series(statement, "error, relative", name, values, errors, "least in between", None)


def _series(
    statement: str,
    quantity: str,
    setting: str,
    x: Sequence[float],
    y: Float[np.ndarray, "M K"],
    claimed: str,
    slope: Slope | str | None = "fit",
    per: str = "power",
) -> list[dict[str, Any]]:
    """The rows of a series: means over replications, and the slope with its interval unless there is none."""
    fit = fitted_slope(list(x), y) if isinstance(slope, str) else slope
    errors = y.std(axis=0, ddof=1) / np.sqrt(len(y)) if len(y) > 1 else [None] * len(x)
    return [
        {
            "statement": statement,
            "quantity": quantity,
            "setting": setting,
            "x": float(place),
            "mean": float(mean),
            "se": None if error is None else float(error),
            "slope": None if fit is None else fit.value,
            "slope_low": None if fit is None else fit.low,
            "slope_high": None if fit is None else fit.high,
            "slope_per": per,
            "claimed": claimed,
        }
        for place, mean, error in zip(x, y.mean(axis=0), errors, strict=True)
    ]


@in_float64
def _problem(objective: Objective, groups: int) -> tuple[Objective, CVaR]:
    """The objective, and one CVaR for each group."""
    risk = tree_map(lambda leaf: np.broadcast_to(leaf, (groups, *np.shape(leaf))), CVaR(LEVEL))
    return objective, risk


def _gradients(problem: tuple[Objective, CVaR], logits: Array, thetas: Array) -> Float[np.ndarray, "G S A"]:
    return Adjoint()(SampledRisk.on(*problem, np.asarray(thetas)), np.asarray(logits))[1]
