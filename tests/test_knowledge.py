"""What a user knows of where a pair can lead, against brute force."""

import itertools
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.problems import suggestion_of
from prudent_studies.known import KNOWN

from .marks import short
from .run_folders import read_checkpoint

ENVIRONMENTS = {name: make() for name, make in KNOWN.items()}


def as_table(support):
    """`[S, A, S]` whether a state may follow a pair."""
    table = np.zeros((support.states, support.actions, support.states), dtype=bool)
    state, action, slot = np.nonzero(support.allowed())
    table[state, action, support.index()[state, action, slot]] = True
    return table


# ---------------------------------------------------------------- in Python


def test_a_function_says_which_successors_there_are():
    support = pr.Support.where(lambda s, a, t: t <= s + a, states=4, actions=2)
    for s, a, t in itertools.product(range(4), range(2), range(4)):
        assert as_table(support)[s, a, t] == (t <= s + a)
    assert pr.Support.where(lambda s, a, t: True, 3, 2).is_dense


def test_a_function_on_a_grid_is_given_coordinates():
    support = pr.Support.where(lambda s, a, t: s[0] == t[0] and s[1] <= t[1], states=(2, 3), actions=1)
    found = [np.flatnonzero(row).tolist() for row in as_table(support)[:, 0]]
    assert found == [[0, 1, 2], [1, 2], [2], [3, 4, 5], [4, 5], [5]]


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: pr.Support.where(lambda s, a, t: t < s, 3, 1), "state 0, action 0 lists no successor"),
        (lambda: pr.Support.where(lambda s, a, t: True, 0, 1), "a size of the grid must be a whole number >= 1, got 0"),
        (lambda: pr.Support.where(lambda s, a, t: True, (2, 2.5), 1), "a size of the grid .* got 2.5"),
        (lambda: pr.Support.where(lambda s, a, t: True, 2, 0), "actions must be a whole number >= 1"),
    ],
)
def test_a_function_that_leaves_no_successor_is_refused(attempt, words):
    with pytest.raises(pr.InputError, match=words):
        attempt()


# ---------------------------------------------------------------- in a problem file

HEAD = "discount = 0.9\nstart = 0\n[data]\ndefault_cost = 1.0\n"


def read(folder, text, **files):
    (folder / "problem.toml").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.csv").write_text(content)
    return pr.read_problem(folder / "problem.toml")


def table_of(case):
    return as_table(case.support)


def near(s, t, forward, back):
    return -back <= t - s <= forward


RULES = {
    "adjacent in order": ('"adjacent"', None, lambda s, a, t: abs(s - t) <= 1),
    "only down": ("{ forward = 0 }", None, lambda s, a, t: t <= s),
    "a level up, three down": ("{ forward = 1, back = 3 }", None, lambda s, a, t: near(s, t, 1, 3)),
    "adjacent on a grid": (
        '"adjacent"',
        (3, 4),
        lambda s, a, t: abs(s // 4 - t // 4) + abs(s % 4 - t % 4) <= 1,
    ),
    "bounds by axis": (
        "{ forward = [0, 2], back = [1, 0] }",
        (3, 4),
        lambda s, a, t: near(s // 4, t // 4, 0, 1) and near(s % 4, t % 4, 2, 0),
    ),
    "one bound for both axes": (
        "{ forward = 1, back = 0, steps = 1 }",
        (3, 4),
        lambda s, a, t: t == s or (t == s + 1 and s % 4 < 3) or t == s + 4,
    ),
    "three axes": (
        "{ steps = 1, forward = [1, 0, 1] }",
        (2, 3, 2),
        lambda s, a, t: (
            (d := np.subtract(np.unravel_index(t, (2, 3, 2)), np.unravel_index(s, (2, 3, 2)))) is not None
            and np.abs(d).sum() <= 1
            and d[1] <= 0
        ),
    ),
    "only, and also": (
        "{ back = 0, only = [3, 7], also = ['0'] }",
        None,
        lambda s, a, t: (t in (3, 7) and t >= s) or t == 0,
    ),
    "by action": (
        "{ steps = 1, actions = { 1 = { forward = 0, back = 2 } } }",
        None,
        lambda s, a, t: near(s, t, 0, 2) if a == 1 else abs(s - t) <= 1,
    ),
    "a word for an action": (
        '{ forward = 0, actions = { 0 = "adjacent" } }',
        None,
        lambda s, a, t: t <= s if a == 1 else abs(s - t) <= 1,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_allows_what_it_says(name, tmp_path):
    rule, grid, allowed = RULES[name]
    layout = "" if grid is None else f"[layout]\ngrid = {list(grid)}\n"
    case = read(tmp_path, f'states = 12\nactions = 2\n{HEAD}[posterior]\nsupport = "rule"\nrule = {rule}\n{layout}')
    table = table_of(case)
    for s, a, t in itertools.product(range(12), range(2), range(12)):
        assert table[s, a, t] == allowed(s, a, t), (s, a, t)


def test_lists_stand_in_for_a_rule_where_it_does_not_hold(tmp_path):
    case = read(
        tmp_path,
        f'states = 6\nactions = 2\n{HEAD}[posterior]\nsupport = "rule"\nrule = "adjacent"\n'
        "[posterior.successors]\n5 = { 1 = [0, 2] }\n",
    )
    table = table_of(case)
    assert np.flatnonzero(table[5, 1]).tolist() == [0, 2]
    assert np.flatnonzero(table[5, 0]).tolist() == [4, 5]
    assert np.flatnonzero(table[4, 1]).tolist() == [3, 4, 5]


@pytest.mark.parametrize("support", ["all", "observed", "rule"])
def test_a_state_that_is_never_entered_follows_no_pair(support, tmp_path):
    rule = 'rule = "adjacent"\n' if support == "rule" else ""
    toml = f"states = 5\nactions = 1\n{HEAD}transitions = 'log.csv'\n[posterior]\nsupport = '{support}'\n{rule}"
    log = "state,action,next_state\n1,0,2\n"
    table, free = (table_of(read(tmp_path, toml + never, log=log)) for never in ("never_entered = [0, 3]\n", ""))
    assert np.array_equal(table[:2], free[:2] & ~np.isin(np.arange(5), [0, 3]))
    assert not table[[0, 1, 2, 4]][..., [0, 3]].any()
    assert table.any(axis=2).all()


def test_a_log_and_a_checkpoint_keep_the_rule(tmp_path):
    """The grid is part of the question, and a run goes on with the rule it was begun with."""
    text = "states = 6\nactions = 2\n" + HEAD + 'transitions = "log.csv"\n[posterior]\nsupport = "rule"\n'
    text += 'rule = { steps = 1, also = ["5"] }\n[solver]\niterations = 2\nsamples = 8\nlargest = 8\nevaluation = 10\n'
    log = "state,action,next_state\n0,0,1\n1,1,0\n"
    flat, square = (read(tmp_path, text + layout, log=log) for layout in ("", "[layout]\ngrid = [2, 3]\n"))
    assert flat.digest() != square.digest()
    assert np.flatnonzero(table_of(square)[0, 0]).tolist() == [0, 1, 3, 5]
    pr.solve_problem(tmp_path / "problem.toml", tmp_path / "run", report=False, progress=False)
    again = read_checkpoint(tmp_path / "run").case
    assert again.digest() == square.digest()
    assert np.array_equal(table_of(again), table_of(square))


# ---------------------------------------------------------------- suggestions


def written(folder, environment, steps, seed=1, head=""):
    """A log of an environment with known kernel as a problem file that says nothing of its successors."""
    log = environment.walk(steps, seed)
    rows = zip(log.state, log.action, log.next_state, strict=True)
    (folder / "log.csv").write_text("state,action,next_state\n" + "".join(f"{s},{a},{t}\n" for s, a, t in rows))
    states, actions = environment.shape
    (folder / "problem.toml").write_text(
        f"states = {states}\nactions = {actions}\ndiscount = 0.9\nstart = {int(np.argmax(environment.mdp().start))}\n"
        f"terminal = {list(environment.terminal)}\n[data]\ntransitions = 'log.csv'\ndefault_cost = 1.0\n{head}"
    )
    return folder / "problem.toml"


SUGGESTED = {
    "lake_4x4": "All 500 moves stay or lead to a neighbour on a 4 x 4 grid.",
    "lake_8x8": "All 500 moves stay or lead to a neighbour on a 8 x 8 grid.",
    "cliff": "All 500 moves stay or lead to a neighbour on a 4 x 12 grid, but for 4 that lead to 36.",
    "queue_with_bursts": "All 500 moves lead at most 1 level back.",
    "river_swim": "All 500 moves lead at most 1 level forward and at most 1 level back. "
    "That rests on 47 moves, too few to tell a rule from chance.",
    "epidemic": None,
    "garnet": None,
}


WITH_PRIOR = '[posterior]\nkind = "dirichlet"\nprior = 0.5\n'


@pytest.mark.parametrize("name", short([name for name in SUGGESTED if name not in ("lake_8x8", "cliff")], SUGGESTED))
def test_the_rule_that_a_log_looks_like_is_suggested_and_can_be_pasted(name, tmp_path):
    path = written(tmp_path, ENVIRONMENTS[name], 500, head=WITH_PRIOR)
    said = CliRunner().invoke(app, ["check", str(path)])
    assert said.exit_code == 0
    if SUGGESTED[name] is None:
        assert "say so" not in said.output
        return
    assert SUGGESTED[name] in said.output
    before = pr.read_problem(path)
    snippet = said.output[said.output.index("[posterior]\nkind") :]
    path.write_text(path.read_text().replace(WITH_PRIOR, snippet))
    after = pr.read_problem(path)
    assert after.facts.file.posterior.support == "rule" and after.facts.file.posterior.prior == 0.5
    for case, words in ((before, "now:"), (after, "on average")):
        pairs = table_of(case).sum(axis=2)[case.reachable & ~case.terminal]
        assert re.search(rf"{pairs.mean():.1f}[^.]*{words}", said.output), pairs.mean()
    assert "say so" not in CliRunner().invoke(app, ["check", str(path)]).output


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("steps", [30, 3000])
def test_a_suggestion_is_true_of_its_log(name, steps, tmp_path):
    path = written(tmp_path, ENVIRONMENTS[name], steps, seed=steps)
    case = pr.read_problem(path)
    suggestion = suggestion_of(case)
    if suggestion is None:
        return
    # A log that breaks the rule would be refused.
    changes = {f"{table}.{key}": value for table, keys in suggestion.tables.items() for key, value in keys.items()}
    table = table_of(pr.read_problem(path, changes=changes))
    log = case.facts.log
    assert table[log.state, log.action, log.next_state].all()
    assert ("too few" in suggestion.lines()[0]) == (suggestion.moves < 100)
    assert steps > 100 or suggestion.moves < 100


def test_a_handful_of_rows_suggests_nothing(tmp_path):
    assert suggestion_of(pr.read_problem(written(tmp_path, ENVIRONMENTS["river_swim"], 19))) is None


def test_names_in_a_suggestion_are_quoted(tmp_path):
    rows = "".join(f'{s},"go ""on""",{t},40\n' for s, t in zip("dcba", "cbaa", strict=True))
    text = """states = ["a", "b", "c", "d"]\nactions = ['go "on"', "x"]\n""" + HEAD.replace("0\n[", '"d"\n[')
    log = "state,action,next_state,count\n" + rows
    case = read(tmp_path, text + 'transitions = "log.csv"\n', log=log)
    suggestion = suggestion_of(case)
    again = read(tmp_path, text + 'transitions = "log.csv"\n' + suggestion.toml(), log=log)
    assert suggestion.sentence == "All 160 moves lead never forward and at most 1 level back"
    assert again.facts.file.posterior.support == "rule"


def test_names_without_an_order_suggest_nothing_and_take_no_rule(tmp_path):
    log = "state,action,next_state,count\nb,x,a,500\na,x,a,500\nc,x,b,500\n"
    text = 'discount = 0.9\nstart = "c"\n[data]\ndefault_cost = 1.0\ntransitions = "log.csv"\n'
    assert suggestion_of(read(tmp_path, text, log=log)) is None
    with pytest.raises(pr.InputError, match="goes by the order of the states; give states in their order"):
        read(tmp_path, text + '[posterior]\nsupport = "rule"\nrule = "adjacent"\n', log=log)
