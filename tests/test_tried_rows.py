"""A belief that trusts tried rows alone: its moments in closed form, its concentration, and what it makes of a log."""

from typing import Any

import numpy as np
import pytest
from scipy import integrate, special

import prudent as pr

STATES, ACTIONS = 4, 2


def random_log(random, rows, states=STATES, actions=ACTIONS):
    """Return a log of a random table, of which the last state is never visited."""
    table = random.dirichlet(np.full(states - 1, 0.7), size=(states, actions))
    state, action = random.integers(0, states - 1, rows), random.integers(0, actions, rows)
    action[state == 0] = 0  # the other action of state 0 is never tried
    following = [random.choice(states - 1, p=table[s, a]) for s, a in zip(state, action, strict=True)]
    return np.stack([state, action, following], axis=1)


def log_of(rows, states=STATES, actions=ACTIONS):
    return pr.Transitions.from_records(rows, states, actions)


def nothing(states=2, actions=1):
    return pr.Transitions([], [], [], [], states, actions)


def test_moments_are_those_of_beta_and_dirichlet():
    belief = pr.TriedRows.of(log_of(random_log(np.random.default_rng(0), 60)), concentration=1.7)
    thetas, n = belief.sample(0, 100_000), 100_000
    assert thetas.shape == (n, *belief.support.shape[:2], belief.support.successors + 1)
    np.testing.assert_allclose(thetas.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    mean = np.asarray(belief.mean())
    np.testing.assert_allclose(thetas.mean(axis=0), mean, rtol=0, atol=5.0 * 0.5 / np.sqrt(n))
    for s, a in np.argwhere(belief.rows() > 0):
        total = belief.rows()[s, a]
        unseen, share = thetas[:, s, a, -1], 1.7 / (1.7 + total)
        np.testing.assert_allclose(unseen.var(), share * (1.0 - share) / (2.7 + total), rtol=0.05)
        # Given what is unseen, the successors seen are a Dirichlet law of their counts, whatever c.
        counts = belief.counts[s, a]
        within = thetas[:, s, a, :-1] / (1.0 - unseen)[:, None]
        expected = counts / total * (1.0 - counts / total) / (total + 1.0)
        np.testing.assert_allclose(within.mean(axis=0), counts / total, rtol=0, atol=5.0 * 0.5 / np.sqrt(n))
        np.testing.assert_allclose(within.var(axis=0), expected, rtol=0.05, atol=1e-15)
        assert abs(np.corrcoef(unseen, within[:, 0])[0, 1] if counts[0] < total else 0.0) < 0.02
    never = belief.rows() == 0
    assert never[0, 1] and never[3].all()
    assert np.all(thetas[:, never, -1] == 1.0)
    assert np.all(thetas[:, never, :-1] == 0.0)
    np.testing.assert_allclose(belief.maximum_likelihood()[..., -1], never)


@pytest.mark.parametrize("rows", [1, 20, 300])
def test_the_concentrations_are_those_of_direct_integration(rows):
    belief = pr.TriedRows.of(log_of(random_log(np.random.default_rng(rows), rows)))
    values, chance = belief.concentrations()
    tried = belief.rows()[belief.rows() > 0]
    distinct = (belief.counts > 0).sum()

    def likelihood(p):
        c = p / (1.0 - p)
        return np.exp(distinct * np.log(c) + (special.gammaln(c) - special.gammaln(c + tried)).sum() + height)

    c = values[chance.argmax()]
    height = -distinct * np.log(c) - (special.gammaln(c) - special.gammaln(c + tried)).sum()
    total = integrate.quad(likelihood, 0.0, 1.0, limit=500)[0]
    for power in (1, 2):
        wanted = integrate.quad(lambda p, k=power: p**k * likelihood(p), 0.0, 1.0, limit=500)[0] / total
        np.testing.assert_allclose(chance @ (values / (1.0 + values)) ** power, wanted, rtol=1e-4)


def test_a_log_of_one_successor_a_pair_pushes_the_concentration_to_nothing():
    few, many = ([(s, 0, (s + 1) % 50) for s in range(50)] * times for times in (2, 200))
    first, last = (pr.TriedRows.of(log_of(rows, 50, 1)) for rows in (few, many))
    mean = [float(np.dot(*belief.concentrations())) for belief in (first, last)]
    # Once the density of c is exp(-c sum (H_(n-1))), its mean is one over that sum.
    np.testing.assert_allclose(mean[1], 1.0 / (50 * (special.digamma(200) + np.euler_gamma)), rtol=0.02)
    assert mean[1] < mean[0] < 0.05
    assert np.all(last.mean()[:, 0, -1] < 1e-4)


def test_a_log_that_never_repeats_a_successor_is_all_unseen():
    belief = pr.TriedRows.of(log_of([(0, 0, t) for t in range(40)], 40, 1))
    assert belief.mean()[0, 0, -1] > 0.9


def test_two_halves_are_one_log_in_any_order():
    rows = random_log(np.random.default_rng(3), 80)
    whole = pr.TriedRows.of(log_of(rows))
    halves = pr.TriedRows.of(log_of(rows[40:])).update(log_of(rows[:40]))
    begun = pr.TriedRows.of(nothing(STATES, ACTIONS)).update(log_of(rows[::-1]))
    for other in (halves, begun):
        assert other == whole
        np.testing.assert_array_equal(other.sample(5, 20), whole.sample(5, 20))
    known = pr.TriedRows.of(log_of(rows[40:]), concentration=2.0).update(log_of(rows[:40]))
    assert known == pr.TriedRows.of(log_of(rows), concentration=2.0)


def test_same_seed_same_bits():
    belief = pr.TriedRows.of(log_of(random_log(np.random.default_rng(1), 50)))
    np.testing.assert_array_equal(belief.sample(7, 30), belief.sample(7, 30))
    assert not np.array_equal(belief.sample(7, 30), belief.sample(8, 30))


def test_names_of_a_log_are_kept():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"state": ["new", "worn"], "action": ["run", "fix"], "next_state": ["worn", "new"]})
    log = pr.read_log(frame)
    belief = pr.TriedRows.of(log).update(log)
    assert belief.support.names.all("state") == log.states
    assert belief.rows().sum() == 4
    other = pr.read_log(frame.replace("worn", "old"))
    with pytest.raises(pr.InputError, match="the log has the states new, old"):
        belief.update(other)


def small_family(rows, cost: Any = None, start: Any = 0, discount=0.9, concentration=1.0, **more):
    belief = pr.TriedRows.of(log_of(rows), concentration=concentration)
    cost = np.arange(STATES * ACTIONS).reshape(STATES, ACTIONS) / 3.0 if cost is None else cost
    return belief, pr.TriedFamily(belief.support, cost, start, discount, **more)


def test_a_pair_never_tried_leads_to_the_dearest_visited_state():
    # From state 0 action 1 was never tried; state 2 costs most of the visited ones, and cannot be left.
    rows = [(0, 0, 0), (0, 0, 1), (1, 0, 1), (1, 1, 0), (2, 0, 2), (2, 1, 2)]
    belief, family = small_family(rows, cost=[[0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [9.0, 9.0]])
    never = np.eye(2)[[1, 0, 0, 0]]
    loss = pr.loss_at(never, family, belief.maximum_likelihood())
    np.testing.assert_allclose(loss, 0.9 * 5.0 / 0.1)
    # State 3 is dearer, but the log does not visit it; a start there is a pair never tried as well.
    _, elsewhere = small_family(rows, cost=[[0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [9.0, 9.0]], start=3)
    np.testing.assert_allclose(pr.loss_at(never, elsewhere, belief.maximum_likelihood()), 9.0 + 0.9 * 5.0 / 0.1)
    solution = pr.solve(family, belief)
    assert solution.policy.probabilities[0, 0] > 0.999
    assert solution.certificate.lower_bound <= solution.certificate.risk


def test_a_start_that_is_the_only_state_and_the_only_action():
    log = pr.Transitions.from_records([(0, 0, 0)], 1, 1)
    belief = pr.TriedRows.of(log)
    family = pr.TriedFamily(belief.support, [[2.0]], 0, 0.5)
    solution = pr.solve(family, belief)
    np.testing.assert_allclose(solution.evaluation.losses, 4.0)


def test_without_rows_every_state_may_follow():
    belief = pr.TriedRows.of(nothing())
    family = pr.TriedFamily(belief.support, [[0.0], [3.0]], 0, 0.5)
    solution = pr.solve(family, belief)
    np.testing.assert_allclose(solution.evaluation.losses, 3.0)


def test_the_solution_is_no_worse_than_many_policies_and_its_bound_is_below_them():
    random = np.random.default_rng(11)
    belief, family = small_family(random_log(random, 60))
    risk = pr.CVaR(0.8)
    solution = pr.solve(family, belief, risk=risk, seed=2)
    draws = pr.Draws(solution.evaluation.draws.thetas)
    for _ in range(20):
        other = random.dirichlet(np.full(ACTIONS, 0.3), size=STATES)
        found = pr.evaluate(other, family, draws, risk=risk)
        assert found.risk >= solution.evaluation.risk - 1e-3 * abs(solution.evaluation.risk)
        assert found.risk >= solution.certificate.lower_bound
    assert solution.certificate.gap >= 0.0


def test_costs_of_arriving_are_paid_where_unseen_steps_arrive():
    random = np.random.default_rng(5)
    arrival = np.array([0.0, 2.0, -1.0, 7.0])
    rows = random_log(random, 40)
    belief, family = small_family(rows, start=[0.2, 0.3, 0.5, 0.0], arrival=arrival)
    policy = random.dirichlet(np.ones(ACTIONS), size=STATES)
    theta = belief.sample(0, 1)[0]
    found, cost = [], np.arange(STATES * ACTIONS).reshape(STATES, ACTIONS) / 3.0
    for target in np.flatnonzero(belief.visited()):
        table = np.zeros((STATES, ACTIONS, STATES))
        for s, a, b in np.argwhere(belief.counts > 0):
            table[s, a, belief.support.index()[s, a, b]] = theta[s, a, b]
        table[:, :, target] += theta[:, :, -1]
        known = pr.TabularFamily(pr.Support.dense(STATES, ACTIONS), cost + table @ arrival, [0.2, 0.3, 0.5, 0.0], 0.9)
        found.append(pr.loss_at(policy, known, table))
    np.testing.assert_allclose(pr.loss_at(policy, family, theta), max(found), rtol=1e-12)


def test_a_difference_to_itself_is_nothing_and_bounds_hold():
    random = np.random.default_rng(6)
    belief, family = small_family(random_log(random, 60))
    today = random.dirichlet(np.ones(ACTIONS), size=STATES)
    np.testing.assert_allclose(pr.evaluate(today, family, belief, relative_to=today).losses, 0.0, atol=1e-9)
    solution = pr.solve(family, belief, relative_to=today, risk=pr.CVaR(0.5))
    assert solution.evaluation.risk <= 1e-9
    assert "the risk of the difference is no promise" in str(solution)
    assert "the risk of the difference" not in str(pr.solve(family, belief, certify=False))
    assert solution.certificate.lower_bound <= solution.evaluation.risk
    # Per draw no policy is below the bound of any one completion.
    draws = solution.evaluation.draws
    objective = pr.relative_objective(family.objective(), today)
    lows = objective.plans().least(draws, np.asarray(solution.policy.probabilities))[0]
    for _ in range(20):
        other = random.dirichlet(np.full(ACTIONS, 0.3), size=STATES)
        theirs = pr.evaluate(other, family, pr.Draws(draws.thetas), relative_to=today).losses
        assert np.all(lows <= theirs)
    with pytest.raises(pr.InputError, match="takes a policy and the expected cost"):
        pr.solve(family, belief, relative_to="best")


def test_a_policy_within_visited_states_is_another_one_elsewhere():
    belief, family = small_family(random_log(np.random.default_rng(8), 60))
    today = np.full((STATES, ACTIONS), 1.0 / ACTIONS)
    solution = pr.solve(family, belief)
    kept = solution.policy.within(belief.visited(), today)
    visited = belief.visited()
    np.testing.assert_array_equal(kept.probabilities[~visited], today[~visited])
    np.testing.assert_array_equal(kept.probabilities[visited], solution.policy.probabilities[visited])
    # From a visited start no model leads to a state that is not, so that the losses are the same.
    ours, theirs = (pr.evaluate(each, family, belief).losses for each in (kept, solution.policy))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert kept.within([0, 1], today).probabilities.shape == (STATES, ACTIONS)
    with pytest.raises(pr.InputError, match="a mask of states"):
        kept.within([True, False], today)
    with pytest.raises(pr.InputError, match="state 9 is unknown"):
        kept.within([9], today)


def refusals():
    belief, family = small_family(random_log(np.random.default_rng(8), 60))
    dense = pr.Support.dense(STATES, ACTIONS)
    known = pr.TabularFamily(dense, np.zeros((STATES, ACTIONS)), 0, 0.9)
    return {
        "a convex loss": (lambda: pr.solve(family, belief, loss=pr.NegativeEntropy()), "linear in the occupancy"),
        "a function": (lambda: pr.solve(family, belief, loss=lambda o, m: (o**2).sum()), "CostTable"),
        "a cut occupancy": (lambda: pr.solve(family, belief, occupancy=pr.Truncated(9)), "leave occupancy= out"),
        "limits": (
            lambda: pr.solve(family, belief, subject_to=[pr.Limit(pr.Visits([1]), at_most=1.0)]),
            "put a price on what is limited",
        ),
        "a proof": (lambda: pr.prove(family, belief), "lower bound and a gap in its certificate"),
        "a conjugate": (lambda: pr.solve(family, belief, gradient=pr.Variational()), "leave gradient= out"),
        "a page": (
            lambda: pr.solve(family, belief, solver=pr.BRPG(iterations=1)).report("never.html"),
            "what its log has not shown",
        ),
        "a nested plan": (lambda: pr.nested(family, belief, pr.CVaR(0.5), 9), "plug_in"),
        "what data are worth": (lambda: pr.worth_of_data(family, belief), "Dirichlet"),
        "another family": (lambda: pr.solve(known, belief), "TriedFamily"),
        "another belief": (lambda: pr.solve(family, pr.Dirichlet.symmetric(dense)), "TriedRows"),
        "another log": (
            lambda: pr.solve(family, pr.TriedRows.of(log_of([(0, 0, 1)]))),
            "build both from the same Support",
        ),
        "a log that shows less": (
            lambda: pr.solve(
                small_family([(0, 0, 0), (1, 0, 0)])[1], pr.TriedRows.of(log_of([(1, 0, 0)])), progress=False
            ),
            "build both from the same Support",
        ),
        "a likelihood": (
            lambda: pr.log_likelihood(family, belief.mean(), log_of([(0, 0, 1)])),
            "no table of probabilities",
        ),
        "costs of transitions": (
            lambda: pr.TriedFamily(belief.support, np.zeros(belief.support.shape), 0, 0.9),
            "arrival=",
        ),
        "arriving without a later": (
            lambda: pr.TriedFamily(belief.support, np.zeros((4, 2)), 0, 0.0, arrival=np.ones(4)),
            "discount of 0",
        ),
    }


@pytest.mark.parametrize("name", refusals())
def test_what_the_completion_does_not_hold_for_is_refused(name):
    call, words = refusals()[name]
    with pytest.raises(pr.InputError, match=words):
        call()


def test_the_evidence_says_why_it_says_nothing():
    belief, family = small_family(random_log(np.random.default_rng(8), 60))
    evidence = pr.evaluate(np.full((STATES, ACTIONS), 0.5), family, belief).evidence
    assert evidence is not None and evidence.word is None
    assert evidence.reason == "a TriedRows belief has no prior for what its log has not shown, but its dearest case"


def test_rivals_are_judged_under_the_belief():
    belief, family = small_family(random_log(np.random.default_rng(8), 60))
    found = pr.rivals(family, belief, solver=pr.SampleAverage(samples=32, largest=32, starts=2))
    assert list(found) == ["maximum-likelihood plan", "posterior-mean plan", "risk-neutral policy"]
    plan = found["posterior-mean plan"]
    # The plan attains the least loss at the mean.
    loss = pr.loss_at(plan.policy, family, belief.mean())
    np.testing.assert_allclose(loss, plan.plan.values[0], rtol=1e-9)


def test_no_rows_and_what_is_no_log():
    belief = pr.TriedRows.of(nothing())
    assert belief.visited().all()
    assert belief.sample(0, 3)[..., -1].min() == 1.0
    np.testing.assert_array_equal(belief.mean()[..., -1], 1.0)
    with pytest.raises(pr.InputError, match="for 3 states and 1 actions, the belief for 2 and 1"):
        belief.update(nothing(3))
    with pytest.raises(pr.InputError, match="log"):
        pr.TriedRows.of([(0, 0, 1)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(pr.InputError, match="concentration"):
        pr.TriedRows.of(nothing(), concentration=0.0)
    with pytest.raises(pr.InputError, match="lists what was seen and nothing else"):
        pr.TriedRows(pr.Support.dense(2, 1), [[[1.0, 0.0]], [[1.0, 1.0]]])


def test_starts_that_the_log_never_visits_are_said(tmp_path):
    rows = random_log(np.random.default_rng(8), 60)
    uniform = np.full((STATES, ACTIONS), 0.5)
    belief, family = small_family(rows, start=[0.75, 0.0, 0.0, 0.25])
    assert "a share 0.25 of them is in states that the log never visits" in str(pr.evaluate(uniform, family, belief))
    solution = pr.solve(family, belief, solver=pr.BRPG(iterations=1))
    assert "never visits" in str(solution)
    assert "never visits" in str(pr.Solution.load(solution.save(tmp_path / "solution")))
    belief, family = small_family(rows)
    assert pr.evaluate(uniform, family, belief).notes is None
