"""A benchmark of safe policy improvement: better than today from the log of a practice that varies little."""

import numpy as np
import pytest

import prudent as pr

from .habits import World, wet_chicken

LOGS = 20

# By steps and level: at least the mean value and the worst of the logs; at least the share of logs in which the stated
# risk of the difference holds.
EXPECTED = {
    (500, 0.5): (31.0, 29.65, 0.5),
    (500, 0.9): (30.2, 29.65, 0.5),
    (2000, 0.5): (35.3, 32.0, 0.7),
    (2000, 0.9): (34.2, 30.5, 0.9),
}


def solved(world: World, steps: int, seed: int, level: float) -> tuple[float, bool, bool]:
    """Return the true loss of the policy for one log, and whether the stated risks of cost and difference hold."""
    rows = [row[:3] for row in world.walk(steps, seed)]
    belief = pr.TriedRows.of(pr.Transitions.from_records(rows, *world.today.shape))
    arrival = world.cost[0, 0]
    family = pr.TriedFamily(belief.support, np.zeros(world.today.shape), world.start, world.discount, arrival=arrival)
    risk = pr.CVaR(level)
    solution = pr.solve(family, belief, risk=risk, relative_to=world.today, certify=False)
    policy = solution.policy.within(belief.visited(), elsewhere=world.today)
    loss = world.loss(np.asarray(policy.probabilities))
    stated = pr.evaluate(policy, family, belief, risk=risk).risk
    return loss, loss <= stated, loss - world.loss(world.today) <= solution.evaluation.risk


@pytest.mark.long
@pytest.mark.parametrize(("steps", "level"), EXPECTED)
def test_the_policy_is_better_than_today_and_the_stated_cost_holds(steps, level):
    world = wet_chicken()
    assert np.isclose(world.loss(world.today), -29.75, atol=0.005)
    loss, cost_held, difference_held = (
        np.array(c) for c in zip(*(solved(world, steps, k, level) for k in range(LOGS)), strict=True)
    )
    worse = float(np.mean(loss > world.loss(world.today) + 0.1))
    print(
        f"{steps} steps, CVaR({level}): mean {-loss.mean():.2f}, worst {-loss.max():.2f}, worse {worse:.0%}, "
        f"stated cost held {cost_held.mean():.0%}, stated difference held {difference_held.mean():.0%}"
    )
    mean, worst, share = EXPECTED[steps, level]
    assert -loss.mean() >= mean
    assert -loss.max() >= worst
    assert worse == 0.0
    assert cost_held.mean() >= 0.95
    assert difference_held.mean() >= share


def test_the_log_of_a_habit_is_solved_without_going_where_it_did_not():
    world = wet_chicken()
    loss, cost_held, _ = solved(world, 500, 0, 0.9)
    assert loss <= world.loss(world.today) + 0.1
    assert cost_held
