"""What to do: the rule in words holds of the table, and what another action costs is what judging it says."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prudent as pr
from prudent.report import rule_words
from prudent.report.rendering import report_html
from prudent.runs import deciding
from prudent.runs.deciding import SMALL, decision_of
from prudent.runs.judging import Evaluator


def wearing(states=8, seed=0):
    """A machine that wears step by step: keep (0) costs what it is worn, replace (1) begins anew."""
    support = pr.Support.lists([[[s, min(s + 1, states - 1)] if s < states - 1 else [s], [0]] for s in range(states)])
    cost = np.column_stack([np.arange(states) ** 1.5, np.full(states, 12.0)])
    rows = np.random.default_rng(seed).integers(0, 2, 3 * states)
    records = [(s, 0, min(s + int(rows[k]), states - 1)) for k, s in enumerate(np.arange(3 * states) % states)]
    log = pr.Transitions.from_records(records, states=states, actions=2)
    model = pr.TabularFamily(support.named(states, ["keep", "replace"]), cost, start=0, discount=0.95)
    return model, pr.Dirichlet.symmetric(support).update(log)


@pytest.fixture(scope="module")
def solved():
    model, belief = wearing()
    solution = pr.solve(model, belief, risk=pr.CVaR(0.8), seed=1)
    rivals = {"posterior-mean plan": pr.plug_in(model, belief, risk=pr.CVaR(0.8), seed=1)}
    record = pr.record_solution(solution, model, belief, risk=pr.CVaR(0.8), seed=1, rivals=rivals, title="Wear")
    return model, belief, solution, record


def test_a_threshold_is_recognised_and_true(solved):
    _, _, solution, record = solved
    found = re.fullmatch(r"keep below (\d+), replace from (\d+) on", record.decision.rule)
    assert found and found[1] == found[2], record.decision.rule
    met = [choice.number for choice in record.decision.choices]
    taken = solution.policy.greedy()[met]
    np.testing.assert_array_equal(taken, np.array(met) >= int(found[1]))


def test_the_cost_of_the_next_best_action_is_what_judging_it_says(solved):
    model, belief, solution, record = solved
    risk, draws = pr.CVaR(0.8), solution.evaluation.draws
    tried = [choice for choice in record.decision.choices if choice.cost is not None]
    assert tried
    for choice in tried:
        table = np.array(solution.policy.probabilities)
        other = ["keep", "replace"].index(choice.other)
        table[choice.number] = np.eye(2)[other]
        ours, theirs = (
            np.array([pr.loss_at(policy, model, theta) for theta in draws.thetas[:20]])
            for policy in (solution.policy, table)
        )
        np.testing.assert_allclose(ours, solution.losses[:20], rtol=1e-9)
        judged = Evaluator(model, belief, risk=risk, seed=1, draws=draws).record("x", table, occupancy=True)
        np.testing.assert_allclose(judged.losses[:20], theirs, rtol=1e-9)
        np.testing.assert_allclose(choice.cost.value, judged.risk - solution.risk, atol=1e-8)
        spread = float(np.std(solution.losses))
        if choice.verdict == "matters":
            assert choice.cost.low > 0 and choice.cost.value >= SMALL * spread
        if choice.verdict == "toss-up":
            assert choice.cost.low <= 0 <= choice.cost.high


def test_what_is_listed_is_what_comes_up_or_is_disputed(solved):
    _, _, solution, record = solved
    shares = np.asarray(record.occupancy).sum(axis=1) / np.asarray(record.occupancy).sum()
    listed = {choice.number for choice in record.decision.choices}
    assert set(np.flatnonzero(shares >= record.decision.least_time)) <= listed
    rival = np.asarray(record.rivals[0].probabilities).argmax(axis=1)
    for extra in listed - set(np.flatnonzero(shares >= record.decision.least_time)):
        assert rival[extra] != solution.policy.greedy()[extra]
    for choice in record.decision.choices:
        assert bool(choice.plans) == (rival[choice.number] != solution.policy.greedy()[choice.number])


def test_the_record_with_its_decision_goes_through_json_and_onto_the_page(solved):
    record = solved[3]
    said = json.loads(json.dumps(record.model_dump(mode="json"), allow_nan=False))
    assert type(record.decision)(**said["decision"]) == record.decision
    page = report_html(record)
    assert page.index('id="decision"') < page.index('id="answer"') < page.index('id="losses"')
    rule = record.decision.rule
    assert f"<strong>{rule[0].upper()}{rule[1:]}.</strong>" in page


@pytest.mark.parametrize(("states", "actions"), [(1, 1), (1, 2), (2, 1)])
def test_tiny_problems_decide(states, actions):
    model = pr.TabularFamily(pr.Support.dense(states, actions), np.ones((states, actions)), start=0, discount=0.5)
    solution = pr.solve(model, pr.Dirichlet.symmetric(model.support))
    record = pr.record_solution(solution, model, pr.Dirichlet.symmetric(model.support))
    assert record.decision.rule
    # All actions are alike, so nothing may be said to matter.
    assert all(choice.verdict in ("toss-up", "small", "unknown") for choice in record.decision.choices)
    report_html(record)


def test_a_posterior_of_atoms_is_used_whole():
    model, belief = wearing(4)
    atoms = pr.Draws(belief.sample(0, 7))
    solution = pr.solve(model, atoms, risk=pr.CVaR(0.5))
    evaluator = Evaluator(model, atoms, risk=pr.CVaR(0.5), draws=solution.evaluation.draws)
    answer = evaluator.record("this policy", solution.policy, known=solution.evaluation)
    decision = decision_of(evaluator, answer, [], list("abcd"), ["keep", "replace"], ordered=True)
    assert decision.draws == 7
    assert all(choice.cost.standard_error == 0.0 for choice in decision.choices if choice.cost)


ACTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9)


@given(ACTS, st.booleans())
def test_a_rule_can_be_read_back(acts, ordered):
    numbers = list(range(10, 10 + len(acts)))
    states = [str(k) for k in numbers]
    rule = rule_words(acts, states, numbers, ordered)
    read = {}
    if rule.startswith("always "):
        read = dict.fromkeys(states, rule.removeprefix("always "))
    elif ";" in rule or " in " in rule:
        for part in rule.split("; "):
            act, names = part.split(" in ")
            if "more state" in names:
                return
            read |= dict.fromkeys(re.split(r", | and ", names), act)
    else:
        for part in rule.split(", "):
            act, how, *rest = part.split(" ")
            place = states.index(rest[0])
            ends = {"below": (0, place), "at": (place, place + 1), "up": (0, place + 1)}
            if how == "from":
                ends["from"] = (place, len(states)) if rest[1] == "on" else (place, states.index(rest[2]) + 1)
            read |= dict.fromkeys(states[slice(*ends[how])], act)
    assert [read[state] for state in states] == acts


def test_states_in_which_all_actions_come_to_the_same_are_not_decided():
    # In 1 either action leads back at the same cost; in 0 they differ.
    support = pr.Support.lists([[[0, 1], [1]], [[0], [0]]])
    model = pr.TabularFamily(support, [[0.0, 1.0], [2.0, 2.0]], start=0, discount=0.9)
    belief = pr.Dirichlet.symmetric(support)
    solution = pr.solve(model, belief)
    decision = pr.record_solution(solution, model, belief, rivals={"other": pr.plug_in(model, belief)}).decision
    assert decision.alike == 1 and [choice.number for choice in decision.choices] == [0]
    assert decision.rule == "always 0"


def test_a_rule_speaks_of_amounts_or_lists_names():
    acts = ["keep", "keep", "replace"]
    assert rule_words(acts, ["70,000 miles", "75,000 miles", "80,000 miles"], [0, 1, 2], True) == (
        "keep below 80,000 miles, replace from 80,000 miles on"
    )
    assert rule_words(acts, ["new", "used", "worn"], [0, 1, 2], True) == "keep in new and used; replace in worn"


def test_beside_a_rule_of_thresholds_the_states_near_them_are_listed():
    known, times = np.arange(100, 160), np.zeros(200)
    times[100:140] = 0.02
    ours, theirs = (np.eye(2)[(np.arange(200) >= from_).astype(int)] for from_ in (135, 150))
    apart = (np.arange(200) >= 135) & (np.arange(200) < 150)
    begins = np.zeros(200, bool)
    shown = deciding._shown(known, [ours, theirs], apart, times, begins, ordered=True)
    # The edges of both; then what is met, from the first one's edge outwards.
    assert shown.tolist() == [*range(132, 138), 149, 150]
    listed = deciding._shown(known, [ours, theirs], apart, times, begins, ordered=False)
    assert set(range(135, 150)) <= set(listed.tolist()) and len(listed) == deciding.MOST_CHOICES
    # Where it begins is listed, however little time is spent there.
    begins[159] = True
    for ordered, others in ((True, shown), (False, np.arange(135, 150))):
        found = deciding._shown(known, [ours, theirs], apart, times, begins, ordered=ordered)
        assert 159 in found and set(others.tolist()) <= set(found.tolist())
