"""Problem files: what they say becomes the objects one would have built by hand."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

import prudent as pr
from prudent.problems import example, memory, parse, risk_from_words, schema
from prudent.records import same_structure, tree_leaves
from prudent_studies.known import known_environment

PROBLEM, LOG, COSTS = example("machine").values()

BASE = 'states = ["a", "b", "c"]\nactions = ["x", "y"]\ndiscount = 0.9\nstart = "a"\n'


def case(folder, toml, **files):
    (folder / "problem.toml").write_text(toml)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return pr.read_problem(folder / "problem.toml")


def test_the_example_is_the_problem_one_would_build_by_hand(tmp_path):
    ours = pr.read_problem(pr.write_example(tmp_path)[0]).arguments()
    log = pr.read_log(tmp_path / "log.csv", ["new", "used", "worn", "broken"], ["run", "service", "replace"])
    support = pr.Support.dense(4, 3)
    belief = pr.Pooled(support).update(log.transitions)
    cost = [[0, 2, 9], [0.5, 3, 9], [1.5, 4, 9], [12, 11, 15]]
    model = pr.TabularFamily(support, cost, start=0, discount=0.95)
    assert np.array_equal(ours["belief"].mean(), belief.mean())
    assert np.array_equal(ours["belief"].counts, belief.counts)
    assert np.array_equal(ours["model"].costs, model.costs)
    assert np.array_equal(ours["model"].support.index(), support.index())
    assert np.array_equal(ours["model"].support.allowed(), support.allowed())
    assert np.array_equal(ours["model"].start, model.start)
    assert (float(ours["model"].discount), float(ours["risk"].level), ours["seed"]) == (0.95, 0.9, 0)
    assert isinstance(ours["solver"], pr.SampleAverage)
    assert (ours["solver"].iterations, ours["solver"].samples) == (300, 128)


def test_settings_left_out_are_the_solvers_own(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "costs.csv").write_text(COSTS)
    (tmp_path / "problem.toml").write_text(PROBLEM.split("[solver]")[0])
    assert pr.read_problem(tmp_path / "problem.toml").arguments()["solver"] == pr.SampleAverage()
    paper = {"kind": "brpg", "step": 0.5}
    case = pr.read_problem(tmp_path / "problem.toml", changes={"solver": paper})
    assert case.arguments()["solver"] == pr.BRPG(step=0.5)


def test_the_largest_sample_of_a_large_model_takes_a_gibibyte():
    left_out = schema.SOLVERS["sample-average"](kind="sample-average")
    size = (10_000, 4, 10)
    assert memory.largest_sample(size, left_out) == 2**30 // (8 * 400_000)
    assert memory.largest_sample((10**6, 4, 10), left_out) == 128, "the first sample is never smaller than it should be"
    assert memory.largest_sample(size, schema.SOLVERS["sample-average"](kind="sample-average", largest=5000)) == 5000


SUPPORTED = {
    "observed": ({(0, 0): [1, 2], (1, 0): [0]}, 'posterior.support = "observed"'),
    "all": ({}, 'posterior.support = "all"'),
    "listed": (
        {(0, 0): [1, 2], (0, 1): [0], (1, 0): [0], (1, 1): [1], (2, 0): [2], (2, 1): [2]},
        'posterior.support = "listed"\nposterior.successors = "listed.csv"',
    ),
}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("support", SUPPORTED)
def test_successors_are_those_asked_for(support, terminal, tmp_path):
    lists, words = SUPPORTED[support]
    names = "abc"
    listed = "".join(f"{names[s]},{'xy'[a]},{names[t]}\n" for (s, a), row in lists.items() for t in row)
    built = case(
        tmp_path,
        BASE
        + ('terminal = ["c"]\n' if terminal else "")
        + words
        + '\n[data]\ntransitions = "log.csv"\ndefault_cost = 1.0',
        log="state,action,next_state\na,x,b\na,x,c\nb,x,a\n",
        listed="state,action,next_state\n" + listed,
    )
    kernel = built.arguments()["model"].support
    for s, a in itertools.product(range(3), range(2)):
        wanted = lists.get((s, a), [0, 1, 2]) if support != "all" else [0, 1, 2]
        wanted = [2] if terminal and s == 2 else wanted
        assert sorted(kernel.index()[s, a][kernel.allowed()[s, a]].tolist()) == wanted
    counts = np.asarray(built.arguments()["belief"].counts)
    assert counts.sum() == 3


def test_nothing_said_of_successors_is_pooled_over_all_states(tmp_path):
    log = "state,action,next_state\na,x,b\nb,x,c\n"
    belief = case(tmp_path, BASE + '[data]\ntransitions = "log.csv"\ndefault_cost = 1.0', log=log).arguments()["belief"]
    assert isinstance(belief, pr.Pooled) and belief.support.is_dense
    listed = '[posterior]\nkind = "pooled"\nsupport = "listed"\nsuccessors = "listed.csv"\n'
    lists = "".join(f"{s},{a},{t}\n" for s in "abc" for a in "xy" for t in "bc")
    text = BASE + '[data]\ntransitions = "log.csv"\ndefault_cost = 1.0\n'
    both = case(tmp_path, text + listed, log=log, listed="state,action,next_state\n" + lists).arguments()["belief"]
    assert isinstance(both, pr.Pooled) and both.support.shape == (3, 2, 2)
    # It is what a list or rule has without a kind, too, unless a pseudo-count is given.
    unsaid = case(tmp_path, text + listed.replace('kind = "pooled"\n', ""), log=log).arguments()["belief"]
    assert isinstance(unsaid, pr.Pooled) and unsaid.mean().tobytes() == both.mean().tobytes()
    alone = case(tmp_path, text + listed.replace('kind = "pooled"', "prior = 0.5"), log=log).arguments()["belief"]
    assert isinstance(alone, pr.Dirichlet) and np.all(alone.prior == 0.5)


def test_a_pair_seen_once_is_no_certainty_by_default(tmp_path):
    toml = """
    states = ["ok", "failed"]
    actions = ["safe", "shortcut"]
    discount = 0.95
    start = "ok"
    data = {transitions = "log.csv", costs = {ok = {safe = 2, shortcut = 1}, failed = {safe = 100, shortcut = 100}}}
    solver = {kind = "sample-average", samples = 64, largest = 64, starts = 2, evaluation = 512}
    """
    log = "state,action,next_state,count\nok,safe,ok,500\nok,shortcut,ok,1\n"
    solution = pr.solve(**case(tmp_path, toml, log=log).arguments(), progress=False)
    assert solution.policy.probabilities[0, 1] < 0.5
    assert solution.risk > 21.0 and solution.risk_standard_error > 0.0


@pytest.mark.long
def test_what_is_stated_of_the_cliff_can_be_kept_by_default(tmp_path):
    cliff = known_environment("cliff")
    log = cliff.walk(6_007, seed=0)
    rows = zip(log.state.tolist(), log.action.tolist(), log.next_state.tolist(), strict=True)
    costs = "".join(f"{s},{a},{cliff.cost[s, a]}\n" for s in range(48) for a in range(4))
    toml = f"states = 48\nactions = 4\ndiscount = {cliff.discount}\nstart = 36\nterminal = [47]\n"
    toml += 'data = {transitions = "log.csv", costs = "costs.csv"}\n'
    toml += 'solver = {kind = "sample-average", samples = 64, largest = 64, starts = 2, evaluation = 500}\n'
    built = case(
        tmp_path,
        toml,
        log="state,action,next_state\n" + "".join(f"{s},{a},{t}\n" for s, a, t in rows),
        costs="state,action,cost\n" + costs,
    )
    solution = pr.solve(**built.arguments(), progress=False, certify=False)
    mdp = cliff.mdp()
    model = pr.TabularFamily(pr.Support.dense(48, 4), mdp.cost, mdp.start, cliff.discount)
    optimum, loss = (float(pr.loss_at(policy, model, cliff.table)) for policy in (pr.plan(mdp).policy, solution.policy))
    assert optimum < solution.risk and loss <= solution.risk


@pytest.mark.parametrize("grid", ["", "layout = {grid = [20, 25]}\n"])
def test_rows_of_a_large_model_lead_where_something_like_it_was_seen_to_lead(tmp_path, monkeypatch, grid):
    monkeypatch.setattr("prudent.problems.successors.LARGEST_DENSE", 10_000)
    rows = [(s, a, (s + 25 * a + 1) % 500) for s in range(0, 499, 3) for a in range(2)]
    log = "state,action,next_state\n" + "".join(f"{s},{a},{t}\n" for s, a, t in rows)
    toml = "states = 500\nactions = 2\ndiscount = 0.9\nstart = 0\n" + grid
    built = case(tmp_path, toml + '[data]\ntransitions = "log.csv"\ndefault_cost = 1.0', log=log)
    assert built.shape[2] <= 8
    belief = built.arguments()["belief"]
    mean, index = belief.mean(), belief.support.index()
    assert index[1, 1][mean[1, 1].argmax()] == 27 and index[100, 0][mean[100, 0].argmax()] == 101


def test_costs_by_pair_by_transition_from_the_log_and_by_default(tmp_path):
    log = "state,action,next_state,cost,count\na,x,b,1,3\na,x,b,5,1\na,x,c,9,1\na,y,a,4,1\n"
    data = '[data]\ntransitions = "log.csv"\n'
    mean = case(tmp_path, BASE + data + "default_cost = -1.0", log=log).cost
    assert mean[0].tolist() == [(3 + 5 + 9) / 5, 4.0]
    assert np.all(mean[1:] == -1.0)
    inline = BASE + data + "default_cost = 0.5\ncosts = {a = {x = 1, y = 2}}"
    assert case(tmp_path, inline, log=log).cost.tolist() == [[1, 2], [0.5, 0.5], [0.5, 0.5]]
    ends = 'terminal = ["b", "c"]\n'
    priced_end = BASE + ends + data + "default_cost = 0.5\ncosts = {a = {x = 1}, c = {y = 3}}"
    # What the table leaves out is what the log shows, and the default what neither has.
    assert case(tmp_path, priced_end, log=log).cost.tolist() == [[1, 4.0], [0, 0], [0, 3]]
    moves = case(
        tmp_path,
        BASE + ends + data + 'costs = "costs.csv"\n[posterior]\nsupport = "observed"',
        log=log,
        costs="state,action,next_state,cost\na,x,b,7\na,x,c,8\na,y,a,9\na,y,c,100\n",
    )
    model = moves.arguments()["model"]
    index, allowed = model.support.index(), model.support.allowed()
    priced = {
        (a, int(t)): float(c)
        for a in range(2)
        for t, c, ok in zip(index[0, a], moves.cost[0, a], allowed[0, a], strict=True)
        if ok
    }
    assert priced == {(0, 1): 7.0, (0, 2): 8.0, (1, 0): 9.0}
    assert np.all(moves.cost[1:] == 0.0), "terminal states cost nothing"
    with pytest.raises(pr.InputError, match="no cost for state a, action x to state c, which can be reached"):
        case(
            tmp_path,
            BASE + ends + data + 'costs = "costs.csv"\n[posterior]\nsupport = "observed"',
            costs="state,action,next_state,cost\na,x,b,7\na,y,a,9\n",
        )


def test_what_can_be_reached_agrees_with_walking(tmp_path):
    chance = np.random.default_rng(0)
    for _ in range(20):
        states = 8
        lists = {(s, 0): chance.integers(states, size=chance.integers(1, 3)).tolist() for s in range(states)}
        text = "".join(f"{s},0,{t}\n" for (s, _), row in lists.items() for t in row)
        toml = "states = 8\nactions = 1\ndiscount = 0.5\nstart = {0 = 0.5, 3 = 0.5}\n[data]\ndefault_cost = 1.0\n"
        toml += '[posterior]\nsupport = "listed"\nsuccessors = "listed.csv"'
        built = case(tmp_path, toml, listed="state,action,next_state\n" + text)
        seen, new = set(), {0, 3}
        while new:
            seen |= new
            new = {t for s in new for t in lists[s, 0]} - seen
        assert set(np.flatnonzero(built.reachable)) == seen


def test_names_change_nothing_but_the_names(tmp_path):
    named = pr.read_problem(pr.write_example(tmp_path)[0])
    numbers = {"new": "0", "used": "1", "worn": "2", "broken": "3", "run": "0", "service": "1", "replace": "2"}
    for name, text in (("log", LOG), ("costs", COSTS)):
        rows = [",".join(numbers.get(cell, cell) for cell in line.split(",")) for line in text.splitlines()]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    toml = PROBLEM.replace('["new", "used", "worn", "broken"]', "4").replace('["run", "service", "replace"]', "3")
    numbered = case(tmp_path, toml.replace('start = "new"', "start = 0"))
    assert np.array_equal(named.cost, numbered.cost)
    assert np.array_equal(named.counts(), numbered.counts())
    assert named.shape == numbered.shape and np.array_equal(named.support.index(), numbered.support.index())
    undeclared = case(
        tmp_path,
        "\n".join(line for line in toml.splitlines() if not line.startswith(("states", "actions"))).replace(
            'start = "new"', "start = 0"
        ),
    )
    assert undeclared.states == numbered.states == ("0", "1", "2", "3")
    assert np.array_equal(undeclared.cost, numbered.cost)


RISKS = {
    "expectation": pr.Expectation(),
    "cvar:0.5": pr.CVaR(0.5),
    "worst-case": pr.WorstCase(),
    "mean-semideviation:0.5": pr.MeanSemideviation(1.0, 0.5),
    "quantile-deviation:0.5": pr.QuantileDeviation(0.5, 1.0),
    "entropic-var:0.5": pr.EntropicVaR(0.5),
    "kl-ball:0.1": pr.KullbackLeiblerBall(0.1),
    "chi-square-ball:0.1": pr.ChiSquareBall(0.1),
    "tv-ball:0.1": pr.TotalVariationBall(0.1),
}


def assert_same(ours, theirs):
    assert same_structure(ours, theirs)
    for left, right in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        assert np.array_equal(left, right)


def test_every_risk_of_a_file_is_that_of_the_library():
    assert {words.split(":")[0] for words in RISKS} | {"mixture"} == set(schema.RISKS)
    for words, risk in RISKS.items():
        section = parse({"discount": 0.5, "start": 0, "risk": risk_from_words(words)}, "here").risk
        assert_same(section.build(), risk)
    parts = [{"share": 0.25, "risk": {"kind": "expectation"}}, {"share": 0.75, "risk": {"kind": "cvar", "level": 0.5}}]
    mixed = parse({"discount": 0.5, "start": 0, "risk": {"kind": "mixture", "parts": parts}}, "here").risk
    mixture = 0.25 * pr.Expectation() + 0.75 * pr.CVaR(0.5)
    assert_same(mixed.build(), mixture)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('kind = "negative-entropy"', pr.NegativeEntropy),
        ('kind = "imitation"\ntarget = "target.csv"\ndivergence = "hellinger"', pr.Imitation),
        ('kind = "quadratic-distance"\ntarget = "target.csv"\nweight = 2', pr.QuadraticDistance),
    ],
    ids=["entropy", "imitation", "distance"],
)
def test_every_loss_of_a_file_is_that_of_the_library(words, kind, tmp_path):
    pr.write_example(tmp_path)
    toml = PROBLEM.replace("[solver]", f"[loss]\n{words}\n[solver]")
    loss = case(tmp_path, toml, target="state,action,probability\nnew,run,0.75\nused,run,0.25\n").arguments()["loss"]
    assert isinstance(loss, kind)
    if hasattr(loss, "target"):
        assert loss.target[0, 0] == pytest.approx(0.75, rel=1e-4)


FAMILY = """
import prudent as pr
import jax.numpy as jnp

def build(wear=0.5):
    support = pr.Support.lists([[[0, 1], [0, 0]], [[1, 1], [0, 0]]])
    def move(theta):
        run = jnp.stack([jnp.stack([1 - theta[0], theta[0]]), jnp.array([1.0, 0.0])])
        return jnp.stack([run, jnp.broadcast_to(jnp.array([1.0, 0.0]), (2, 2))], axis=1)
    family = pr.Family(support, move, [[0.0, 1.0], [2.0, 1.5]], start=0, discount=0.9)
    return family, pr.Grid(family, [0.01], [0.99], cells=50)
"""


def test_a_family_of_the_users_own_is_run_only_if_trusted(tmp_path):
    (tmp_path / "my_machine.py").write_text("raise SystemError('imported')")
    (tmp_path / "log.csv").write_text("state,action,next_state\n0,0,1\n0,0,0\n")
    toml = 'family = "my_machine:build"\noptions = {wear = 0.25}\n[data]\ntransitions = "log.csv"\n'
    (tmp_path / "problem.toml").write_text(toml)
    with pytest.raises(pr.InputError, match="only with --trust"):
        pr.read_problem(tmp_path / "problem.toml")
    with pytest.raises(pr.InputError, match="family 'my_machine:build' failed: SystemError: imported"):
        pr.read_problem(tmp_path / "problem.toml", trust=True)
    (tmp_path / "my_machine.py").write_text(FAMILY)
    built = pr.read_problem(tmp_path / "problem.toml", trust=True)
    assert built.shape == (2, 2, 2)
    assert built.states == ("0", "1")
    belief = built.arguments()["belief"]
    assert belief.mean()[0] == pytest.approx(0.5, abs=1e-3), "one success and one failure"


def test_memory_is_estimated_before_anything_is_made(tmp_path, monkeypatch):
    path = pr.write_example(tmp_path)[0]
    need = memory.estimate((4, 3, 4), schema.SOLVERS["sample-average"](kind="sample-average", evaluation=1000))
    monkeypatch.setattr(memory, "available_memory", lambda: need)
    pr.read_problem(path)
    monkeypatch.setattr(memory, "available_memory", lambda: need - 1)
    with pytest.raises(pr.InputError, match="4 states, 3 actions and 4 successors a pair need about"):
        pr.read_problem(path)
    monkeypatch.undo()
    assert memory.available_memory() > 2**20


PEAK = """
import re, numpy as np, prudent as pr
support = pr.Support.dense({states}, 4)
family = pr.TabularFamily(support, np.random.default_rng(0).uniform(size=({states}, 4)), 0, 0.9)
solver = pr.SampleAverage(samples={first}, largest={largest}, iterations={iterations}, evaluation=100)
pr.solve(family, pr.Dirichlet.symmetric(support), solver=solver)
# The peak of this program alone; that of `getrusage` begins with the process that started it.
print(1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("first", "largest", "iterations"), [(128, 128, 12), (1500, 1500, 12), (128, 2048, 300)])
def test_solving_takes_no_more_memory_than_estimated(first, largest, iterations):
    """What a larger model adds to the peak, against what its estimate adds, so that the interpreter's share is out."""
    peaks = [
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for code in (
            PEAK.format(states=states, first=first, largest=largest, iterations=iterations) for states in (40, 80)
        )
    ]
    settings = schema.SOLVERS["sample-average"](kind="sample-average", samples=first, largest=largest, evaluation=100)
    small, large = (memory.estimate((states, 4, states), settings) for states in (40, 80))
    assert 0.2 * (large - small) < peaks[1] - peaks[0] < large - small


def test_a_goal_without_a_cost_is_worth_reaching_whatever_the_default(tmp_path):
    """A step costs 1 by default; from the goal on nothing is paid, so going there beats staying."""
    built = case(
        tmp_path,
        'states = ["here", "goal"]\nactions = ["stay", "go"]\ndiscount = 0.9\nstart = "here"\nterminal = ["goal"]\n'
        '[data]\ntransitions = "log.csv"\ndefault_cost = 1.0\n',
        log="state,action,next_state,count\nhere,stay,here,50\nhere,go,goal,50\n",
    )
    assert built.cost.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    arguments = built.arguments()
    mdp = arguments["model"].at(arguments["belief"].mean())
    assert pr.plan(mdp).policy.probabilities[0].tolist() == [0.0, 1.0]
