"""The frozen lake against its description, written out again tile by tile."""

import numpy as np
import pytest

import prudent as pr

LEFT, DOWN, RIGHT, UP = range(4)
STEP = {LEFT: (0, -1), DOWN: (1, 0), RIGHT: (0, 1), UP: (-1, 0)}
SIDES = {LEFT: (UP, DOWN), RIGHT: (UP, DOWN), UP: (LEFT, RIGHT), DOWN: (LEFT, RIGHT)}


def by_hand(rows, slip, escape):
    height, width = len(rows), len(rows[0])
    table, cost = np.zeros((height * width, 4, height * width)), np.zeros((height * width, 4))

    def land(row, column, action):
        down, right = STEP[action]
        inside = 0 <= row + down < height and 0 <= column + right < width
        return (row + down) * width + column + right if inside else row * width + column

    for row in range(height):
        for column in range(width):
            here = row * width + column
            for action in range(4):
                if rows[row][column] == "G":
                    table[here, action, here] = 1
                elif rows[row][column] == "H":
                    table[here, action, land(row, column, action)] += escape
                    table[here, action, here] += 1 - escape
                    cost[here, action] = 2 - escape
                else:
                    table[here, action, land(row, column, action)] += 1 - slip
                    for side in SIDES[action]:
                        table[here, action, land(row, column, side)] += slip / 2
                    cost[here, action] = 1
    return table, cost


@pytest.mark.parametrize("rows", [None, ("SFFFH", "FHFFG"), ("GH", "HF", "FS")])
@pytest.mark.parametrize("theta", [(0.3, 0.02), (0.0, 1.0), (1.0, 0.0)])
def test_dynamics_and_cost_are_as_described(rows, theta):
    lake = pr.envs.frozen_lake() if rows is None else pr.envs.frozen_lake("\n".join(rows))
    table, cost = by_hand(lake.tiles, *theta)
    mdp = lake.at(theta)
    np.testing.assert_allclose(mdp.kernel.table(), table, atol=1e-15)
    np.testing.assert_allclose(mdp.cost, cost, atol=1e-15)
    assert mdp.start["".join(lake.tiles).index("S")] == 1


def test_the_reconstructed_map_has_the_described_shape():
    lake = pr.envs.frozen_lake()
    assert len(lake.tiles) == 5
    assert "".join(lake.tiles).count("H") == 6
    assert lake.tiles[0][0] == "S"
    assert lake.tiles[4][4] == "G"
    assert float(lake.discount) == 0.97


def test_the_optimum_under_the_truth_is_the_known_one():
    lake = pr.envs.frozen_lake()
    truth = lake.at((0.3, 0.02))
    plan = pr.plan(truth)
    assert truth.start @ plan.values == pytest.approx(32.56, abs=0.005)
    assert pr.loss_at(plan.policy, lake, (0.3, 0.02)) == pytest.approx(truth.start @ plan.values, rel=1e-12)
    # The published optimum, 32.499, lies between the truncated and the infinite horizon.
    assert pr.loss_at(plan.policy, lake, (0.3, 0.02), occupancy=pr.Truncated(130)) == pytest.approx(32.44, abs=0.005)


def test_trials_are_coins_with_the_true_chances():
    lake = pr.envs.frozen_lake()
    counts = np.stack([lake.trials(n=50, truth=(0.3, 0.02), seed=s).counts for s in range(400)])
    assert np.all(counts.sum(axis=2) == 50)
    np.testing.assert_allclose(counts[:, :, 0].mean(axis=0) / 50, [0.3, 0.02], atol=0.012)
    np.testing.assert_array_equal(
        lake.trials(n=9, truth=(0.3, 0.5), seed=4).counts, lake.trials(n=9, truth=(0.3, 0.5), seed=4).counts
    )


def test_drawing_a_policy_shows_arrows_holes_and_the_goal():
    lake = pr.envs.frozen_lake("SFF\nFHG")
    policy = np.eye(4)[[RIGHT, DOWN, DOWN, UP, LEFT, LEFT]]
    assert lake.draw(policy) == "→ ↓ ↓\n↑ H G"
