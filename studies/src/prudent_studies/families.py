"""Bayesian-risk policies against plug-in, robust and nested plans on three families of the robust-MDP literature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import prudent as pr
from prudent.arrays import require_size
from prudent.envs import Inventory, MachineReplacement, RiverSwim, inventory, machine_replacement, river_swim
from prudent.seeds import child

SIZES = (5, 50, 500)
LEVEL = 0.9
RADIUS = 0.1

# Nested planning stops where what comes later is discounted to this, and takes this many posterior draws: each stage
# sorts them for every pair.
NEGLIGIBLE = 0.005
NESTED_DRAWS = 300

CAUTIOUS = f"Bayesian risk, CVaR {LEVEL:g}"
KNOWN = "theta known"


class FamilyRow(NamedTuple):
    """One way of finding a policy in one setting; means over data sets, each with its standard error.

    Attributes:
        family: name.
        posterior: conjugate (the family's structure is known) or tabular (only where pairs can lead).
        n: observations of each coordinate of theta, or of each state-action pair.
        method: how the policy was found. `theta known` is no policy: its risk is the certified lower bound, its
            loss the optimum under the truth.
        risk, risk_error: CVaR over the posterior of the expected discounted cost, on fresh draws.
        above, above_error: risk above that of the Bayesian-risk policy on the same draws.
        loss, loss_error: loss under the truth.
        excess: loss above the optimum under the truth.
    """

    family: str
    posterior: str
    n: int
    method: str
    risk: float
    risk_error: float
    above: float
    above_error: float
    loss: float
    loss_error: float
    excess: float


class Setting(NamedTuple):
    """A family with one kind of posterior.

    Attributes:
        family, posterior: names.
        model: the models theta is a parameter of.
        truth: the true theta.
        belief: `(n, seed)` to the posterior after a data set of size n.
    """

    family: str
    posterior: str
    model: pr.AbstractFamily
    truth: Any
    belief: Callable[[int, Any], Any]


def families() -> dict[str, RiverSwim | MachineReplacement | Inventory]:
    """The families of the study, at their defaults."""
    return {"river swim": river_swim(), "machine": machine_replacement(), "inventory": inventory()}


def settings(family: str) -> list[Setting]:
    """A family with either kind of posterior."""
    known = families()
    if family not in known:
        raise pr.InputError(f"unknown family {family!r}; there are {', '.join(known)}")
    model: Any = known[family]
    problem = model.tabular()

    def conjugate(n: int, seed: Any) -> Any:
        return model.prior.update(model.trials(n, seed=seed))

    def tabular(n: int, seed: Any) -> Any:
        return problem.prior.update(problem.transitions(n, seed=seed))

    return [
        Setting(family, "conjugate", model, model.truth, conjugate),
        Setting(family, "tabular", problem.family, problem.truth, tabular),
    ]


def compare(
    setting: Setting,
    sizes: Sequence[int] = SIZES,
    replications: int = 10,
    seed: int = 0,
    solver: pr.SampleAverage | None = None,
) -> list[FamilyRow]:
    """All methods in one setting, at every size of the data set.

    Args:
        setting: one of `settings(family)`.
        sizes: observations of each coordinate or pair.
        replications: independent data sets of each size.
        seed: whole number; the data sets are the same for all methods.
        solver: of the Bayesian-risk policies; the default one when left out.
    """
    replications = require_size("replications", replications)
    solver = pr.SampleAverage() if solver is None else solver
    observations = np.repeat([require_size("a data-set size", n) for n in sizes], replications)
    # Run i has the seed that `solve_many` gives it, so that all methods are judged on the same fresh draws.
    seeds = [child(seed, i) for i in range(len(observations))]
    beliefs = [setting.belief(int(n), own) for n, own in zip(observations, seeds, strict=True)]
    # One call for all sizes: everything is compiled once.
    found = pr.solve_many(
        setting.model, beliefs, [pr.CVaR(LEVEL), pr.CVaR(0.0)], solver=solver, seed=seed, progress=False, certify=True
    )
    methods = {CAUTIOUS: [row[0] for row in found], "Bayesian risk, mean": [row[1] for row in found]}
    rivals = [
        _rivals(setting, belief, own, len(found[0][0].losses)) for belief, own in zip(beliefs, seeds, strict=True)
    ]
    methods |= {name: [row[name] for row in rivals] for name in rivals[0]}
    truth = setting.model.at(setting.truth)
    optimum = float(truth.start @ pr.plan(truth).values)
    outcomes = {
        name: (
            np.array([float(pr.CVaR(LEVEL)(solution.losses).value) for solution in solutions]),
            pr.loss_at([solution.policy for solution in solutions], setting.model, setting.truth),
        )
        for name, solutions in methods.items()
    }
    bounds = np.array([solution.certificate.lower_bound for solution in methods[CAUTIOUS]])
    outcomes[KNOWN] = (bounds, np.full(len(bounds), optimum))
    cautious = outcomes[CAUTIOUS][0]
    rows = []
    for n in sizes:
        here = observations == n
        for name, (risk, loss) in outcomes.items():
            figures = (*_mean(risk[here]), *_mean((risk - cautious)[here]), *_mean(loss[here]))
            excess = float(loss[here].mean()) - optimum
            rows.append(FamilyRow(setting.family, setting.posterior, int(n), name, *figures, excess))
    return rows


def _rivals(setting: Setting, belief: Any, seed: int, draws: int) -> dict[str, pr.Solution]:
    """What others would do with the same belief, judged on the same fresh draws."""
    model, risk = setting.model, pr.CVaR(LEVEL)
    horizon = int(np.ceil(np.log(NEGLIGIBLE) / np.log(float(model.discount))))
    likeliest = belief.maximum_likelihood()
    return {
        "plug-in, maximum likelihood": pr.plug_in(model, belief, likeliest, risk=risk, evaluation=draws, seed=seed),
        f"robust, radius {RADIUS:g}": pr.robust(model, belief, RADIUS, risk=risk, evaluation=draws, seed=seed),
        f"nested, CVaR {LEVEL:g}": pr.nested(
            model, belief, risk, horizon, samples=NESTED_DRAWS, evaluation=draws, seed=seed
        ),
    }


def _mean(values: Float[np.ndarray, " I"]) -> tuple[float, float]:
    """Mean over data sets and its standard error."""
    spread = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return float(values.mean()), spread / float(np.sqrt(values.size))
