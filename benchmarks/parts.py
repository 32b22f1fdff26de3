"""What the exchangeable parts cost: risks in one BR-PG cell, an envelope's program, the gradient estimators."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import prudent as pr

from .measuring import console, ratio, report, side_by_side, verdict

DATA_SETS, ITERATIONS, SAMPLES = 50, 100, 30
RISK_LIMIT, ENVELOPE_LIMIT = 1.2, 30.0

RISKS = {
    "CVaR 0.9": pr.CVaR(0.9),
    "worst case": pr.WorstCase(),
    "mean-semideviation, order 2": pr.MeanSemideviation(order=2.0, weight=0.5),
    "spectral, 4 steps": pr.Spectral([2.5, 1.0, 0.4, 0.1]),
    "distortion, square root": pr.Distortion(jnp.sqrt),
    "entropic value-at-risk 0.9": pr.EntropicVaR(0.9),
    "Kullback-Leibler ball": pr.KullbackLeiblerBall(0.5),
    "chi-square ball": pr.ChiSquareBall(0.5),
    "total-variation ball": pr.TotalVariationBall(0.2),
    "deviation from a quantile": pr.QuantileDeviation(0.8, 2.0),
    "0.3 expectation + 0.7 CVaR": 0.3 * pr.Expectation() + 0.7 * pr.CVaR(0.9),
}


def _cells(rounds: int) -> None:
    lake = pr.envs.frozen_lake()
    beliefs = [lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=s)) for s in range(DATA_SETS)]
    settings = pr.BRPG(samples=SAMPLES, iterations=ITERATIONS, evaluation=1)
    contenders = {"expectation": pr.Expectation(), **RISKS}
    seconds = side_by_side(
        {
            name: lambda risk=risk: pr.solve_many(lake, beliefs, [risk], solver=settings, certify=False)
            for name, risk in contenders.items()
        },
        rounds,
    )
    rows = [("expectation", f"{np.median(seconds['expectation']):.2f}", "1", "")]
    for name in RISKS:
        value = ratio(seconds[name], seconds["expectation"])
        rows.append((name, f"{np.median(seconds[name]):.2f}", f"{value:.2f}", verdict(value, RISK_LIMIT)))
    report(
        f"Risks in one BR-PG cell ({DATA_SETS} data sets x {ITERATIONS} iterations x {SAMPLES} draws), "
        f"median of {rounds}",
        ("risk", "seconds", "of the expectation's", "aim"),
        rows,
    )
    console.print()


def _envelope(rounds: int) -> None:
    import cvxpy

    lake = pr.envs.frozen_lake()
    belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=0))
    settings = pr.BRPG(samples=SAMPLES, iterations=ITERATIONS, evaluation=SAMPLES)
    shapes = {
        "0 <= xi <= 10 (linear)": pr.Envelope(lambda xi, p: [xi <= 10.0]),
        "E (xi - 1)^2 <= 0.5 (second-order cone)": pr.Envelope(
            lambda xi, p: [cvxpy.sum(cvxpy.multiply(p, cvxpy.square(xi - 1.0))) <= 0.5]
        ),
        "E xi log xi <= 0.5 (exponential cone)": pr.Envelope(
            lambda xi, p: [cvxpy.sum(cvxpy.multiply(p, -cvxpy.entr(xi))) <= 0.5]
        ),
    }
    contenders = {"expectation": pr.Expectation(), **shapes}
    seconds = side_by_side(
        {
            name: lambda risk=risk: pr.solve(lake, belief, risk=risk, solver=settings, certify=False)
            for name, risk in contenders.items()
        },
        rounds,
    )
    rows = []
    for name in shapes:
        spent = 1e3 * float(np.median((seconds[name] - seconds["expectation"]) / ITERATIONS))
        rows.append((name, f"{spent:.1f}", verdict(spent, ENVELOPE_LIMIT)))
    report(
        f"A general envelope: milliseconds an iteration on top of the expectation's, r = {SAMPLES}, median of {rounds}",
        ("envelope", "ms", "aim"),
        rows,
    )
    console.print()


def _estimators(rounds: int) -> None:
    lake = pr.envs.frozen_lake()
    belief = lake.prior.update(lake.trials(n=5, truth=(0.3, 0.02), seed=0))
    settings = pr.BRPG(samples=SAMPLES, iterations=20, evaluation=1)
    target = np.full(25, 1.0 / 25.0)
    losses = {"expected cost": pr.ExpectedCost(), "KL of states": pr.Imitation(target)}
    estimators = {
        "adjoint": pr.Adjoint(),
        "variational": pr.Variational(),
        "zeroth order, m = 30": pr.ZerothOrder(directions=30),
    }
    rows = []
    for label, loss in losses.items():
        seconds = side_by_side(
            {
                name: lambda gradient=gradient, loss=loss: pr.solve(
                    lake, belief, loss=loss, gradient=gradient, solver=settings, certify=False
                )
                for name, gradient in estimators.items()
            },
            rounds,
        )
        for name in estimators:
            value = ratio(seconds[name], seconds["adjoint"])
            rows.append((label, name, f"{1e3 * np.median(seconds[name]) / settings.iterations:.2f}", f"{value:.1f}"))
    report(
        f"Gradient estimators on the 25-state lake, {SAMPLES} draws, a solve of {settings.iterations} iterations, "
        f"median of {rounds}",
        ("loss", "estimator", "ms an iteration", "of the adjoint's"),
        rows,
    )
    console.print()


def run(rounds: int) -> None:
    _cells(rounds)
    _envelope(rounds)
    _estimators(rounds)
