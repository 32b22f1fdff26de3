"""What an answer stands on: by hand, for rich logs and poor ones, and silent where it cannot be known."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.objectives import losses_on
from prudent.objectives.evidence import FEW
from prudent.runs import add_to_run, evidence_before
from prudent.runs.folder import record_files
from prudent.tabular.evidence import Ground, ground_of
from prudent_studies.known import known_environment

from .catalogue import PERCENTILE, RISKS
from .marks import short

QUICK = pr.SampleAverage(samples=64, largest=64, starts=2, evaluation=400)
RAGGED = pr.Support.lists([[[2, 0, 1], [1]], [[0, 1], [2, 1]], [[2, 1], [0, 2, 1]]])
COST = np.array([[1.0, 2.0], [0.0, 4.0], [3.0, 0.5]])


def belief_of(support: pr.Support, n: int, weight: float = 1.0) -> pr.Dirichlet:
    random = np.random.default_rng(5)
    state, action = random.integers(support.states, size=n), random.integers(support.actions, size=n)
    slot = random.integers(support.allowed().sum(axis=2)[state, action])
    records = np.stack([state, action, support.index()[state, action, slot]], axis=1)
    log = pr.Transitions.from_records(records, states=support.states, actions=support.actions)
    return pr.Dirichlet.symmetric(support, weight).update(log)


def dense(support: pr.Support, table: np.ndarray) -> np.ndarray:
    """`[S, A, S]`, one entry after the other."""
    full = np.zeros((*support.shape[:2], support.states))
    for s, a, b in np.argwhere(support.allowed()):
        full[s, a, support.index()[s, a, b]] += table[s, a, b]
    return full


def occupancy_by_hand(support, table, policy, start, discount):
    """`[S, A]` from the equations of the visits, without the library."""
    chain = np.einsum("sa,sat->st", policy, dense(support, table))
    visits = np.linalg.solve((np.eye(len(chain)) - discount * chain).T, np.eye(len(chain))[start])
    return visits[:, None] * policy


# ---------------------------------------------------------------- the measure


@pytest.mark.parametrize("support", [RAGGED, pr.Support.dense(3, 2)], ids=["ragged", "dense"])
def test_policies_are_followed_as_the_equations_say(support):
    tables = belief_of(support, 20).sample(0, 7)
    policy = np.random.default_rng(1).dirichlet([1.0, 1.0], size=3)
    objective = pr.TabularFamily(support, COST, start=1, discount=0.9).objective()
    losses = losses_on(objective, policy[None], tables)[0]
    occupancies = objective.mean_occupancies(policy, tables, np.eye(7))
    for k, table in enumerate(tables):
        wanted = occupancy_by_hand(support, table, policy, 1, 0.9)
        np.testing.assert_allclose(occupancies[k], wanted, rtol=1e-12)
        assert losses[k] == pytest.approx((wanted * COST).sum(), rel=1e-12)


def test_the_shares_of_time_are_sums_over_occupancies():
    belief = belief_of(RAGGED, 30)
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    policy = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    result = pr.evaluate(policy, model, belief, samples=300)
    each = np.stack([occupancy_by_hand(RAGGED, table, policy, 1, 0.9) for table in result.thetas]) * (1 - 0.9)
    rows = np.asarray(belief.counts).sum(axis=2)
    thin = (rows < FEW) & (RAGGED.allowed().sum(axis=2) > 1)
    assert 0 < thin.sum() < 5
    time, tail = each.mean(axis=0), np.tensordot(result.weights / 300, each, axes=1)
    evidence = result.evidence
    assert evidence.time == pytest.approx(time[thin].sum(), rel=1e-10)
    assert evidence.tail_time == pytest.approx(tail[thin].sum(), rel=1e-10)
    assert {pair.pair for pair in evidence.pairs} == {tuple(pair) for pair in np.argwhere(thin).tolist()}
    for pair in evidence.pairs:
        assert pair.rows == rows[pair.pair]
        assert (pair.time, pair.tail_time) == pytest.approx((time[pair.pair], tail[pair.pair]), rel=1e-10)
    order = [max(pair.time, pair.tail_time) / (pair.rows + 1) for pair in evidence.pairs]
    assert order == sorted(order, reverse=True)


def test_chance_risk_and_gain_under_another_prior_are_what_they_say():
    belief = belief_of(RAGGED, 30)
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    policy = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    result = pr.evaluate(policy, model, belief, samples=2000)
    allowed = RAGGED.allowed()
    prior = allowed / allowed.sum(axis=2, keepdims=True)
    other = pr.Dirichlet(RAGGED, prior, belief.counts)
    again = pr.evaluate(policy, model, other, samples=4000, seed=9)
    spread = next(each for each in result.evidence.others if each.name.startswith("one row"))
    assert result.evidence.own == pytest.approx((result.losses > result.risk).mean(), abs=1e-12)
    # A chance from 256 draws, within four standard errors.
    chance = float((again.losses > result.risk).mean())
    assert spread.exceeded == pytest.approx(chance, abs=4 * np.sqrt(max(chance, 0.01) / 256))
    assert spread.risk == pytest.approx(again.risk, rel=0.05)
    mean = np.asarray(other.mean())
    plans = [np.eye(2)[list(actions)] for actions in np.ndindex(2, 2, 2)]
    losses = [(occupancy_by_hand(RAGGED, mean, plan, 1, 0.9) * COST).sum() for plan in [policy, *plans]]
    assert spread.gain == pytest.approx(losses[0] - min(losses), rel=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-6, 0.0), (3.0, -500.0)])
def test_another_unit_of_cost_changes_nothing(scale, shift):
    belief = belief_of(RAGGED, 30)
    policy = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    plain = pr.evaluate(policy, pr.TabularFamily(RAGGED, COST, 1, 0.9), belief, samples=300).evidence
    other = pr.evaluate(policy, pr.TabularFamily(RAGGED, scale * COST + shift, 1, 0.9), belief, samples=300).evidence
    assert (plain.word, plain.pairs, plain.message()) == (other.word, other.pairs, other.message())


def test_compiled_and_plain_ways_agree():
    """A convex loss that is the expected cost in disguise goes the compiled way."""
    belief = belief_of(RAGGED, 30)
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    policy = np.full((3, 2), 0.5)
    plain = pr.evaluate(policy, model, belief, samples=300).evidence
    other = pr.evaluate(policy, model, belief, samples=300, loss=lambda occupancy, mdp: (occupancy * mdp.cost).sum())
    assert other.evidence.exceeded == plain.exceeded
    assert other.evidence.time == pytest.approx(plain.time, rel=1e-9)
    assert [each.gain for each in other.evidence.others] == [None] * 3


def test_rows_that_are_tied_count_together():
    support = pr.Support.lists([[[0, 1]], [[1, 0]]])
    log = pr.Transitions.from_records([(0, 0, 1)] * 4, states=2, actions=1)
    belief = pr.Dirichlet.symmetric(support, 1.0, tied=[[0], [0]]).update(log)
    ground = ground_of(pr.TabularFamily(support, [[0.0], [1.0]], 0, 0.9), belief)
    assert isinstance(ground, Ground)
    assert ground.rows.tolist() == [[4.0], [4.0]]
    assert len(ground.beliefs) == 2
    for other in ground.beliefs.values():
        assert isinstance(other, pr.Dirichlet)
        total = np.asarray(other.prior) + 4.0 * np.array([[[0.0, 1.0]]])
        np.testing.assert_allclose(other.mean(), total / total.sum(axis=2, keepdims=True))


# A store of 0 to 3, demand 0 to 2, nothing ordered or one unit; what is short is lost.
STORE = pr.Support.lists([[[max(min(s + a, 3) - d, 0) for d in range(3)] for a in range(2)] for s in range(4)])
STORE_COST = np.array([[8.0, 9.0], [1.0, 2.0], [0.5, 1.5], [0.8, 1.8]])


def test_laws_of_outcomes_stand_on_what_was_seen_of_the_law():
    """Where a next state tells the outcome, the answer is that of tied rows, whose evidence is tested above."""
    ring = pr.Support.lists([[[(s + a - d) % 4 for d in range(3)] for a in range(2)] for s in range(4)])
    log = pr.Transitions.from_records([(3, 0, 3), (3, 0, 2), (2, 1, 3)], states=4, actions=2)
    law, policy = np.zeros((4, 2), dtype=int), np.full((4, 2), 0.5)
    model = pr.TabularFamily(ring, STORE_COST, start=3, discount=0.9)
    own, tied = pr.OutcomeLaws(ring, law), pr.Dirichlet.symmetric(ring, tied=law)
    ours, theirs = (pr.evaluate(policy, model, each.update(log), samples=400).evidence for each in (own, tied))
    assert (ours.word, ours.pairs) == (theirs.word, theirs.pairs)
    assert {pair.rows for pair in ours.pairs} == {3.0}
    assert [each.name for each in ours.others] == ["seen outcomes only, a row each", "one row spread over all outcomes"]
    for mine, other in zip(ours.others, theirs.others, strict=True):
        assert (mine.risk, mine.exceeded) == pytest.approx((other.risk, other.exceeded), rel=0.05, abs=0.05)
        assert mine.gain == pytest.approx(other.gain, rel=1e-6)
    evidence = pr.evaluate(policy, model, pr.OutcomeLaws(ring, law, seen=[[40, 30, 30]]), samples=400).evidence
    assert (evidence.word, evidence.pairs) == (pr.Soundness.SOUND, ())


def test_costs_that_differ_by_the_outcome_leave_a_pair_open():
    law, cost = np.zeros((4, 2), dtype=int), np.zeros((4, 2, 3)) + STORE_COST[..., None]
    belief = pr.OutcomeLaws(STORE, law, seen=[[1, 1, 0]])
    cost[0, 0] = [0.0, 5.0, 10.0]
    for costs, wanted in ((STORE_COST, False), (cost, True)):
        ground = ground_of(pr.TabularFamily(STORE, costs, 3, 0.9), belief)
        assert isinstance(ground, Ground)
        assert ground.open[0, 0] == wanted and ground.open[1:].all() and (ground.rows == 2.0).all()


def test_what_was_seen_of_a_law_in_sets():
    """At least 1 and at least 2 were seen, and outcome 1 as such: it explains the first set, nothing the second."""
    support = pr.Support.lists([[[3, 2, 1, 0]], [[3, 2, 0, 0]], [[3, 0, 0, 0]], [[0, 1, 2, 3]]])
    law = [[0], [0], [0], [1]]
    belief = pr.OutcomeLaws(support, law)
    assert belief.shown().all()
    two = belief.update(pr.Transitions.from_records([(2, 0, 0), (1, 0, 0)], 4, 1))
    assert two.shown().tolist() == [[False, False, True, True], [True] * 4]
    assert two.rows()[:, 0].tolist() == [2.0, 2.0, 2.0, 0.0]
    three = two.update(pr.Transitions.from_records([(0, 0, 2)], 4, 1))
    assert three.shown().tolist() == [[False, True, True, True], [True] * 4]


# ---------------------------------------------------------------- the word


@pytest.mark.parametrize("level", short([0.5], [0.0, 0.1, 0.5, 0.9, 0.99]))
@pytest.mark.parametrize("case", [*RISKS, PERCENTILE], ids=lambda case: case.name)
def test_a_rich_log_is_sound_by_every_risk(case, level):
    """Of a mean the belief itself finds about half of its draws above the risk: that is no fault of the log."""
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    policy = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    evidence = pr.evaluate(policy, model, belief_of(RAGGED, 50_000), risk=case.build(level), samples=1000).evidence
    assert evidence.word is pr.Soundness.SOUND, evidence.message()
    assert evidence.exceeded == pytest.approx(evidence.own, abs=0.12)


@pytest.mark.parametrize("risk", [{"kind": "expectation"}, {"kind": "cvar", "level": 0.5}, {"kind": "cvar"}])
def test_a_thousand_times_the_example_is_sound_by_its_mean_too(tmp_path, risk):
    path = pr.write_example(tmp_path)[0]
    first, *rows = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join([first, *(f"{row}000" for row in rows)]) + "\n")
    said = "\n".join(f"{key} = {json.dumps(value)}" for key, value in risk.items())
    path.write_text(re.sub(r"\[risk\][^\[]*", f"[risk]\n{said}\n\n", path.read_text()))
    evidence = evidence_before(pr.read_problem(path))
    assert evidence is not None
    assert evidence.word == "sound", evidence.message
    # The threshold of 20 % that was there before would have been passed.
    assert (evidence.exceeded >= 0.2) == (risk != {"kind": "cvar"})


@pytest.mark.parametrize("samples", [1, 2])
def test_few_draws_are_spoken_of_as_they_are(samples):
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    for risk in (pr.Expectation(), pr.CVaR(0.9), pr.WorstCase()):
        found = pr.evaluate(np.full((3, 2), 0.5), model, belief_of(RAGGED, 30), risk=risk, samples=samples)
        own = float((found.losses > found.risk * (1 + 1e-9)).mean())
        assert found.evidence.own == own
        if found.evidence.exceeded - own >= 0.16:
            assert f"under the belief itself ({100 * own:.1f} %;" in found.evidence.message()


def shortcut(rows: int, observed: bool, risk: pr.Risk | None = None) -> pr.Evidence:
    """The safe way costs 2, the shortcut, seen so often, 1; what has failed costs 100 for ever."""
    records = [(0, 0, 0)] * 500 + [(0, 1, 0)] * rows + [(1, 0, 1), (1, 1, 1)] * 500
    log = pr.Transitions.from_records(records, states=2, actions=2)
    lists = [[[0], [0]], [[1], [1]]]
    support = pr.Support.lists(lists, observed=observed)
    model = pr.TabularFamily(support, [[2.0, 1.0], [100.0, 100.0]], start=0, discount=0.95)
    solution = pr.solve(model, pr.Dirichlet.symmetric(support).update(log), risk=risk, solver=QUICK)
    assert solution.policy.probabilities[0, 1] > 0.99
    return solution.evidence


@pytest.mark.parametrize("risk", [None, pr.Expectation()], ids=["tail", "mean"])
def test_a_shortcut_seen_once_is_unsupported(risk):
    evidence = shortcut(rows=1, observed=True, risk=risk)
    assert evidence.word is pr.Soundness.UNSUPPORTED
    assert evidence.pairs[0].pair == (0, 1)
    assert evidence.pairs[0].rows == 1.0
    assert evidence.tail_time > 0.99


def test_a_shortcut_that_is_known_to_lead_nowhere_else_is_sound():
    evidence = shortcut(rows=1, observed=False)
    assert evidence.word is pr.Soundness.SOUND
    assert evidence.pairs == ()


@pytest.mark.parametrize("belief", short(["dirichlet"], ["dirichlet", "pooled"]))
def test_a_rich_log_is_sound_and_a_poor_one_leans_on_thin_pairs(belief):
    known = known_environment("garnet")
    support = pr.Support.dense(*known.shape)
    model = pr.TabularFamily(support, np.asarray(known.cost), known.start, known.discount)
    words = {}
    for steps in (40, 100_000):
        prior = pr.Dirichlet.symmetric(support, 1.0 / 15) if belief == "dirichlet" else pr.Pooled(support)
        evidence = pr.solve(model, prior.update(known.walk(steps, seed=0)), solver=QUICK).evidence
        words[steps] = evidence
    assert words[100_000].word is pr.Soundness.SOUND
    assert words[100_000].time < 1e-3
    assert words[40].time > 0.5
    assert words[40].word.warns


def test_nothing_is_said_of_beliefs_without_counts():
    lake = pr.envs.frozen_lake("SF\nHG")
    evidence = pr.evaluate(np.full((4, 4), 0.25), lake, lake.prior, samples=50).evidence
    assert evidence.word is None
    assert "Beta belief does not say how often" in evidence.reason
    assert evidence.rows() == []
    support = pr.Support.dense(2, 1)
    model = pr.TabularFamily(support, [[0.0], [1.0]], 0, 0.9)
    drawn = pr.Draws(pr.Dirichlet.symmetric(support).sample(0, 20))
    assert pr.evaluate(np.ones((2, 1)), model, drawn).evidence.word is None
    assert pr.evaluate(np.ones((2, 1)), model, pr.Sobol(pr.Dirichlet.symmetric(support)), samples=64).evidence.word


def test_one_state_and_one_action_are_sound():
    support = pr.Support.dense(1, 1)
    model = pr.TabularFamily(support, [[1.0]], 0, 0.9)
    evidence = pr.evaluate(np.ones((1, 1)), model, pr.Dirichlet.symmetric(support)).evidence
    assert (evidence.word, evidence.exceeded, evidence.own, evidence.pairs) == (pr.Soundness.SOUND, 0.0, 0.0, ())


def test_a_solution_without_a_certificate_has_no_evidence():
    model = pr.TabularFamily(RAGGED, COST, start=1, discount=0.9)
    assert pr.solve(model, belief_of(RAGGED, 30), solver=QUICK, certify=False).evidence is None


# ---------------------------------------------------------------- files and commands

PROBLEM = """
states = ["ok", "failed"]
actions = ["safe", "shortcut"]
discount = 0.95
start = "ok"
terminal = []
[data]
transitions = "log.csv"
costs = { ok = { safe = 2, shortcut = 1 }, failed = { safe = 100, shortcut = 100 } }
[posterior]
support = "observed"
[solver]
samples = 64
largest = 64
starts = 2
evaluation = 400
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shortcut")
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "log.csv").write_text(
        "state,action,next_state,count\nok,safe,ok,500\nok,shortcut,ok,1\nfailed,safe,failed,500\n"
        "failed,shortcut,failed,500\n"
    )
    return folder


def test_check_warns_before_anything_is_solved(folder):
    result = CliRunner().invoke(app, ["check", str(folder / "problem.toml"), "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["evidence"]
    assert said["word"] == "unsupported"
    assert said["pairs"][0] | {"time": 0, "tail_time": 0} == {
        "state": "ok",
        "action": "shortcut",
        "rows": 1.0,
        "time": 0,
        "tail_time": 0,
    }
    assert "unsupported" in CliRunner().invoke(app, ["check", str(folder / "problem.toml")]).stdout


def test_solve_evaluate_and_the_page_say_the_same(folder):
    out = folder / "run"
    solved = CliRunner().invoke(app, ["solve", str(folder / "problem.toml"), "--out", str(out)])
    assert solved.exit_code == 1, solved.output
    assert solved.stdout.startswith(
        "The log does not carry this policy. Under the belief, it spends 100 % of its discounted time in pairs"
    )
    assert "evidence: unsupported" in solved.stdout
    assert "ok/shortcut (1 row)" in solved.stdout
    said = json.loads((out / "solution.json").read_text())["evidence"]
    assert said["word"] == "unsupported"
    page = (out / "report.html").read_text()
    assert 'data-name="evidence.word" data-value="unsupported"' in page
    assert f'data-name="evidence.tail_time" data-value="{said["tail_time"]!r}"' in page
    judged = CliRunner().invoke(app, ["evaluate", str(out / "policy.csv"), str(folder / "problem.toml"), "--json"])
    assert json.loads(judged.stdout)["evidence"]["word"] == "unsupported"
    plain = CliRunner().invoke(app, ["evaluate", str(out / "policy.csv"), str(folder / "problem.toml")]).stdout
    names = [line.strip(" │").split("  ")[0].split("│")[0].strip() for line in plain.splitlines()]
    assert [names.count(name) for name in ("CVaR 0.9", "mean", "VaR 0.9")] == [1, 1, 1], "each number once"
    again = pr.report_run(out).read_text()
    assert again[: again.index('id="asked"')] == page[: page.index('id="asked"')]


def test_a_forged_word_is_refused(folder, tmp_path):
    run = pr.solve_problem(folder / "problem.toml", tmp_path / "run", report=False)
    forged = run.record.model_copy(update={"evidence": run.record.evidence.model_copy(update={"word": "perfect"})})
    add_to_run(run.folder, record_files(forged))
    with pytest.raises(pr.InputError, match=r"is damaged \(evidence: word: Input should be 'sound', 'thin' or"):
        pr.read_record(run.folder)
