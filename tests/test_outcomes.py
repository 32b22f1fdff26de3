"""Laws of outcomes that pairs share: exact where outcomes are seen in part, in Python and from problem files."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import prudent as pr
from prudent.problems import describe

from .run_folders import read_checkpoint

# A store of 0 to 3, demand 0 to 4, nothing ordered or two units. What is short is lost: demand is cut off from above.
STATES, DEMANDS = 4, 5
LEADS = np.array([[[max(min(s + 2 * a, 3) - d, 0) for d in range(DEMANDS)] for a in range(2)] for s in range(STATES)])
ONE_LAW = np.zeros((STATES, 2), dtype=int)
TRUTH = np.array([0.35, 0.3, 0.2, 0.1, 0.05])


def walked(steps, seed):
    random = np.random.default_rng(seed)
    state, action, demand = (
        random.integers(STATES, size=steps),
        random.integers(2, size=steps),
        random.choice(5, steps, p=TRUTH),
    )
    return pr.Transitions.from_records(np.column_stack([state, action, LEADS[state, action, demand]]), STATES, 2)


def likelihood(laws, log):
    """`[N]` of each law, set by set."""
    total = np.zeros(len(laws))
    for s, a, t, n in zip(log.state, log.action, log.next_state, log.count, strict=True):
        total += n * np.log(laws[:, LEADS[s, a] == t].sum(axis=1))
    return total


def test_cut_off_outcomes_have_the_posterior_that_weighting_the_prior_finds():
    log = walked(25, seed=3)
    prior = np.array([1.0, 0.5, 2.0, 1.0, 0.7])
    belief = pr.OutcomeLaws(pr.Support.lists(LEADS), ONE_LAW, prior[None]).update(log)
    laws = np.random.default_rng(0).dirichlet(prior, size=400_000)
    weight = likelihood(laws, log)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ laws
    error = np.sqrt((weight**2) @ (laws - mean) ** 2)
    assert np.all(np.abs(belief.mean()[3, 0] - mean) < 5 * error)
    spread = np.sqrt(weight @ (laws - mean) ** 2)
    for draws in (belief.sample(0, 40_000), pr.Sobol(belief).sample(0, 8192)):
        assert np.array_equal(draws[:, 0, 0], draws[:, 3, 1]), "one law for all pairs"
        assert draws[:, 3, 0].mean(axis=0) == pytest.approx(belief.mean()[3, 0], abs=4e-3)
        assert draws[:, 3, 0].std(axis=0) == pytest.approx(spread, rel=0.05)
        assert draws[:, 3, 0].sum(axis=1) == pytest.approx(1.0)


def test_a_grid_over_the_simplex_finds_the_same_for_sets_without_an_order():
    """Two outcomes that look alike in one pair, and all apart in another: a tree that is no chain."""
    leads = [[[0, 1, 1, 2, 2]], [[0, 1, 2, 3, 4]], *[[[0, 1, 2, 3, 4]]] * 3]
    belief = pr.OutcomeLaws(pr.Support.lists(leads), np.zeros((5, 1), dtype=int))
    rows = [(0, 0, 1)] * 3 + [(0, 0, 2)] * 2 + [(1, 0, 0), (1, 0, 2), (1, 0, 4)]
    belief = belief.update(pr.Transitions.from_records(rows, 5, 1))
    steps = 24
    grid = (np.array([p for p in itertools.product(range(steps), repeat=4) if sum(p) < steps]) + 0.5) / (steps + 1.5)
    grid = np.column_stack([grid, 1.0 - grid.sum(axis=1)])
    log = (
        3 * np.log(grid[:, 1] + grid[:, 2])
        + 2 * np.log(grid[:, 3] + grid[:, 4])
        + np.log(grid[:, [0, 2, 4]]).sum(axis=1)
    )
    weight = np.exp(log - log.max())
    assert belief.mean()[0, 0] == pytest.approx(weight @ grid / weight.sum(), abs=0.012)


def test_outcomes_that_are_told_apart_are_a_tied_dirichlet():
    shop = pr.envs.inventory()
    log = shop.trials(n=9, seed=1)
    own = pr.OutcomeLaws(shop.support, np.zeros(shop.support.shape[:2], dtype=int)).update(log)
    tied = shop.prior.update(log)
    assert own.mean() == pytest.approx(np.asarray(tied.mean()))
    assert own.maximum_likelihood() == pytest.approx(np.asarray(tied.maximum_likelihood()))
    assert own.draw(np.random.default_rng(0), 5) == pytest.approx(tied.draw(np.random.default_rng(0), 5))


def test_the_most_likely_law_is_that_of_kaplan_and_meier():
    log = walked(60, seed=5)
    belief = pr.OutcomeLaws(pr.Support.lists(LEADS), ONE_LAW).update(log)
    law = belief.maximum_likelihood(belief.mean())[3, 0]
    stock = np.minimum(log.state + 2 * log.action, 3)
    met = log.next_state > 0
    times, censored = np.where(met, stock - log.next_state, stock), ~met
    # scipy's estimator of survival takes outcomes beyond a time as censored just before the next one.
    known = stats.ecdf(stats.CensoredData.right_censored(np.where(censored, times - 0.5, times), censored))
    survival = known.sf.evaluate(np.arange(3))
    assert 1.0 - np.cumsum(law)[:3] == pytest.approx(survival)


@pytest.mark.long
def test_the_true_law_is_as_likely_anywhere_in_the_belief():
    random, ranks = np.random.default_rng(1), []
    support = pr.Support.lists(LEADS)
    for seed in range(1000):
        truth = random.dirichlet(np.ones(5))
        state, action, demand = random.integers(4, size=12), random.integers(2, size=12), random.choice(5, 12, p=truth)
        log = pr.Transitions.from_records(np.column_stack([state, action, LEADS[state, action, demand]]), STATES, 2)
        draws = pr.OutcomeLaws(support, ONE_LAW).update(log).sample(seed, 99)[:, 3, 0]
        ranks.append((draws < truth).sum(axis=0))
    for column in np.array(ranks).T:
        assert stats.kstest((column + 0.5) / 100.0, "uniform").pvalue > 1e-3


SOME = pr.Support.lists([[[0, 0, 1]], [[0, 1, 1]]])
REFUSED = {
    "sets that cross": (
        lambda: pr.OutcomeLaws(SOME, [[0], [0]], names=(("low", "mid", "high"),)).update(
            pr.Transitions.from_records([(0, 0, 0), (1, 0, 1)], 2, 1)
        ),
        r"one of \(low, mid\) and elsewhere one of \(mid, high\): such sets must be nested or apart",
    ),
    "other outcomes": (
        lambda: pr.OutcomeLaws(pr.Support.lists([[[0, 1]], [[1]]]), [[0], [0]]),
        "state 0, action 0 lists other outcomes than another pair",
    ),
    "a gap": (lambda: pr.OutcomeLaws(SOME, [[0], [2]]), r"law 2 at index \(1, 0\) is unknown"),
    "labels": (lambda: pr.OutcomeLaws(SOME, [0, 0]), r"law needs a label for each pair, shape \(2, 1\)"),
    "no prior": (lambda: pr.OutcomeLaws(SOME, [[0], [0]], 0.0), "must be > 0 for the outcomes of a law"),
    "a negative prior": (lambda: pr.OutcomeLaws(SOME, [[0], [0]], -1.0), "prior of outcomes must be positive"),
    "shape": (lambda: pr.OutcomeLaws(SOME, [[0], [0]], seen=[1.0]), r"seen of outcomes must have shape \(1, 3\)"),
    "no data": (lambda: pr.OutcomeLaws(SOME, [[0], [0]]).maximum_likelihood(), "maximum likelihood needs data"),
    "a wrong log": (
        lambda: pr.OutcomeLaws(SOME, [[0], [0]]).update(pr.Trials([[1, 2]])),
        "learns from Transitions, got Trials",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_laws_are_refused(name):
    attempt, words = REFUSED[name]
    with pytest.raises(pr.InputError, match=words):
        attempt()


# ---------------------------------------------------------------- in a problem file

PROBLEM = """
states = 4
actions = 2
discount = 0.9
start = 3
[data]
transitions = "log.csv"
costs = "costs.csv"
[posterior]
kind = "outcomes"
outcomes = "outcomes.csv"
[solver]
samples = 16
largest = 16
starts = 2
evaluation = 50
iterations = 5
"""
OUTCOMES = "state,action,outcome,next_state\n" + "".join(
    f"{s},{a},{d},{LEADS[s, a, d]}\n" for s, a, d in np.ndindex(LEADS.shape)
)


def read(folder, problem=PROBLEM, **files):
    log = walked(40, seed=2)
    rows = zip(log.state, log.action, log.next_state, strict=True)
    usual = {
        "log": "state,action,next_state\n" + "".join(f"{s},{a},{t}\n" for s, a, t in rows),
        "costs": "state,action,cost\n" + "".join(f"{s},{a},{10 * (s == 0) + a}\n" for s in range(4) for a in range(2)),
        "outcomes": OUTCOMES,
    }
    for name, text in (usual | files).items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "problem.toml").write_text(problem)
    return pr.read_problem(folder / "problem.toml")


def test_a_file_ties_rows_by_outcomes(tmp_path):
    case = read(tmp_path)
    belief = case.arguments()["belief"]
    ours = pr.OutcomeLaws(pr.Support.lists(LEADS), ONE_LAW).update(walked(40, seed=2))
    assert belief.mean() == pytest.approx(ours.mean())
    assert ("posterior", "one law of 5 outcomes, prior weight 1") in describe(case)
    run = pr.solve_problem(case, tmp_path / "run", report=False, progress=False)
    assert np.isfinite(run.solution.risk)
    again = read_checkpoint(tmp_path / "run").case
    assert again.digest() == case.digest()
    assert np.array_equal(again.arguments()["belief"].mean(), belief.mean())


def test_a_policy_loses_the_same_where_outcomes_that_lead_to_one_state_are_one(tmp_path):
    """A list may repeat a state: the kernel then sums its entries."""
    arguments = read(tmp_path).arguments()
    policy = np.random.default_rng(0).dirichlet(np.ones(2), size=4)
    thetas = arguments["belief"].sample(0, 3)
    for theta in thetas:
        dense = np.zeros((4, 2, 4))
        for s, a, d in np.ndindex(LEADS.shape):
            dense[s, a, LEADS[s, a, d]] += theta[s, a, d]
        model = pr.TabularFamily(pr.Support.dense(4, 2), arguments["model"].costs, 3, 0.9)
        assert float(pr.loss_at(policy, arguments["model"], theta)) == pytest.approx(
            float(pr.loss_at(policy, model, dense))
        )


def test_several_laws_and_outcomes_seen_as_such(tmp_path):
    laws = "state,action,outcome,next_state,law\n" + "".join(
        f"{s},{a},{d},{LEADS[s, a, d]},{('day', 'night')[a]}\n" for s, a, d in np.ndindex(LEADS.shape)
    )
    problem = PROBLEM.replace(
        'outcomes = "outcomes.csv"', 'outcomes = "outcomes.csv"\noutcomes_seen = "seen.csv"\nprior = 2'
    )
    seen = "law,outcome,count\nnight,4,30\n"
    belief = read(tmp_path, problem, outcomes=laws, seen=seen).arguments()["belief"]
    by_hand = pr.OutcomeLaws(
        pr.Support.lists(LEADS), np.arange(2)[None].repeat(4, axis=0), 2.0, seen=[[0] * 5, [0, 0, 0, 0, 30]]
    ).update(walked(40, seed=2))
    assert belief.mean() == pytest.approx(by_hand.mean())
    assert belief.mean()[3, 1, 4] > 0.4 > belief.mean()[3, 0, 4]


def test_a_log_with_the_outcome_in_a_column_tells_all_of_it(tmp_path):
    random = np.random.default_rng(4)
    rows = np.column_stack(
        [random.integers(STATES, size=30), random.integers(2, size=30), random.choice(5, 30, p=TRUTH)]
    )
    laws = "state,action,outcome,next_state,law\n" + "".join(
        f"{s},{a},{d},{LEADS[s, a, d]},{('day', 'night')[a]}\n" for s, a, d in np.ndindex(LEADS.shape)
    )
    problem = PROBLEM.replace('transitions = "log.csv"\n', "")
    problem = problem.replace("[solver]", 'outcomes_seen = "log.csv"\n[solver]')
    log = "state,action,outcome,next_state\n" + "".join(f"{s},{a},{d},{LEADS[s, a, d]}\n" for s, a, d in rows)
    seen = np.zeros((2, DEMANDS))
    np.add.at(seen, (rows[:, 1], rows[:, 2]), 1.0)
    for outcomes, counts in ((laws, seen), (OUTCOMES, seen.sum(axis=0, keepdims=True).repeat(2, axis=0))):
        belief = read(tmp_path, problem, outcomes=outcomes, log=log).arguments()["belief"]
        for action in range(2):
            expected = (1.0 + counts[action]) / (1.0 + counts[action]).sum()
            assert belief.mean()[2, action] == pytest.approx(expected)
    head, first, *rest = log.splitlines(keepends=True)
    wrong = "".join([head, f"{first[:6]}{(LEADS[tuple(rows[0])] + 1) % STATES}\n", *rest])
    with pytest.raises(
        pr.InputError, match=r"row 1: the outcome leads to state \d, as posterior.outcomes says, the row"
    ):
        read(tmp_path, problem, log=wrong)
    with pytest.raises(pr.InputError, match=r"is named by data.transitions and by posterior.outcomes_seen"):
        read(tmp_path, problem.replace("[data]", '[data]\ntransitions = "log.csv"'), log=log)


def test_costs_may_go_by_the_outcome(tmp_path):
    """What is short costs more the more it is, though the stock is empty either way."""
    short = np.maximum(np.arange(DEMANDS) - np.minimum(np.arange(4)[:, None] + 2 * np.arange(2), 3)[..., None], 0)
    outcomes = "state,action,outcome,next_state,cost\n" + "".join(
        f"{s},{a},{d},{LEADS[s, a, d]},{5.0 * short[s, a, d] + a}\n" for s, a, d in np.ndindex(LEADS.shape)
    )
    problem = PROBLEM.replace('costs = "costs.csv"\n', "")
    case = read(tmp_path, problem, outcomes=outcomes)
    assert case.cost == pytest.approx(5.0 * short + np.arange(2)[None, :, None])
    assert ("costs", "of each outcome, given; 0 to 20") in describe(case)
    arguments, policy = case.arguments(), np.random.default_rng(0).dirichlet(np.ones(2), size=4)
    theta = arguments["belief"].sample(0, 1)[0]
    dense = np.zeros((4, 2, 4))
    for s, a, d in np.ndindex(LEADS.shape):
        dense[s, a, LEADS[s, a, d]] += theta[s, a, d]
    plain = pr.TabularFamily(pr.Support.dense(4, 2), (case.cost * theta).sum(axis=2), 3, 0.9)
    by_hand = float(pr.loss_at(policy, plain, dense))
    assert float(pr.loss_at(policy, arguments["model"], theta)) == pytest.approx(by_hand)
    run = pr.solve_problem(case, tmp_path / "run", report=False, progress=False)
    assert np.isfinite(run.solution.risk) and read_checkpoint(tmp_path / "run").case.digest() == case.digest()
    with pytest.raises(pr.InputError, match=r"given by data.costs and by the column cost of posterior.outcomes"):
        read(tmp_path, PROBLEM, outcomes=outcomes)


def test_a_run_goes_on_with_a_log_of_outcomes(tmp_path):
    """Rows of a table with outcomes count by these, beside the transitions that there were, and once."""
    run = pr.solve_problem(read(tmp_path), tmp_path / "run", report=False, progress=False)
    more = tmp_path / "more.csv"
    more.write_text("state,action,outcome,next_state\n3,0,4,0\n1,1,4,0\n2,0,1,1\n")
    frame = pd.DataFrame({"outcome": ["0", "4"], "count": [2, 1]})
    later = pr.continue_run(run.folder, data=[more, frame], report=False, progress=False)
    by_hand = pr.OutcomeLaws(pr.Support.lists(LEADS), ONE_LAW, seen=[[2, 1, 0, 0, 3]]).update(walked(40, seed=2))
    assert later.case.belief.mean() == pytest.approx(by_hand.mean())
    said = dict(describe(later.case))
    assert said["log"] == "40 rows, 40 transitions; 6 outcomes seen as such"
    assert said["coverage"] == "1 of 1 laws seen, 0 of them fewer than 5 times"
    again = read_checkpoint(run.folder).case
    assert again.digest() == later.case.digest() != run.case.digest()
    with pytest.raises(pr.InputError, match=r"more.csv: its rows were counted before; leave it out"):
        pr.continue_run(run.folder, data=more)
    for text, words in (
        (
            "state,action,outcome,next_state\n3,0,4,1\n",
            "row 1: the outcome leads to state 0, as posterior.outcomes says",
        ),
        ("state,action,outcome\n3,0,7\n", "row 1: outcome '7' is not declared"),
    ):
        (tmp_path / "wrong.csv").write_text(text)
        with pytest.raises(pr.InputError, match=words):
            pr.continue_run(run.folder, data=tmp_path / "wrong.csv")


def test_the_first_log_of_outcomes_counts_once_too(tmp_path):
    problem = PROBLEM.replace('transitions = "log.csv"\n', "")
    problem = problem.replace("[solver]", 'outcomes_seen = "seen.csv"\n[solver]')
    case = read(tmp_path, problem, seen="outcome\n0\n1\n1\n")
    assert dict(describe(case))["log"] == "3 outcomes seen as such"
    with pytest.raises(pr.InputError, match=r"seen.csv: its rows were counted before"):
        case.with_log(tmp_path / "seen.csv")
    assert case.with_log(tmp_path / "seen.csv", again=True).facts.outcomes.seen[:, 2].tolist() == [2, 4]
    (tmp_path / "next.csv").write_text("state,action,next_state\n3,0,2\n")
    belief = case.with_log(tmp_path / "next.csv").belief
    by_hand = pr.OutcomeLaws(pr.Support.lists(LEADS), ONE_LAW, seen=[[1, 3, 0, 0, 0]])
    assert belief.mean() == pytest.approx(by_hand.mean())


def test_the_page_of_a_run_with_laws_has_a_evidence_and_counts_no_pairs(tmp_path):
    run = pr.solve_problem(read(tmp_path), tmp_path / "run", progress=False)
    assert run.record.evidence is not None and run.record.evidence.word is not None
    page = (run.folder / "report.html").read_text()
    assert f'data-name="evidence.word" data-value="{run.record.evidence.word}"' in page
    assert "every row of the log tells of all pairs of its law" in page


REFUSED_FILES = {
    "a pair without the outcome": (
        PROBLEM.replace("[solver]", 'outcomes_seen = "seen.csv"\n[solver]').replace('transitions = "log.csv"\n', ""),
        {
            "seen": "state,action,outcome\n1,0,2\n",
            "outcomes": "".join(line for line in OUTCOMES.splitlines(True) if not line.startswith("1,0,")),
        },
        "seen.csv, row 1: posterior.outcomes does not say where this outcome leads from state 1, action 0",
    ),
    "which law": (
        PROBLEM.replace("[solver]", 'outcomes_seen = "seen.csv"\n[solver]'),
        {
            "seen": "outcome\n2\n",
            "outcomes": "state,action,outcome,next_state,law\n"
            + "".join(f"{s},{a},{d},{LEADS[s, a, d]},{a}\n" for s, a, d in np.ndindex(LEADS.shape)),
        },
        "seen.csv: there are 2 laws; say in a column law, or in state and action, which one",
    ),
    "a cost too large": (
        PROBLEM.replace('costs = "costs.csv"\n', ""),
        {
            "outcomes": "state,action,outcome,next_state,cost\n"
            + "".join(f"{s},{a},{d},{LEADS[s, a, d]},1e200\n" for s, a, d in np.ndindex(LEADS.shape))
        },
        "outcomes.csv, row 1: cost 1e\\+200 is too large",
    ),
    "no file": (PROBLEM.replace('outcomes = "outcomes.csv"', ""), {}, "go together; give both, or neither"),
    "no kind": (PROBLEM.replace('kind = "outcomes"', ""), {}, "go together; give both, or neither"),
    "a rule, too": (PROBLEM.replace("[solver]", 'rule = "adjacent"\n[solver]'), {}, "remove rule"),
    "an outcome left out": (
        PROBLEM,
        {"outcomes": OUTCOMES.replace("2,1,4,0\n", "")},
        "lists 4 of the 5 outcomes of the law for state 2, action 1; say where each leads",
    ),
    "a pair left out": (
        PROBLEM,
        {
            "outcomes": "".join(line for line in OUTCOMES.splitlines(True) if not line.startswith("1,0,")),
            "log": "state,action,next_state\n3,0,1\n",
        },
        "posterior.outcomes lists none for state 1, action 0, which can be reached",
    ),
    "an outcome twice": (PROBLEM, {"outcomes": OUTCOMES + "3,1,4,0\n"}, "row 41: repeats row 40"),
    "where no outcome leads": (
        PROBLEM,
        {"log": "state,action,next_state\n1,0,3\n"},
        "from state 1, action 0 to state 3, which posterior.outcomes does not list",
    ),
    "two laws of a pair": (
        PROBLEM,
        {"outcomes": "state,action,outcome,next_state,law\n0,0,a,0,x\n0,0,b,1,y\n"},
        "row 2: the pair has another law above",
    ),
    "a fraction seen": (
        PROBLEM.replace("[solver]", 'outcomes_seen = "seen.csv"\n[solver]'),
        {"seen": "outcome,count\n1,0.5\n"},
        "seen.csv, row 1: count 0.5 is not a whole number",
    ),
    "an unknown outcome seen": (
        PROBLEM.replace("[solver]", 'outcomes_seen = "seen.csv"\n[solver]'),
        {"seen": "outcome,count\n9,1\n"},
        "outcome '9' is not declared",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_bad_files_of_outcomes_are_refused(name, tmp_path):
    problem, files, words = REFUSED_FILES[name]
    with pytest.raises(pr.InputError, match=words):
        read(tmp_path, problem, **files)
