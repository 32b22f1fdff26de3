"""Safe policy improvement: its two benchmarks, the published methods, and the study."""

import json

import numpy as np
import pytest
import typer
from scipy.optimize import linprog
from typer.testing import CliRunner

from prudent import InputError
from prudent_studies import spi as study
from prudent_studies import spi_methods as methods
from prudent_studies import spi_worlds as worlds
from prudent_studies.spi_commands import spi

SOFT = (methods.approx_soft_spibb, methods.adv_approx_soft_spibb, methods.lower_approx_soft_spibb)


@pytest.fixture(scope="module")
def chicken():
    return worlds.wet_chicken()


@pytest.fixture(scope="module")
def goal():
    return worlds.random_mdp(0.9, np.random.default_rng(3))


def log_of(world, size=500, seed=0):
    return worlds.logged(world, size, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def everything(chicken):
    """A log of Wet Chicken that tries every pair."""
    log = worlds.simulated(chicken, chicken.uniform(), 1, 40_000, np.random.default_rng(0))
    assert (log.counts(*chicken.shape).sum(axis=2) > 0).all()
    return log


def in_the_estimate(policy, log, world):
    """What each state is worth under a policy where frequencies are the truth."""
    estimate = methods.Estimate.of(log, world)
    values = worlds.action_values(estimate.table, estimate.gains, world.discount, policy)
    return (policy * values).sum(axis=1)


@pytest.mark.parametrize(("share", "value"), [(0.1, 29.750), (0.2, 29.50), (0.5, 27.37)])
def test_wet_chicken_has_the_published_values(share, value):
    world = worlds.wet_chicken(share)
    np.testing.assert_allclose(world.table.sum(axis=2), 1.0, atol=1e-12)
    np.testing.assert_allclose(world.behaviour.sum(axis=1), 1.0, atol=1e-12)
    assert world.value(world.behaviour) == pytest.approx(value, abs=5e-3)
    assert world.value(world.uniform()) == pytest.approx(20.660, abs=5e-4)
    assert world.value(world.best()) == pytest.approx(43.080, abs=5e-4)
    assert not world.ends().any()


def test_the_table_of_wet_chicken_is_that_of_its_turbulence(chicken):
    points = (np.arange(2000) + 0.5) / 1000 - 1.0
    effects = ((0, 0), (-1, 0), (-2, 0), (0, -1), (0, 1))
    for state, action in np.ndindex(25, 5):
        x, y = divmod(state, 5)
        ahead, aside = effects[action]
        velocity = 3 * y / 5
        reached = np.round(x + ahead + velocity + points * (3.5 - velocity)).astype(int)
        row = np.zeros(25)
        for place in reached:
            row[0 if place >= 5 else 5 * max(place, 0) + min(max(y + aside, 0), 4)] += 1 / len(points)
        np.testing.assert_allclose(chicken.table[state, action], row, atol=2e-3)


def test_policy_iteration_finds_the_value_of_the_linear_program(chicken, goal):
    for world in (chicken, goal):
        states, actions = world.shape
        flow = np.repeat(np.eye(states), actions, axis=0) - world.discount * world.table.reshape(-1, states)
        gains = (world.table @ world.rewards).ravel()
        program = linprog(np.eye(states)[world.start], A_ub=-flow, b_ub=-gains, bounds=(None, None))
        assert world.value(world.best()) == pytest.approx(program.fun, abs=1e-6)


@pytest.mark.parametrize("quality", [0.5, 0.9])
def test_random_mdps_are_made_as_defined(quality):
    world = worlds.random_mdp(quality, np.random.default_rng(11))
    [end] = np.flatnonzero(world.ends())
    assert end != world.start and world.rewards.tolist() == np.eye(50)[end].tolist()
    others = np.delete(world.table, end, axis=0)
    np.testing.assert_allclose(others.sum(axis=2), 1.0, atol=1e-12)
    assert ((others > 0).sum(axis=2) == 4).all()
    np.testing.assert_allclose(world.behaviour.sum(axis=1), 1.0, atol=1e-12)
    uniform, today, best = map(world.value, (world.uniform(), world.behaviour, world.best()))
    assert best > 0.95**50 and quality - 0.05 < (today - uniform) / (best - uniform) <= quality


def test_what_no_world_can_have_is_refused():
    with pytest.raises(InputError, match=r"share .* 1\.5"):
        worlds.wet_chicken(1.5)
    with pytest.raises(InputError, match=r"quality .* 1\.0"):
        worlds.random_mdp(1.0, np.random.default_rng(0))


def test_logs_are_trajectories(chicken, goal):
    log = log_of(chicken, 300)
    assert log.rows.shape == (300, 3) and not log.trajectory.any()
    assert log.rows[0, 0] == 0 and (log.rows[1:, 0] == log.rows[:-1, 2]).all()
    episodes = log_of(goal, 40)
    [end] = np.flatnonzero(goal.ends())
    assert (goal.table[tuple(episodes.rows.T)] > 0).all()
    for number in range(40):
        rows = episodes.rows[episodes.trajectory == number]
        assert rows[0, 0] == goal.start and (rows[1:, 0] == rows[:-1, 2]).all() and not (rows[:, 0] == end).any()
        assert len(rows) == 50 or rows[-1, 2] == end
    counts = episodes.counts(*goal.shape)
    assert counts.sum() == len(episodes.rows) and counts[tuple(episodes.rows[7])] >= 1


def test_a_log_follows_the_policy_and_the_table(chicken, everything):
    counts = everything.counts(*chicken.shape)
    rows = counts.sum(axis=2)
    error = np.abs(counts / rows[..., None] - chicken.table) * np.sqrt(rows)[..., None]
    assert error.max() < 2.5, "five standard errors of a share"
    np.testing.assert_allclose(rows.sum(axis=0) / rows.sum(), 0.2, atol=0.01)


@pytest.mark.parametrize("name", ["wet-chicken", "random-mdps"])
def test_every_method_gives_probabilities(name, chicken, goal):
    world = chicken if name == "wet-chicken" else goal
    log = log_of(world, 200 if world is chicken else 5)
    for label, method in methods.METHODS[name].items():
        policy = method(log, world)
        assert policy.shape == world.shape and policy.min() > -1e-12, label
        np.testing.assert_allclose(policy.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize("method", [methods.spibb, methods.lower_spibb])
def test_spibb_is_between_the_behaviour_and_the_plug_in_plan(method, chicken, everything):
    log = log_of(chicken)
    np.testing.assert_allclose(method(log, chicken, rows=np.inf), chicken.behaviour, atol=1e-12)
    np.testing.assert_allclose(method(everything, chicken, rows=0), methods.plug_in(everything, chicken), atol=1e-12)


def test_spibb_holds_what_has_few_rows(chicken):
    log = log_of(chicken, 2000)
    few = log.counts(*chicken.shape).sum(axis=2) <= 7
    policy = methods.spibb(log, chicken, rows=7)
    np.testing.assert_allclose(policy[few], chicken.behaviour[few], atol=1e-12)
    assert chicken.value(policy) != pytest.approx(chicken.value(chicken.behaviour))
    lower = methods.lower_spibb(log, chicken, rows=7)
    assert (lower[few] <= chicken.behaviour[few] + 1e-12).all() and (lower[few] == 0.0).any()


@pytest.mark.parametrize("budget", [0.2, 1.0, 3.0])
def test_soft_spibb_keeps_its_budget(budget, chicken):
    log = log_of(chicken, 1000)
    error = methods.errors(log.counts(*chicken.shape).sum(axis=2))
    for method in SOFT:
        change = method(log, chicken, budget=budget) - chicken.behaviour
        counted = np.maximum(change, 0.0) if method is methods.lower_approx_soft_spibb else np.abs(change)
        spent = np.where(counted > 1e-12, counted, 0.0) * np.where(np.isinf(error), 1e9, error)
        assert spent.sum(axis=1).max() <= budget * (1 + 1e-9) and spent.max() > 0.0


def test_soft_spibb_is_between_the_behaviour_and_the_plug_in_plan(chicken, everything):
    for method in SOFT:
        np.testing.assert_allclose(method(everything, chicken, budget=0.0), chicken.behaviour, atol=1e-12)
    for method in (methods.approx_soft_spibb, methods.lower_approx_soft_spibb):
        # Of equals the plan takes the first, and these leave probability where it is.
        policies = method(everything, chicken, budget=1e6), methods.plug_in(everything, chicken)
        free, plan = (in_the_estimate(policy, everything, chicken) for policy in policies)
        np.testing.assert_allclose(free, plan, rtol=1e-9)


def test_a_soft_step_is_near_the_best_within_its_budget():
    random = np.random.default_rng(2)
    shares = []
    for _ in range(40):
        values, error, before = random.random(5), random.random(5) + 0.1, random.dirichlet(np.ones(5))
        policy = methods.moved(values[None], error[None], before[None], 0.2)[0]
        # The program in the probabilities and in the sizes of their changes.
        eye = np.eye(5)
        sizes = np.block([[eye, -eye], [-eye, -eye], [np.zeros((1, 5)), error[None]]])
        program = linprog(
            np.append(-values, np.zeros(5)),
            A_ub=sizes,
            b_ub=[*before, *-before, 0.2],
            A_eq=[np.append(np.ones(5), np.zeros(5))],
            b_eq=[1.0],
        )
        best = -program.fun - values @ before
        shares.append((values @ policy - values @ before) / best)
    assert min(shares) >= 0.0 and max(shares) <= 1.0 + 1e-9 and np.mean(shares) > 0.85


def test_the_advantage_by_the_returns_of_the_log_is_never_lost(chicken):
    log = log_of(chicken, 1000)
    returns = methods.mean_returns(log, chicken)
    policy = methods.adv_approx_soft_spibb(log, chicken, budget=2.0)
    assert ((policy - chicken.behaviour) * returns).sum(axis=1).min() > -1e-9
    free = methods.approx_soft_spibb(log, chicken, budget=2.0)
    assert ((free - chicken.behaviour) * returns).sum(axis=1).min() < -1e-3


def test_returns_end_with_their_trajectory():
    world = worlds.wet_chicken()
    rows = np.array([[0, 0, 10], [10, 1, 5], [0, 0, 20]])
    returns = methods.mean_returns(worlds.Log(rows, np.array([0, 0, 1])), world)
    assert returns[10, 1] == 1.0 and returns[0, 0] == pytest.approx(((2 + 0.95 * 1) + 4) / 2)
    assert np.count_nonzero(returns) == 2


def test_penalties_of_nothing_leave_the_plan(chicken, everything):
    plan = methods.plug_in(everything, chicken)
    np.testing.assert_allclose(methods.ramdp(everything, chicken, penalty=0.0), plan)
    np.testing.assert_allclose(
        in_the_estimate(methods.duipi(everything, chicken, weight=0.0, prior=1e-12), everything, chicken),
        in_the_estimate(plan, everything, chicken),
        rtol=1e-6,
    )


def test_ramdp_and_duipi_leave_what_has_few_rows():
    # Both actions of the first state lead to rewards of 1 and more; the better one was tried once.
    rows = [[0, 0, 1]] * 50 + [[0, 1, 2]] + [[1, 0, 0]] * 50 + [[2, 0, 0]] * 50
    world = worlds.World("", np.zeros((3, 2, 3)), np.array([0.0, 1.0, 1.2]), np.full((3, 2), 0.5), 0, 0.9, None)
    log = worlds.Log(np.array(rows), np.zeros(len(rows), dtype=int))
    assert methods.plug_in(log, world)[0, 1] == 1.0
    assert methods.ramdp(log, world, penalty=1.0)[0, 0] == 1.0 and methods.ramdp(log, world, penalty=0.01)[0, 1] == 1.0
    assert methods.duipi(log, world, weight=2.0)[0, 0] == pytest.approx(1.0, abs=0.02)
    assert methods.duipi(log, world, weight=5.0)[1, 1] == 0.0, "never tried"


def test_rows_are_means_with_their_worst_logs():
    plain = {"benchmark": "wet-chicken", "method": "a", "size": 5, "behaviour": 30.0, "optimum": 40.0}
    records = [plain | {"value": value, "measure": value} for value in (31.0, 29.95, 28.0, 33.0)]
    records.append(plain | {"size": 2, "value": 30.0, "measure": 30.0})
    first, row = study.summarised(records)
    assert (first.size, first.worse, first.lost) == (2, 0.0, 0.0)
    assert (row.logs, row.mean, row.worst, row.worse, row.lost) == (4, pytest.approx(30.4875), 28.0, 0.25, 2.0)
    assert study.summarised(records, margin=0.0)[1].worse == 0.5
    share = study.BENCHMARKS["random-mdps"].measured(35.0, 30.0, 40.0)
    assert share == 0.5


def test_a_method_of_ones_own_takes_part():
    keep = {"keep": lambda log, world: world.behaviour, "plan": methods.plug_in}
    rows = study.compare("random-mdps", keep, sizes=[3, 10], logs=2, setting=0.5)
    assert [(row.size, row.method) for row in rows] == [(3, "keep"), (3, "plan"), (10, "keep"), (10, "plan")]
    assert rows[0].mean == pytest.approx(0.0, abs=1e-9) and rows[0].worse == 0.0
    assert rows == study.compare("random-mdps", keep, sizes=[3, 10], logs=2, setting=0.5)
    with pytest.raises(InputError, match="half must give probabilities"):
        study.compare("wet-chicken", {"half": lambda log, world: 0.5 * world.behaviour}, sizes=[5], logs=1)
    with pytest.raises(InputError, match="wet-chicken, random-mdps"):
        study.compare("gridworld")


def test_the_command_goes_on_from_its_folder(tmp_path):
    app = typer.Typer()
    app.command()(spi)
    out = tmp_path / "run"
    few = ["--sizes", "100", "--out", str(out), "--methods", "plug-in plan", "--methods", "RaMDP, 2"]
    result = CliRunner().invoke(app, ["wet-chicken", "--logs", "2", *few])
    assert result.exit_code == 0, result.output
    assert "RaMDP, 2" in result.stdout and "29.75" in result.stdout
    made = {path: path.stat().st_mtime_ns for path in (out / "units").rglob("*.json")}
    assert len(made) == 4
    result = CliRunner().invoke(app, ["wet-chicken", "--logs", "3", *few])
    assert result.exit_code == 0 and all(path.stat().st_mtime_ns == time for path, time in made.items())
    records = json.loads((out / "spi.json").read_text())
    assert [record["log"] for record in records] == [0, 0, 1, 1, 2, 2] and (out / "spi.parquet").exists()
    for arguments, message in (
        (["wet-chicken", "--quality", "0.5"], "--share"),
        (["random-mdps", "--share", "0.5"], "--quality"),
        (["wet-chicken", "--methods", "luck"], "plug-in plan"),
    ):
        result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
        assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr


# Mean of 300 logs of 500 and of 2,000 steps by the published code, and the largest standard error of any.
PUBLISHED = {
    "plug-in plan": (32.1, 31.2),
    "SPIBB, 7 rows": (29.8, 32.7),
    "Lower-SPIBB, 7 rows": (29.9, 35.1),
    "Approx-Soft-SPIBB, 1": (30.6, 32.4),
    "Adv-Approx-Soft-SPIBB, 1": (30.7, 32.1),
    "Lower-Approx-Soft-SPIBB, 0.5": (32.0, 33.8),
    "DUIPI, 0.5": (29.7, 29.7),
    "RaMDP, 2": (33.4, 35.1),
}
PUBLISHED_ERROR = 0.14


@pytest.mark.long
def test_wet_chicken_repeats_the_published_comparison():
    rows = study.compare("wet-chicken", sizes=[500, 2000], logs=60)
    assert len(rows) == 2 * len(PUBLISHED)
    for row in rows:
        figure = PUBLISHED[row.method][(500, 2000).index(row.size)]
        # Beside three standard errors of the means, what a figure of one decimal may be rounded by.
        assert abs(row.mean - figure) < 3.0 * np.hypot(row.error, PUBLISHED_ERROR) + 0.05, row


# Mean of 86 worlds by the published code, from 10 and from 50 trajectories.
PUBLISHED_SHARES = {
    "plug-in plan": (-0.42, -0.21),
    "SPIBB, 10 rows": (0.0, 0.05),
    "Lower-SPIBB, 10 rows": (0.02, 0.44),
    "Lower-Approx-Soft-SPIBB, 1": (0.32, 0.39),
    "DUIPI, 0.1": (-0.09, 0.52),
    "RaMDP, 0.05": (-0.22, 0.38),
}


@pytest.mark.long
def test_random_mdps_repeat_the_published_comparison():
    chosen = {label: methods.METHODS["random-mdps"][label] for label in PUBLISHED_SHARES}
    for row in study.compare("random-mdps", chosen, sizes=[10, 50], logs=86):
        figure = PUBLISHED_SHARES[row.method][(10, 50).index(row.size)]
        # As many worlds on either side, so that the errors are alike; 0.005 is what a figure may be rounded by.
        assert abs(row.mean - figure) < 3.0 * np.sqrt(2.0) * row.error + 0.005, row
