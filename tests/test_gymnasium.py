"""Gymnasium environments: tables read right, terminal states known, rollouts learned from, refusals."""

import builtins
from types import SimpleNamespace

import numpy as np
import pytest

import prudent as pr

gymnasium = pytest.importorskip("gymnasium")

UNIFORM = pr.TabularPolicy(np.full((16, 4), 0.25))


class Corridor(gymnasium.Env):
    """Two rooms and a way out; a table that lists a successor twice, and moves from beyond the end."""

    def __init__(self, table=None, start=(1.0, 0.0, 0.0)):
        self.observation_space, self.action_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(1)
        if table is not None:
            self.P = table
        if start is not None:
            self.initial_state_distrib = np.array(start)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        self.state += int(self.np_random.random() < 0.5)
        return self.state, 0.0, self.state == 2, False, {}


TABLE = {
    0: {0: [(0.25, 1, 4.0, False), (0.25, 1, 2.0, False), (0.5, 0, 1.0, False), (0.0, 2, 9.0, True)]},
    1: {0: [(0.5, 1, 0.0, False), (0.5, 2, 7.0, True)]},
    2: {0: [(1.0, 0, 5.0, False)]},
}


def changed(**rows):
    """The table with other rows `row1=...`."""
    return {**TABLE, **{int(name[3:]): {0: entries} for name, entries in rows.items()}}


@pytest.mark.parametrize(
    ("name", "value"),
    # Known values: the slippery lake's 0.542, and 13 moves at cost 1 along the cliff.
    [("FrozenLake-v1", -0.5420), ("CliffWalking-v1", (1 - 0.99**13) / 0.01)],
)
def test_planning_with_the_table_gives_the_known_value(name, value):
    problem = pr.envs.from_gymnasium(name, discount=0.99)
    mdp = problem.family.at(problem.truth)
    assert float(mdp.start @ pr.plan(mdp).values) == pytest.approx(value, abs=1e-4)


def test_a_table_is_read_along_its_reachable_successors():
    problem = pr.envs.from_gymnasium(Corridor(TABLE), discount=0.9)
    support = problem.family.support
    lists = [support.index()[s, 0][support.allowed()[s, 0]].tolist() for s in range(3)]
    assert lists == [[0, 1], [1, 2], [2]]
    np.testing.assert_allclose(problem.truth[:, 0], [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]])
    # A successor listed twice has the mean of its rewards; the state beyond the end is free.
    np.testing.assert_allclose(np.asarray(problem.family.costs)[:, 0], [[-1.0, -3.0], [0.0, -7.0], [0.0, 0.0]])
    np.testing.assert_array_equal(problem.prior.prior, support.allowed())
    # A row with one successor is certain in every draw.
    assert np.all(problem.prior.sample(0, 5)[:, 2, 0] == [1.0, 0.0])


def test_rollouts_teach_the_table_and_never_a_terminal_row():
    problem = pr.envs.from_gymnasium("FrozenLake-v1", discount=0.99, rollouts=400)
    log = problem.world.deploy(UNIFORM, np.random.default_rng(1))
    belief = problem.prior.update(log)
    ends = [5, 7, 11, 12, 15]
    assert not np.isin(log.state, ends).any()
    assert np.asarray(belief.counts)[ends].sum() == 0
    assert belief.counts.sum() == len(log)
    seen = np.asarray(belief.counts).sum(axis=2) > 100
    assert seen.any()
    assert np.abs(belief.mean() - problem.truth)[seen].max() < 0.15
    again = problem.world.deploy(UNIFORM, np.random.default_rng(1))
    np.testing.assert_array_equal(again.next_state, log.next_state)


def test_episodes_run_in_an_environment():
    problem = pr.envs.from_gymnasium("FrozenLake-v1", discount=0.99, rollouts=5)
    solver = pr.BRPG(samples=4, iterations=2, evaluation=8)
    result = pr.run_episodes(problem.family, problem.prior, problem.world, episodes=2, solver=solver)
    assert result.belief.counts.sum() == sum(len(episode.log) for episode in result.episodes) > 0


def test_an_environment_without_a_table_is_learned_on_what_was_observed():
    environment = Corridor()
    log = pr.GymnasiumWorld(environment, rollouts=50).deploy(
        pr.TabularPolicy(np.ones((3, 1))), np.random.default_rng(0)
    )
    support = pr.envs.observed_support(log, terminal=2)
    assert support.allowed().sum(axis=2).tolist() == [[2], [2], [1]]
    problem = pr.envs.from_gymnasium(environment, 0.9, support=support, cost=[[1.0], [1.0], [0.0]])
    assert problem.truth is None
    mean = problem.prior.update(log).mean()
    np.testing.assert_allclose(mean[:2, 0], 0.5, atol=0.15)
    np.testing.assert_array_equal(mean[2, 0], [1.0, 0.0])
    dense = pr.envs.from_gymnasium(environment, 0.9, support=pr.Support.dense(3, 1), cost=np.ones((3, 1)), start=1)
    assert dense.family.start.tolist() == [0.0, 1.0, 0.0]


def test_an_unseen_pair_may_lead_anywhere():
    log = pr.Transitions.from_records([(0, 0, 1)], states=3, actions=2)
    assert pr.envs.observed_support(log, [2]).allowed().sum(axis=2).tolist() == [[1, 3], [3, 3], [1, 1]]
    with pytest.raises(pr.InputError, match="state 0 is called terminal, but the log goes on from it"):
        pr.envs.observed_support(log, [0])
    with pytest.raises(pr.InputError, match="terminal state 3"):
        pr.envs.observed_support(log, [3])
    with pytest.raises(pr.InputError, match="log must be a log of Transitions"):
        pr.envs.observed_support([(0, 0, 1)])


def test_an_end_that_is_reached_both_ways_is_refused_only_if_an_episode_can():
    both = changed(row1=[(0.5, 2, 0.0, False), (0.5, 2, 7.0, True)])
    with pytest.raises(pr.InputError, match="state 2 ends an episode when reached one way and not another"):
        pr.envs.from_gymnasium(Corridor(both), 0.9)
    # Nothing leads to state 1 here: its row is the table's, but it decides nothing.
    unreachable = changed(row0=[(1.0, 2, 0.0, True)], row1=[(1.0, 2, 0.0, False)])
    problem = pr.envs.from_gymnasium(Corridor(unreachable), 0.9)
    assert problem.family.support.index()[:, 0, 0].tolist() == [2, 2, 2]
    anywhere = Corridor(unreachable, start=None)
    with pytest.raises(pr.InputError, match="state 2 ends an episode"):
        pr.envs.from_gymnasium(anywhere, 0.9, start=[0.5, 0.5, 0.0])
    with pytest.raises(pr.InputError, match=r"does not say its start; give from_gymnasium\(\.\.\., start="):
        pr.envs.from_gymnasium(Corridor(TABLE, start=None), 0.9)
    assert pr.envs.from_gymnasium(Corridor(TABLE, start=None), 0.9, start=1).family.start[1] == 1.0


@pytest.mark.parametrize("row", [[], [(1.0, 5, 0.0, False)], [(1.0, 0)], [("all", 0, 0.0, False)], 3])
def test_a_table_in_another_form_is_refused(row):
    with pytest.raises(pr.InputError, match=r"table P\[1\]\[0\] is not a list of"):
        pr.envs.from_gymnasium(Corridor(changed(row1=row)), 0.9)


def test_environments_that_do_not_fit_are_refused():
    box = gymnasium.spaces.Box(-1.0, 1.0)
    continuous = SimpleNamespace(observation_space=gymnasium.spaces.Discrete(3), action_space=box)
    shifted = SimpleNamespace(observation_space=gymnasium.spaces.Discrete(3, start=1))
    for match, make in (
        ("observation_space is Box", lambda: pr.envs.from_gymnasium("CartPole-v1", 0.9)),
        ("action_space is Box", lambda: pr.GymnasiumWorld(continuous)),
        (r"observation_space is Discrete\(3, start=1\)", lambda: pr.GymnasiumWorld(shifted)),
        ("observation_space is None", lambda: pr.GymnasiumWorld(SimpleNamespace())),
        ("Gymnasium cannot make 'NoSuchLake-v1'", lambda: pr.envs.from_gymnasium("NoSuchLake-v1", 0.9)),
        ("has no table P of its transitions; give support=", lambda: pr.envs.from_gymnasium(Corridor(), 0.9)),
        (
            "does not say its cost",
            lambda: pr.envs.from_gymnasium(Corridor(), 0.9, support=pr.Support.dense(3, 1)),
        ),
        (
            "the support is for 2 states and 1 actions, the environment has 3 and 1",
            lambda: pr.envs.from_gymnasium(Corridor(), 0.9, support=pr.Support.dense(2, 1)),
        ),
        ("support must be a Support", lambda: pr.envs.from_gymnasium(Corridor(), 0.9, support=3)),
        ("discount must lie in", lambda: pr.envs.from_gymnasium(Corridor(TABLE), 1.0)),
    ):
        with pytest.raises(pr.InputError, match=match):
            make()


def test_without_the_extra_the_error_names_it(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "gymnasium":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(pr.InputError, match=r'pip install "prudent\[gym\]"'):
        pr.envs.from_gymnasium("FrozenLake-v1", 0.99)
