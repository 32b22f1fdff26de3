"""Robust Q-learning on the lake: updates a second, against a loop over pairs as a researcher would write it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

import prudent as pr
from prudent_studies.q_learning import robust_q_learning

from .measuring import console, ratio, report, side_by_side, verdict

REPLICATIONS, ITERATIONS, RADIUS, GEOMETRIC = 50, 200, 0.05, 0.6
FRACTION = 5  # iterations of one run the loop is timed on


def worst_case(values: np.ndarray, radius: float) -> float:
    """The dual of the worst expectation over a KL ball around the empirical distribution of `values`."""
    top = values.max()
    if np.ptp(values) < 1e-6:
        return top

    def dual(temperature: float) -> float:
        return temperature * radius + top + temperature * np.log(np.mean(np.exp((values - top) / temperature)))

    result = minimize_scalar(dual, bounds=(1e-8, np.ptp(values) / np.sqrt(2 * radius)), method="bounded")
    return min(float(result.fun), top)


def plain_loop(
    mdp: pr.MDP, radius: float, iterations: int, geometric: float, random: np.random.Generator, quality: np.ndarray
) -> np.ndarray:
    """Updates of one run from `quality` on, pair by pair."""
    index, probability, cost = mdp.kernel.support.index(), np.asarray(mdp.kernel.probability), np.asarray(mdp.cost)
    discount = float(mdp.discount)
    states, actions = cost.shape
    for t in range(1, iterations + 1):
        values, step = quality.min(axis=1), 1 / (1 + (1 - discount) * t)
        new = np.empty_like(quality)
        for s in range(states):
            for a in range(actions):
                level = random.geometric(geometric) - 1
                samples = values[random.choice(index[s, a], size=2 ** (level + 1), p=probability[s, a])]
                halves = worst_case(samples[::2], radius) + worst_case(samples[1::2], radius)
                gain = worst_case(samples, radius) - halves / 2
                estimate = samples[0] + gain / (geometric * (1 - geometric) ** level)
                new[s, a] = (1 - step) * quality[s, a] + step * (cost[s, a] + discount * estimate)
        quality = new
    return quality


def run(rounds: int) -> None:
    lake = pr.envs.frozen_lake()
    mdp = lake.at((0.3, 0.2))
    random = np.random.default_rng(0)
    # At Q = 0 all values are equal and the loop has no dual to solve: it is timed where it spends its life.
    learned = pr.robust_plan(mdp, RADIUS).quality
    seconds = side_by_side(
        {
            "prudent": lambda: robust_q_learning(
                mdp, RADIUS, iterations=ITERATIONS, geometric=GEOMETRIC, replications=REPLICATIONS
            ),
            "loop": lambda: plain_loop(mdp, RADIUS, FRACTION, GEOMETRIC, random, learned),
        },
        rounds,
    )
    pairs = mdp.cost.size
    ours = seconds["prudent"] / (pairs * REPLICATIONS * ITERATIONS)
    loop = seconds["loop"] / (pairs * FRACTION)
    faster = ratio(loop, ours)
    report(
        f"Robust Q-learning: {pairs} pairs x {REPLICATIONS} runs x {ITERATIONS} updates, median of {rounds}",
        ("", "updates a second", "ratio", "aim"),
        [
            ("prudent", f"{1 / np.median(ours):,.0f}", "1", ""),
            (
                f"loop over pairs ({FRACTION} updates of one run)",
                f"{1 / np.median(loop):,.0f}",
                f"prudent is {faster:.0f} times faster",
                verdict(faster, 100, at_least=True),
            ),
        ],
    )
    console.print()
