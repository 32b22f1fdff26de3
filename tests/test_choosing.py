"""The answer does not lose to another plan: whichever policy is clearly better on draws set aside is handed out."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app


def short_log(folder, seed):
    """Write the example's problem with some of its moves, drawn by chance."""
    path = pr.write_example(folder)[0]
    head, *rows = [row.split(",") for row in path.with_name("log.csv").read_text().split()]
    moves = [row[:3] for row in rows for _ in range(int(row[3]))]
    kept = np.random.default_rng(seed).permutation(len(moves))[:20]
    lines = [head[:3], *(moves[k] for k in kept)]
    path.with_name("log.csv").write_text("".join(",".join(row) + "\n" for row in lines))
    return path


def test_solve_gives_no_policy_that_the_posterior_mean_plan_clearly_beats(tmp_path):
    found = set()
    for seed in (2, 9):
        arguments = pr.read_problem(short_log(tmp_path / str(seed), seed)).arguments()
        solution = pr.solve(**arguments)
        found.add(solution.status)
        plan = pr.plug_in(arguments["model"], arguments["belief"], risk=arguments["risk"])
        judged = [
            pr.evaluate(policy, arguments["model"], arguments["belief"], risk=arguments["risk"], samples=8000, seed=99)
            for policy in (solution.policy, plan.policy)
        ]
        ours, theirs = (each.losses for each in judged)
        if not np.array_equal(ours, theirs):
            assert arguments["risk"].difference_interval(theirs, ours)[1] > 0.0
    assert pr.Status.PLAN_KEPT in found


def test_one_start_is_not_replaced():
    lake = pr.envs.frozen_lake("SF\nHG")
    nothing = pr.SampleAverage(samples=8, largest=8, starts=1, iterations=0, evaluation=100)
    solution = pr.solve(lake, lake.prior, solver=nothing)
    assert np.all(solution.policy.probabilities == 0.25)


def test_a_run_hands_out_its_best_policy_and_goes_on_to_the_same_bits(tmp_path):
    """A solver that is given no time loses to every rival; what the run hands out does not."""
    path = pr.write_example(tmp_path)[0]
    how = ["--iterations", "0", "--no-report", "--json"]
    changes = {"solver.starts": 1, "solver.iterations": 0}
    weak = pr.solve(**pr.read_problem(path, changes=changes).arguments())
    text = path.read_text().replace("[solver]", "[solver]\nstarts = 1")
    path.write_text(text)
    done = CliRunner().invoke(app, ["solve", str(path), "--out", str(tmp_path / "run"), *how])
    said = json.loads(done.stdout)
    assert said["risk"] < weak.risk - 10.0
    assert said["deterministic"]["risk"] == said["risk"]
    assert done.exit_code == 1, "no iteration was made: the search is not done"
    again = CliRunner().invoke(app, ["continue", str(tmp_path / "run"), *how, "--out", str(tmp_path / "again")])
    assert {k: v for k, v in json.loads(again.stdout).items() if k not in ("seconds", "settings")} == {
        k: v for k, v in said.items() if k not in ("seconds", "settings")
    }
    page = pr.solve_problem(path, tmp_path / "page", changes={"solver.iterations": 0}).record
    rivals = [rival.difference for rival in page.rivals if rival.difference is not None]
    assert rivals
    assert not any(each.clear and each.value < 0 for each in rivals)


@pytest.mark.parametrize("seed", range(3))
def test_on_atoms_no_plan_is_better(seed):
    random = np.random.default_rng(seed)
    tables = random.dirichlet(np.ones(3), size=(4, 3, 2))
    family = pr.TabularFamily(pr.Support.dense(3, 2), cost=random.uniform(size=(3, 2)), start=0, discount=0.9)
    solution = pr.solve(family, pr.Draws(tables), risk=pr.CVaR(0.5))
    for choice in np.ndindex(2, 2, 2):
        assert pr.evaluate(np.eye(2)[list(choice)], family, pr.Draws(tables), risk=pr.CVaR(0.5)).risk >= (
            solution.risk - 1e-9
        )
