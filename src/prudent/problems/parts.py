"""A case as the objects `pr.solve` takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..kernels import Graph, Support
from ..losses import (
    ChiSquare,
    ExpectedCost,
    Hellinger,
    Imitation,
    JensenShannon,
    KullbackLeibler,
    Loss,
    NegativeEntropy,
    QuadraticDistance,
    ReverseKullbackLeibler,
    TotalVariation,
)
from ..models import AbstractFamily, TabularFamily
from ..posteriors import Dirichlet, Pooled, Posterior, WithCosts
from ..risks import (
    ChiSquareBall,
    CVaR,
    EntropicVaR,
    Expectation,
    KullbackLeiblerBall,
    MeanSemideviation,
    QuantileDeviation,
    Risk,
    TotalVariationBall,
    WorstCase,
)
from ..solvers import BRPG, Optimiser, SampleAverage
from ..transitions import Transitions
from . import schema
from .case import Case
from .memory import largest_sample

DIVERGENCES = {
    "kullback-leibler": KullbackLeibler,
    "reverse-kullback-leibler": ReverseKullbackLeibler,
    "chi-square": ChiSquare,
    "total-variation": TotalVariation,
    "jensen-shannon": JensenShannon,
    "hellinger": Hellinger,
}

RISKS = {
    schema.Expectation: Expectation,
    schema.CVaR: CVaR,
    schema.WorstCase: WorstCase,
    schema.MeanSemideviation: MeanSemideviation,
    schema.QuantileDeviation: QuantileDeviation,
    schema.EntropicVaR: EntropicVaR,
    schema.KullbackLeiblerBall: KullbackLeiblerBall,
    schema.ChiSquareBall: ChiSquareBall,
    schema.TotalVariationBall: TotalVariationBall,
}


def arguments_of(case: Case) -> dict[str, Any]:
    """Model, belief, risk, loss, solver and seed."""
    file = case.facts.file
    model, belief = model_and_belief(case)
    return {
        "model": model,
        "belief": belief,
        "risk": risk_of(file.risk),
        "loss": loss_of(case),
        "solver": solver_of(file.solver, case.shape),
        "seed": file.seed,
    }


def model_and_belief(case: Case) -> tuple[AbstractFamily, Posterior]:
    """The family and the posterior with the whole log."""
    log = transitions_of(case)
    if case.family is not None:
        if log is None:
            return case.family.model, case.family.prior
        if not hasattr(case.family.prior, "update"):
            raise InputError(f"the prior of family {case.family.name!r} has no update(log), and there is a log")
        return case.family.model, case.family.prior.update(log)
    support = support_of(case)
    said = case.facts.file.posterior
    belief = Pooled(support, grid=_grid(case)) if said.pooled else Dirichlet.symmetric(support, said.prior or 1.0)
    belief = belief if log is None else belief.update(log)
    costs = case.costs
    assert costs is not None
    if costs.spread is None:
        return TabularFamily(support, costs.mean, case.start, case.facts.file.discount), belief
    model = TabularFamily(support, None, case.start, case.facts.file.discount)
    return model, WithCosts(belief, costs.mean, costs.spread, costs.degrees, costs.group)


def _grid(case: Case) -> list[int] | None:
    """The grid that the states are said to form; the rows' moves tell when nothing is said."""
    return case.facts.file.layout.grid


def support_of(case: Case) -> Support:
    """The successor lists as a support."""
    assert case.successors is not None
    index, listed, shape = case.successors
    if index is None:
        return Support.dense(*shape[:2])
    # The lists are made by this package, and were checked when they were: no second look at a nested list.
    return Support(index, listed, Graph.of(index, listed), *shape, case.facts.file.posterior.support == "observed")


def transitions_of(case: Case) -> Transitions | None:
    """The log, without the moves of terminal states onto themselves."""
    log = case.facts.log
    if log is None:
        return None
    return Transitions(log.state, log.action, log.next_state, log.count, *case.shape[:2])


def risk_of(section: Any) -> Risk:
    """The risk a section of the file describes."""
    if isinstance(section, schema.Mixture):
        mixed: Any = sum(part.share * risk_of(part.risk) for part in section.parts)
        return mixed
    numbers = section.model_dump(exclude={"kind"})
    return RISKS[type(section)](**numbers)


def loss_of(case: Case) -> Loss:
    """The loss a section of the file describes."""
    section, target = case.facts.file.loss, case.facts.target
    if isinstance(section, schema.Imitation):
        return Imitation(target, DIVERGENCES[section.divergence](), section.floor)
    if isinstance(section, schema.QuadraticDistance):
        return QuadraticDistance(target, section.weight)
    return NegativeEntropy() if isinstance(section, schema.NegativeEntropy) else ExpectedCost()


def solver_of(section: schema.SampleAverage | schema.BRPG, shape: tuple[int, int, int]) -> Optimiser:
    """The solver a section of the file describes; what it leaves out is the solver's own default."""
    given: dict[str, Any] = section.model_dump(exclude={"kind"}, exclude_none=True)
    if isinstance(section, schema.BRPG):
        return BRPG(**given)
    given["largest"] = largest_sample(shape, section)
    return SampleAverage(**given)


def pair_counts(case: Case) -> np.ndarray:
    """`[S, A]` rows of the log, 0 without one."""
    counts = case.counts()
    return np.zeros(case.shape[:2]) if counts is None else counts
