"""Logs of one habit: the evidence is never called sound, and nothing is promised where the log carries no policy."""

import json

import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app

from .habits import FREE, QUICK, World, hospital, lake_log_of_two_rewards, wet_chicken, write_log

CASES = {
    "chicken, 500 steps": lambda seed: (world := wet_chicken(), world.walk(500, seed)),
    "chicken, 2,000 steps": lambda seed: (world := wet_chicken(), world.walk(2000, seed)),
    "hospital, 1,500 steps": lambda seed: (world := hospital(), world.walk(1500, seed)),
}


@pytest.mark.parametrize("world", [wet_chicken(), wet_chicken(0.5), hospital()], ids=["chicken", "often", "hospital"])
def test_the_worlds_are_models(world: World):
    assert world.kernel.min() >= 0.0
    assert world.kernel.sum(axis=2) == pytest.approx(1.0)
    assert world.today.sum(axis=1) == pytest.approx(1.0)


def test_wet_chicken_has_the_published_values():
    for share, value in ((0.1, 29.75), (0.2, 29.50), (0.5, 27.37)):
        world = wet_chicken(share)
        assert -world.loss(world.today) == pytest.approx(value, abs=0.005)


def words_of(folder, world: World, rows: list, problem: str) -> dict:
    path = write_log(folder, world, rows, problem)
    done = CliRunner().invoke(app, ["solve", str(path), "--out", str(folder / "run"), "--no-report"])
    said = json.loads((folder / "run" / "solution.json").read_text())
    assert said["evidence"]["word"] in ("thin", "unsupported"), done.stdout
    assert done.exit_code == 1
    first, text = done.stdout.split("\n")[0], " ".join(done.stdout.split())
    assert first.startswith("The log does not carry this policy. Under the belief, it spends ")
    assert "the promise" not in text
    assert "is better by more than" not in text
    return said


def test_no_promise_is_made_on_a_log_of_one_habit(tmp_path):
    words_of(tmp_path, *CASES["hospital, 1,500 steps"](0), FREE + QUICK)


@pytest.mark.parametrize("name", ["chicken, 500 steps", "chicken, 2,000 steps"])
def test_the_evidence_of_wet_chicken_is_not_sound(name, tmp_path):
    world, rows = CASES[name](0)
    arguments = pr.read_problem(write_log(tmp_path, world, rows, FREE + QUICK)).arguments()
    assert pr.solve(**arguments).evidence.word.warns


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(1, 11))
def test_no_promise_is_made_on_any_log_of_one_habit(name, seed, tmp_path):
    words_of(tmp_path, *CASES[name](seed), FREE + QUICK)


@pytest.mark.long
@pytest.mark.parametrize("known", ["", "rule"])
def test_a_reward_seen_twice_is_no_evidence(known, tmp_path):
    world, rows = lake_log_of_two_rewards()
    rule = '[layout]\ngrid = [8, 8]\n[posterior]\nsupport = "rule"\nrule = "adjacent"\n' if known else ""
    words_of(tmp_path, world, rows, FREE + rule + QUICK)


def test_a_cost_that_few_rows_show_is_no_evidence_whatever_its_level_and_scale():
    """The only reward is behind a pair with two rows, in which hardly any time is spent."""
    cost = [[0.0, 0.0]] * 9 + [[-1.0, -1.0]]
    support = pr.Support.lists([[[0, (state + 1) % 10] if state < 9 else [0, 1]] * 2 for state in range(10)])
    records = [(s, a, (s + 1) % 10) for s in range(9) for a in range(2)] * 100 + [(9, 0, 0), (9, 0, 0)]
    log = pr.Transitions.from_records(records, states=10, actions=2)
    words, shares = set(), set()
    for level, scale in ((0.0, 1.0), (5.0, 1.0), (-3.0, 1e6)):
        costs = [[level + scale * each for each in row] for row in cost]
        plant = pr.TabularFamily(support, cost=costs, start=0, discount=0.9)
        belief = pr.Dirichlet.symmetric(support).update(log)
        found = pr.evaluate([[1.0, 0.0]] * 10, plant, belief).evidence
        assert found.time < 0.1
        words.add(found.word.name)
        shares.add(round(found.cost_share, 9))
    assert words == {"THIN"}
    assert shares == {1.0}
