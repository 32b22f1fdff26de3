"""What plans from some of the buses would have cost on the others.

Plans here replace an engine from some mileage on. The loss of such a plan has a closed form, so that a study of many
splits takes seconds; the solver, which knows of no thresholds, is held against it by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float

from ..baselines import robust_plan, row_radius
from ..risks import CVaR
from .bus import DISCOUNT, GAINS, GROWTH, REPLACE, REPLACEMENT, STATES, STEP, Ageing, Bus, believed, buses, fleet
from .held_out import LEVEL, HeldOutOutcome, resampled, splits_of

DRAWS = 1000
SIZES = (3, 10, 40)

# Models of the fleet with enough buses to be planned for apart, and how many of each the plans are made on.
APART, FEWEST = 5, 10


def threshold_losses(
    thetas: Float[np.ndarray, "M 5"], replacement: float = REPLACEMENT, discount: float = DISCOUNT
) -> Float[np.ndarray, "M 90"]:
    """Expected discounted cost from a new engine, by draw and by the step from which on engines are replaced.

    Gains are never negative, so the discounted visits of the steps below a threshold do not depend on it and follow
    one from the other: `mu_x (1 - g p_0) = 1[x = 0] + g sum_j p_j mu_(x - j)`. With `E` the discounted chance of
    coming to a threshold, a replacement there is a new start once it is paid for: `V = (C + E R) / (1 - E)`.
    """
    law = np.asarray(thetas)[:, :GAINS]
    visits = np.zeros((len(law), STATES))
    for step in range(STATES):
        came = float(step == 0) + discount * sum(law[:, j] * visits[:, step - j] for j in range(1, GAINS) if j <= step)
        visits[:, step] = came / (1.0 - discount * law[:, 0])
    below = np.cumsum(visits, axis=1)
    running = np.cumsum(visits * np.arange(STATES), axis=1) * 0.001 * np.asarray(thetas)[:, GAINS:]
    left = 1.0 - (1.0 - discount) * below
    # Entry k is the plan that replaces from step k + 1 on.
    return (running + left * replacement) / (1.0 - left)


def bus_replays(fleet_of: Sequence[Bus], discount: float = DISCOUNT) -> tuple[np.ndarray, np.ndarray]:
    """`[buses, 90]` discounted steps run and replacements paid, by bus and threshold, on the months it has driven.

    How far a bus drives is decided by its route and not by its engine, so any plan can be played on its record. The
    record is gone through again and again, from a new engine, until what is left counts for less than a ten-thousandth.
    """
    limit = STEP * np.arange(1, STATES + 1)
    return _replayed(fleet_of, STATES, lambda miles: miles >= limit, discount)


def _replayed(
    fleet_of: Sequence[Bus], runs: int, renewed: Callable[[np.ndarray], np.ndarray], discount: float
) -> tuple[np.ndarray, np.ndarray]:
    """`[buses, runs]` discounted steps and replacements where engines of so many miles are renewed or not."""
    horizon = int(np.ceil(np.log(1e-4) / np.log(discount)))
    driven = np.stack([np.resize(bus.driven, horizon) for bus in fleet_of])
    steps, paid, miles = np.zeros((3, len(fleet_of), runs))
    for month in range(horizon):
        new = renewed(miles)
        steps += discount**month * np.where(new, 0.0, np.minimum(miles // STEP, STATES - 1))
        paid += discount**month * new
        miles = np.where(new, 0.0, miles) + driven[:, month, None]
    return steps, paid


def as_they_did(part: Sequence[Bus], rest: Sequence[Bus], seed: int, discount: float = DISCOUNT) -> np.ndarray:
    """`[2, buses]` the same of the rates at which engines of some buses were replaced, on the others; 20 times each."""
    state = np.concatenate([np.minimum(bus.miles // STEP, STATES - 1) for bus in part])
    new = np.concatenate([bus.replaced for bus in part])
    blocks = np.minimum(state // 5, 15)
    # In blocks of 25,000 miles; beyond the last replacement the rate of all engines that old.
    rate = np.bincount(blocks, new, 16) / np.maximum(np.bincount(blocks, minlength=16), 1)
    rate[np.bincount(blocks, minlength=16) < 20] = max(rate.max(), 0.02)
    generator = np.random.default_rng(seed)

    def renewed(miles: np.ndarray) -> np.ndarray:
        at = np.minimum(miles // STEP, STATES - 1).astype(int)
        return generator.random(miles.shape) < rate[np.minimum(at // 5, 15)]

    return np.stack([each.mean(axis=1) for each in _replayed(rest, 20, renewed, discount)])


def thresholds(belief: Ageing, seed: int, robust: bool = True) -> dict[str, tuple[int, float, float]]:
    """By plan, the step from which on engines are replaced, and the mean and CVaR 0.9 that the belief states of it."""
    losses, risk = threshold_losses(belief.sample(seed, DRAWS)), CVaR(LEVEL)
    risks = np.array([float(risk(column).value) for column in losses.T])
    chosen = {
        "cautious": int(np.argmin(risks)),
        "maximum-likelihood": int(np.argmin(threshold_losses(belief.maximum_likelihood()[None])[0])),
        "posterior-mean": int(np.argmin(threshold_losses(belief.mean()[None])[0])),
        "risk-neutral": int(np.argmin(losses.mean(axis=0))),
    }
    if robust:
        chosen["robust"] = _robust(belief)
    return {name: (step, float(losses[:, step].mean()), float(risks[step])) for name, step in chosen.items()}


def _robust(belief: Ageing) -> int:
    """Where the plan against the worst law of each row in its ball begins to replace."""
    model, _ = fleet(growth=belief.growth, growth_error=belief.error)
    radius = row_radius(model.support, np.full((STATES, 2), belief.counts.sum() + 1.0))
    table = np.asarray(robust_plan(model.at(belief.mean()), radius).policy.probabilities)
    return max(int(np.argmax(table[:, REPLACE] > 0.5)) - 1, 0)


def outcomes(
    sizes: Sequence[int] = SIZES, splits: int = 10, seed: int = 0, growth: float = 1.0, robust: bool = True
) -> list[HeldOutOutcome]:
    """Plans from some buses held against the others.

    Args:
        sizes: of the parts.
        splits: of each size.
        seed: of splits and draws.
        growth: how fast costs really grow, as a multiple of the estimate that the plans were made with.
        robust: whether to make the robust plan, which takes most of the time.
    """
    everyone = buses()
    steps, paid = bus_replays(everyone)
    cost = 0.001 * GROWTH * growth * steps + REPLACEMENT * paid
    _, prior = fleet()
    found: list[HeldOutOutcome] = []
    for size in sizes:
        for own in (False, True):
            label = f"{size} buses, {'each its own law' if own else 'one law'}"
            for split, (part, rest) in enumerate(splits_of(len(everyone), size, splits, seed)):
                belief = believed([everyone[k] for k in part], prior, own)
                found += _held(label, split, thresholds(belief, split, robust), cost[rest])
                if own:
                    ran, new = as_they_did([everyone[k] for k in part], [everyone[k] for k in rest], split)
                    found.append(_as_it_was(label, split, 0.001 * GROWTH * growth * ran + REPLACEMENT * new))
    return found + list(_apart(everyone, prior, cost, splits, seed, robust))


def _apart(
    everyone: list[Bus], prior: Ageing, cost: np.ndarray, splits: int, seed: int, robust: bool
) -> Iterable[HeldOutOutcome]:
    """A few buses of each large model: one plan for all, and one for each model, on the other buses of them."""
    models = list(dict.fromkeys(bus.model for bus in everyone))
    places = {name: np.array([k for k, bus in enumerate(everyone) if bus.model == name]) for name in models}
    places = {name: where for name, where in places.items() if len(where) >= FEWEST}
    for split in range(splits):
        generator = np.random.default_rng([seed, split])
        part = {name: np.sort(generator.permutation(where)[:APART]) for name, where in places.items()}
        rest = {name: np.setdiff1d(where, part[name]) for name, where in places.items()}
        whole = believed([everyone[k] for where in part.values() for k in where], prior, True)
        others = np.concatenate(list(rest.values()))
        yield from _held(f"{APART} of each model, together", split, thresholds(whole, split, robust), cost[others])
        each = {
            name: thresholds(believed([everyone[k] for k in where], prior, True), split, robust)
            for name, where in part.items()
        }
        share = np.array([len(rest[name]) for name in each]) / len(others)
        for plan in next(iter(each.values())):
            chosen = [each[name][plan] for name in each]
            losses = np.concatenate([cost[rest[name], step] for name, (step, _, _) in zip(each, chosen, strict=True)])
            mean, risk = (float(share @ [one[k] for one in chosen]) for k in (1, 2))
            yield _judged(
                f"{APART} of each model, apart", split, plan, mean, risk, losses, _words([c[0] for c in chosen])
            )


def _held(
    label: str, split: int, made: dict[str, tuple[int, float, float]], cost: np.ndarray
) -> Iterable[HeldOutOutcome]:
    return [
        _judged(label, split, name, mean, risk, cost[:, step], _words([step]))
        for name, (step, mean, risk) in made.items()
    ]


def _as_it_was(label: str, split: int, losses: np.ndarray) -> HeldOutOutcome:
    return _judged(label, split, "as they did", np.nan, np.nan, losses, "rates of the log")


def _judged(
    label: str, split: int, plan: str, mean: float, risk: float, losses: np.ndarray, rule: str
) -> HeldOutOutcome:
    low, high = resampled(losses, lambda picked: float(losses[picked].mean()), split)
    worst = np.sort(losses)[-max(1, round((1.0 - LEVEL) * len(losses))) :]
    return HeldOutOutcome(label, split, plan, mean, risk, float(losses.mean()), low, high, float(worst.mean()), rule)


def _words(steps: Sequence[int]) -> str:
    """Mileages from which on engines are replaced, in thousands."""
    miles = sorted({STEP * (step + 1) // 1000 for step in steps})
    return f"{miles[0]}k" if len(miles) == 1 else f"{miles[0]}–{miles[-1]}k"
