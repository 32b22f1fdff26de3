"""Episodes: deploy, log, learn, solve; worlds against their kernels, resuming to the bit, iterations by the theorem."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import prudent as pr
from prudent.records import tree_leaves
from prudent.seeds import child

# Not symmetric: on a symmetric map rounding alone decides which of two equal ways a run takes.
LAKE = pr.envs.frozen_lake("SFF\nHFG")
TRUTH = (0.3, 0.1)
STATES, ACTIONS = 6, 4
SOLVER = pr.BRPG(samples=8, iterations=6, evaluation=16)
UNIFORM = pr.TabularPolicy(np.full((STATES, ACTIONS), 0.25))


def run(episodes=3, world=None, **changes):
    settings = {"model": LAKE, "prior": LAKE.prior, "risk": pr.CVaR(0.5), "solver": SOLVER, "seed": 7, **changes}
    model, prior = settings.pop("model"), settings.pop("prior")
    return pr.run_episodes(model, prior, world or LAKE.world(TRUTH, steps=12), episodes=episodes, **settings)


def same_bits(left, right):
    """The same runs, but for the clock."""
    left, right = (
        [(e.deployed, e.log, e.belief, e.solution.losses, e.solution.checkpoint.state) for e in r.episodes]
        for r in (left, right)
    )
    leaves, others = tree_leaves(left), tree_leaves(right)
    return len(leaves) == len(others) and all(np.array_equal(a, b) for a, b in zip(leaves, others, strict=True))


class Silent(pr.World):
    """Nothing is ever observed."""

    answer: Any = None

    def deploy(self, policy, generator):
        return self.answer


class Day:
    """A user's own kind of log, without a length."""


class Diary(pr.World):
    def deploy(self, policy, generator):
        return Day()


# The loop


def longer_each_time(start):
    return pr.BRPG(samples=8, iterations=2 + len(start.episodes), evaluation=16)


@pytest.mark.parametrize("solver", [SOLVER, longer_each_time], ids=["fixed", "chosen"])
def test_a_resumed_run_has_the_bits_of_the_uninterrupted_one(solver):
    whole = run(episodes=4, solver=solver)
    part = run(episodes=2, solver=solver, resume=run(episodes=2, solver=solver))
    assert same_bits(part, whole)


def test_a_function_chooses_the_solver_of_each_episode():
    result = run(solver=longer_each_time)
    assert [episode.solution.iterations for episode in result.episodes] == [2, 3, 4]
    refuses("what solver= chooses must be", solver=lambda start: 10)


@pytest.mark.parametrize("output", [pr.LastIterate(), pr.RandomIterate()], ids=lambda output: type(output).__name__)
def test_an_episode_starts_from_the_output_of_the_one_before_and_deploys_it(output):
    solver = pr.BRPG(samples=8, iterations=6, evaluation=16, output=output)
    result = run(solver=solver)
    np.testing.assert_array_equal(result.episodes[0].deployed.probabilities, UNIFORM.probabilities)
    for before, after in zip(result.episodes[:-1], result.episodes[1:], strict=True):
        np.testing.assert_array_equal(after.deployed.probabilities, before.solution.policy.probabilities)
    for number, episode in enumerate(result.episodes):
        start = np.zeros((STATES, ACTIONS)) if number == 0 else result.episodes[number - 1].solution.parameters
        # The seed of belief 0 of this episode.
        own = child(child(7, number), 0)
        alone = pr.solve(LAKE, episode.belief, risk=pr.CVaR(0.5), solver=solver, seed=own, start=start)
        np.testing.assert_array_equal(alone.parameters, episode.solution.parameters)
        last = episode.solution.checkpoint.state.parameters
        assert np.array_equal(episode.solution.parameters, last) == isinstance(output, pr.LastIterate)


def test_the_belief_is_the_prior_with_every_log():
    result = run()
    belief = LAKE.prior
    for episode in result.episodes:
        belief = belief.update(episode.log)
        np.testing.assert_array_equal(episode.belief.counts, belief.counts)
    np.testing.assert_array_equal(result.belief.counts, belief.counts)
    assert np.array_equal(result.policy.probabilities, result.episodes[-1].solution.policy.probabilities)


def test_a_plain_log_goes_through_a_grid():
    """States alone do not always tell a slip from a step; the grid uses the family's own kernel."""
    prior = pr.Grid(LAKE, low=[0.0, 0.0], high=[1.0, 1.0], cells=60)
    result = run(prior=prior, world=pr.SimulatedWorld(LAKE, TRUTH, steps=40), episodes=2)
    logs = [episode.log for episode in result.episodes]
    together = prior.update(logs[0]).update(logs[1])
    np.testing.assert_array_equal(result.belief.weights, together.weights)
    assert result.belief.weights.std() > 0
    assert np.abs(result.belief.mean() - prior.mean()).max() > 0.05


@pytest.mark.parametrize(
    "world",
    [
        Silent(),
        Silent(pr.Trials(np.zeros((2, 2)))),
        pr.StepWorld(lambda state, action, generator: (state, True), lambda generator: None, STATES, ACTIONS),
    ],
    ids=["none", "no trials", "no walk"],
)
def test_an_episode_without_data_leaves_the_belief_and_brpg_goes_on(world):
    result = run(world=world)
    assert all(episode.log is None and not episode.belief.counts.any() for episode in result.episodes)
    assert all(episode.solution.iterations == SOLVER.iterations for episode in result.episodes)
    assert not np.array_equal(result.policy.probabilities, result.episodes[0].solution.policy.probabilities)
    assert str(result).splitlines()[1].split()[:3] == ["1", "0", "6"]


def test_a_users_own_log_reaches_the_belief_as_it_is():
    class Counting(pr.Posterior):
        seen: int = 0

        def draw(self, generator, n):
            return generator.uniform(size=(n, 2))

        def update(self, log):
            assert isinstance(log, Day)
            return Counting(self.seen + 1)

    result = run(prior=Counting(), world=Diary())
    assert result.belief.seen == 3
    assert str(result).splitlines()[1].split()[:3] == ["1", "unknown", "6"]


@pytest.mark.long
def test_many_worlds_agree_with_single_runs():
    worlds = [LAKE.world(TRUTH, steps=12), LAKE.world((0.6, 0.4), steps=20)]
    settings = {"episodes": 2, "risk": pr.CVaR(0.5), "solver": SOLVER, "seed": 7}
    two = pr.run_episodes_many(LAKE, LAKE.prior, worlds, **settings)
    three = pr.run_episodes_many(LAKE, LAKE.prior, [*worlds, worlds[0]], **settings)
    alone = run(episodes=2)
    for left, right in ((alone, two[0]), (two[0], three[0]), (two[1], three[1])):
        np.testing.assert_array_equal(left.belief.counts, right.belief.counts)
        np.testing.assert_allclose(left.policy.probabilities, right.policy.probabilities, atol=1e-9)
    # The third has the first's world, but chances of its own.
    assert not np.array_equal(three[2].belief.counts, three[0].belief.counts)
    again = pr.run_episodes_many(LAKE, LAKE.prior, worlds, **{**settings, "episodes": 1})
    resumed = pr.run_episodes_many(LAKE, LAKE.prior, worlds, **{**settings, "episodes": 1}, resume=again)
    assert all(same_bits(a, b) for a, b in zip(resumed, two, strict=True))


# Worlds


def frequencies_fit(log, mdp, policy):
    """Chi-square of the transitions out of each pair, all together, against the kernel."""
    table, shape = mdp.kernel.table(), (mdp.kernel.support.states, mdp.kernel.support.actions)
    counts = np.zeros((*shape, shape[0]))
    np.add.at(counts, (log.state, log.action, log.next_state), log.count)
    assert counts[table == 0].sum() == 0
    pairs = counts.sum(axis=2)
    expected, possible = pairs[:, :, None] * table, (table > 0) & (pairs[:, :, None] > 0)
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    free = possible.sum() - (pairs > 0).sum()
    assert abs(statistic - free) < 4 * np.sqrt(2 * free)
    states = counts.sum(axis=(1, 2))
    for state in np.flatnonzero(states > 50):
        assert chisquare(pairs[state], states[state] * policy[state]).pvalue > 1e-4


def test_a_simulated_world_follows_its_kernel_and_the_policy():
    random = np.random.default_rng(3)
    support = pr.Support.lists(np.argsort(random.random((4, 2, 4)), axis=2)[:, :, :3])
    family = pr.TabularFamily(support, random.random((4, 2)), random.dirichlet(np.ones(4)), 0.9)
    world = pr.SimulatedWorld(family, random.dirichlet(np.ones(3), size=(4, 2)), steps=40, rollouts=300)
    policy = random.dirichlet(np.ones(2), size=4)
    log = world.deploy(pr.TabularPolicy(policy), random)
    assert len(log) == 12_000
    frequencies_fit(log, family.at(world.theta), policy)
    first = np.asarray(log.state).reshape(300, 40)[:, 0]
    assert chisquare(np.bincount(first, minlength=4), 300 * np.asarray(family.start)).pvalue > 1e-4
    # Walks are walks: each step begins where the one before it ended.
    paths = np.asarray(log.state).reshape(300, 40), np.asarray(log.next_state).reshape(300, 40)
    np.testing.assert_array_equal(paths[0][:, 1:], paths[1][:, :-1])


def test_what_has_no_probability_never_happens():
    world = LAKE.world((0.0, 0.0), steps=30, rollouts=20)
    (slipped, straight), (escaped, stuck) = world.deploy(UNIFORM, np.random.default_rng(0)).counts
    assert slipped == escaped == 0
    assert straight > 0 and stuck > 0


def test_a_lake_world_counts_slips_on_ice_and_tries_in_holes():
    world = LAKE.world(TRUTH, steps=50, rollouts=200)
    state, _, slot = world.simulated.walk(UNIFORM, np.random.default_rng(5))
    (slips, straight), (escapes, stuck) = world.deploy(UNIFORM, np.random.default_rng(5)).counts
    ice, hole = ~np.isin(state, [3, 5]), state == 3
    assert (slips, straight) == ((slot[ice] > 0).sum(), (slot[ice] == 0).sum())
    assert (escapes, stuck) == ((slot[hole] == 0).sum(), (slot[hole] > 0).sum())
    assert slips + straight + escapes + stuck == (state != 5).sum() < 10_000
    for (success, failure), chance in (((slips, straight), TRUTH[0]), ((escapes, stuck), TRUTH[1])):
        total = success + failure
        assert chisquare([success, failure], [total * chance, total * (1 - chance)]).pvalue > 1e-4


def test_a_users_own_step_is_logged_until_it_ends():
    def step(state, action, generator):
        return min(state + 1 + action, 3), state + 1 + action >= 3

    world = pr.StepWorld(step, lambda generator: 0, states=4, actions=2, steps=9, rollouts=2)
    log = world.deploy(pr.TabularPolicy(np.eye(2)[[0, 1, 0, 0]]), np.random.default_rng(0))
    assert np.stack([log.state, log.action, log.next_state], axis=1).tolist() == [[0, 0, 1], [1, 1, 3]] * 2


# Refusals


def refuses(match, **arguments):
    with pytest.raises(pr.InputError, match=match):
        run(**arguments)


def test_bad_worlds_are_refused():
    for theta in ((1.3, 0.1), (0.3,), (np.nan, 0.1)):
        with pytest.raises(pr.InputError, match="the true theta gives no model of this family"):
            pr.SimulatedWorld(LAKE, theta)

    def broken(theta):
        raise ValueError("no such theta")

    family = pr.Family(pr.Support.dense(1, 1), broken, [[1.0]], 0, 0.9)
    with pytest.raises(pr.InputError, match="no such theta"):
        pr.SimulatedWorld(family, [0.5])
    with pytest.raises(pr.InputError, match="steps must be a whole number >= 1, got 0"):
        LAKE.world(TRUTH, steps=0)
    with pytest.raises(pr.InputError, match=r"rollouts must be a whole number >= 1, got 1\.5"):
        LAKE.world(TRUTH, rollouts=1.5)
    with pytest.raises(pr.InputError, match="step must be a function, got 3"):
        pr.StepWorld(3, lambda generator: 0, 2, 1)
    with pytest.raises(pr.InputError, match="model must be a family"):
        pr.SimulatedWorld(TRUTH, TRUTH)


@pytest.mark.parametrize("state", [6, -1, 1.0, True, "start"])
def test_a_world_whose_state_is_out_of_range_is_refused(state):
    for step, reset in ((state, 0), (0, state)):
        world = pr.StepWorld(lambda *_, step=step: (step, False), lambda _, reset=reset: reset, STATES, ACTIONS)
        with pytest.raises(pr.InputError, match="states must be whole numbers 0 to 5"):
            world.deploy(UNIFORM, np.random.default_rng(0))


def test_a_policy_of_other_sizes_is_refused():
    small = pr.TabularPolicy(np.full((4, 4), 0.25))
    for world in (LAKE.world(TRUTH), pr.StepWorld(lambda *_: (0, False), lambda _: 0, STATES, ACTIONS)):
        with pytest.raises(pr.InputError, match="the world has 6 states and 4 actions"):
            world.deploy(small, np.random.default_rng(0))


def test_bad_arguments_are_refused_before_anything_is_deployed():
    class Forbidden(pr.World):
        def deploy(self, policy, generator):
            raise AssertionError("deployed")

    for match, changes in (
        ("episodes must be a whole number >= 1, got 0", {"episodes": 0}),
        ("Point cannot learn from a log", {"prior": pr.Point(TRUTH)}),
        ("prior must be a posterior", {"prior": TRUTH}),
        ("BRPG", {"solver": 10}),
        ("policy must be a parametrisation", {"policy": UNIFORM}),
        ("risk must be", {"risk": 0.9}),
        ("gradient must be", {"gradient": "adjoint"}),
        ("loss must be a function", {"loss": 3}),
        ("occupancy must be", {"occupancy": 3}),
        ("model must be a family", {"model": LAKE.at(TRUTH)}),
        ("seed must be", {"seed": -1}),
        ("resume must be what an earlier call returned", {"resume": 3}),
    ):
        refuses(match, world=Forbidden(), **changes)
    with pytest.raises(pr.InputError, match="world must be a world such as"):
        run(world=LAKE)
    with pytest.raises(pr.InputError, match="at least one world"):
        pr.run_episodes_many(LAKE, LAKE.prior, [], episodes=1)


def test_resume_refuses_another_seed_or_number_of_worlds():
    first = run(episodes=1)
    refuses("resume needs the seed of the first call", resume=first, seed=8)
    with pytest.raises(pr.InputError, match="one result for each world"):
        pr.run_episodes_many(LAKE, LAKE.prior, [LAKE.world(TRUTH)] * 2, episodes=1, resume=[first], seed=7)
