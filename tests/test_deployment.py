"""A policy put to work: asked by name, written to JSON, tried in an environment; a solution kept and shown."""

import json
import random
import subprocess
import sys

import gymnasium
import numpy as np
import pandas as pd
import pytest

import prudent as pr

FRAME = pd.DataFrame(
    {
        "state": ["new", "new", "worn", "worn", "broken"] * 4,
        "action": ["run", "run", "run", "fix", "fix"] * 4,
        "next_state": ["new", "worn", "broken", "new", "new"] * 4,
    }
)
COST = [[0.0, 1.0], [0.0, 1.5], [5.0, 3.25]]


@pytest.fixture(scope="module")
def solution():
    log = pr.read_log(FRAME, states=["new", "worn", "broken"])
    machine = pr.TabularFamily(log.support(), cost=COST, start="new", discount=0.95)
    belief = pr.Dirichlet.symmetric(log.support(), 1.0).update(log)
    return pr.solve(machine, belief, risk=pr.CVaR(0.9), seed=3)


@pytest.fixture(scope="module")
def network():
    lake = pr.envs.frozen_lake("SF\nHG")
    place = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    return pr.solve(lake, lake.prior, policy=pr.Neural(place, width=4, depth=2), solver=pr.BRPG(iterations=3, step=0.5))


def test_names_go_from_the_log_to_policy_and_drivers(solution):
    assert solution.policy.labels.states == ("new", "worn", "broken")
    assert solution.policy.labels.actions == ("run", "fix")
    drivers = solution.certificate.drivers
    assert drivers
    for driver in drivers:
        state, action, slot = driver.place
        names = solution.policy.labels
        assert driver.name == f"{names.states[state]}, {names.actions[action]} → {names.states[slot]}"
    assert f"driven by     {drivers[0].name}, " in str(solution)


def test_a_dirichlet_that_takes_a_log_is_the_one_that_takes_its_transitions(solution):
    log = pr.read_log(FRAME, states=["new", "worn", "broken"])
    for belief in (pr.Dirichlet.symmetric(log.support()), pr.Pooled(log.support())):
        np.testing.assert_array_equal(belief.update(log).mean(), belief.update(log.transitions).mean())
    other = pr.read_log(FRAME)  # in the order of the rows: the same three states
    swapped = pr.read_log(FRAME, states=["worn", "new", "broken"])
    assert other.states == log.states
    with pytest.raises(pr.InputError, match=r"the log has the states worn, new, broken, the model new, worn, broken"):
        pr.Dirichlet.symmetric(log.support()).update(swapped)


def test_acting_follows_the_probabilities():
    policy = pr.TabularPolicy([[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]], states=["a", "b"])
    generator = np.random.default_rng(0)
    taken = np.bincount([policy.act(0, generator) for _ in range(4000)], minlength=3) / 4000
    np.testing.assert_allclose(taken, [0.2, 0.8, 0.0], atol=4 * np.sqrt(0.16 / 4000))
    assert taken[2] == 0.0
    assert [policy.act("a", seed) for seed in range(20)] == [policy.act("a", seed) for seed in range(20)]
    # Actions without names are numbers, those with names are names, whichever way the state is given.
    named = pr.TabularPolicy(policy.probabilities, actions=["run", "service", "replace"])
    for state in ("b", 1, np.int64(1)):
        assert policy.act(state) == 2 and isinstance(policy.act(state), int)
    for state in ("1", 1, np.int64(1)):
        assert named.act(state) == "replace"


@pytest.mark.parametrize(
    ("state", "seed", "words"),
    [
        ("wron", 0, "did you mean 'worn'"),
        (2, 0, "state 2 is unknown: there are 2, numbered 0 to 1"),
        (-1, 0, "state -1 is unknown"),
        (1.5, 0, "by its name or its number, got 1.5"),
        (True, 0, "by its name or its number, got True"),
        ("worn", "x", "seed must be a whole number"),
        ("worn", -1, "seed must be >= 0"),
    ],
)
def test_acting_refuses_what_it_cannot_read(state, seed, words):
    policy = pr.TabularPolicy([[1.0, 0.0], [0.5, 0.5]], states=["new", "worn"], actions=["run", "fix"])
    with pytest.raises(pr.InputError, match=words):
        policy.act(state, seed)


def test_predict_answers_like_stable_baselines():
    policy = pr.TabularPolicy([[1.0, 0.0], [0.0, 1.0]])
    actions, state = policy.predict(np.array([1, 0, 1]), state="kept", episode_start=np.ones(3))
    assert actions.tolist() == [1, 0, 1] and state == "kept"
    assert policy.predict(1)[0].shape == ()
    mixed = pr.TabularPolicy([[0.4, 0.6]])
    assert {int(mixed.predict(0, deterministic=True)[0]) for _ in range(20)} == {1}


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_the_table_is_a_frame_of_names(solution, backend):
    table = solution.policy.table(backend)
    columns = list(table.columns) if backend != "pyarrow" else table.column_names
    assert columns == ["state", "run", "fix"]
    assert list(table["state"].to_numpy()) == ["new", "worn", "broken"]
    np.testing.assert_array_equal(np.asarray(table["fix"]), solution.policy.probabilities[:, 1])
    odd = pr.TabularPolicy([[1.0]], actions=["state"]).table("pandas")
    assert list(odd.columns) == ["state", "state (action)"]


def test_a_policy_file_reads_back_to_the_bit_and_runs_in_ten_plain_lines(solution, network, tmp_path):
    path = solution.policy.save(tmp_path / "policy.json")
    again = pr.load_policy(path)
    np.testing.assert_array_equal(again.probabilities, solution.policy.probabilities)
    assert again.labels == solution.policy.labels
    # The schema is enough: without prudent and without NumPy.
    code = (
        "import json, random, sys\n"
        "policy = json.load(open(sys.argv[1]))\n"
        "def act(state, rng):\n"
        "    row = policy['probabilities'][policy['states'].index(state)]\n"
        "    return rng.choices(policy['actions'], weights=row)[0]\n"
        "rng = random.Random(0)\n"
        "print([act('worn', rng) for _ in range(300)].count('fix'))\n"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code, str(path)], capture_output=True, text=True, check=True)
    chance = solution.policy.probabilities[1, 1]
    assert abs(int(run.stdout) / 300 - chance) <= 4 * np.sqrt(chance * (1 - chance) / 300) + 1e-12

    path = network.policy.save(tmp_path / "network.json")
    again = pr.load_policy(path)
    np.testing.assert_array_equal(again.at([[0.3, 0.7]]), network.policy.at([[0.3, 0.7]]))
    gain = pr.LinearGaussianPolicy([[-0.5, 0.1]], bias=[0.2], covariance=[[0.04]])
    again = pr.load_policy(gain.save(tmp_path / "gain.json"))
    assert again.act([1.0, 2.0], seed=5) == gain.act([1.0, 2.0], seed=5)
    acts = np.array([gain.act([1.0, 2.0], np.random.default_rng(k))[0] for k in range(500)])
    np.testing.assert_allclose([acts.mean(), acts.std()], [-0.1, 0.2], atol=0.03)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "another"}, "has no format"),
        ({"kind": "tree"}, "policy of the kind 'tree'"),
        ({"probabilities": [[0.5, 0.4]]}, "sum"),
        ({"probabilities": "x"}, "expected an array of numbers"),
        ({"states": ["a", "b"]}, "names of 2 states"),
        ({"states": None}, "names of states are a list"),
        ({"actions": ["run", "run"]}, "declared twice"),
    ],
)
def test_a_damaged_policy_file_is_refused(change, words, tmp_path):
    path = pr.TabularPolicy([[0.5, 0.5]], actions=["run", "fix"]).save(tmp_path / "policy.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(pr.InputError, match=words):
        pr.load_policy(path)
    path.write_text("{")
    with pytest.raises(pr.InputError, match="is not JSON"):
        pr.load_policy(path)
    with pytest.raises(pr.InputError, match="no such file"):
        pr.load_policy(tmp_path / "none.json")


def test_a_network_is_evaluated_on_new_features(network):
    policy = network.policy
    np.testing.assert_allclose(policy.at(policy.features), policy.probabilities, atol=1e-12)
    new = np.array([[0.5, 0.5], [2.0, -1.0]])
    value = new
    for weight, bias in policy.layers[:-1]:
        value = np.tanh(value @ weight.T + bias)
    logits = value @ policy.layers[-1][0].T + policy.layers[-1][1]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(policy.at(new), expected, atol=1e-12)
    assert np.ptp(expected, axis=0).max() > 1e-6  # it does depend on the features
    assert policy.predict(new[0])[0].shape == () and policy.predict(new)[0].shape == (2,)
    with pytest.raises(pr.InputError, match="with 2 features"):
        policy.at([[1.0]])


def test_evaluate_in_agrees_with_the_exact_value_of_a_known_lake():
    env = gymnasium.make("FrozenLake-v1", desc=["SF", "HG"], is_slippery=True)
    uniform = np.full((4, 4), 0.25)
    table = env.unwrapped.P
    # The chance to reach the goal within the environment's limit of 100 steps, by hand.
    alive, reached = np.zeros(4), 0.0
    alive[0] = 1.0
    for _ in range(100):
        after = np.zeros(4)
        for state in range(4):
            for action in range(4):
                for chance, following, reward, over in table[state][action]:
                    flow = alive[state] * 0.25 * chance
                    reached += flow * reward
                    after[following] += 0.0 if over else flow
        alive = after
    trial = pr.evaluate_in(env, uniform, episodes=500, seed=1)
    assert abs(trial.mean - reached) < 4 * np.sqrt(reached * (1 - reached) / 500)
    twice = [pr.evaluate_in(env, uniform, episodes=50, seed=2) for _ in range(2)]
    assert np.array_equal(twice[0].steps, twice[1].steps) and np.array_equal(twice[0].rewards, twice[1].rewards)
    assert "standard error" in str(trial)

    class Model:  # as Stable-Baselines3 has it
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.array(random.Random(int(observation)).randrange(4)), state

    assert len(pr.evaluate_in(env, Model(), episodes=3).steps) == 3
    with pytest.raises(pr.InputError, match="env has no reset"):
        pr.evaluate_in(object(), uniform)


def test_a_solution_reads_back_and_says_the_same(solution, network, tmp_path):
    for each in (solution, network):
        again = pr.Solution.load(each.save(tmp_path / "solution.safetensors"))
        assert str(again) == str(each)
        np.testing.assert_array_equal(again.losses, each.losses)
        np.testing.assert_array_equal(again.policy.probabilities, each.policy.probabilities)
        assert again.status is each.status and repr(again.evidence) == repr(each.evidence)
    np.testing.assert_array_equal(again.policy.at([[0.1, 0.2]]), network.policy.at([[0.1, 0.2]]))
    with pytest.raises(pr.InputError, match="record_solution"):
        again.report(tmp_path / "page.html")
    lake = pr.envs.frozen_lake("SF\nHG")
    few = pr.BRPG(iterations=2)
    loaded = pr.Solution.load(pr.solve(lake, lake.prior, solver=few).save(tmp_path / "brpg.safetensors"))
    with pytest.raises(pr.InputError, match="was loaded from a file"):
        pr.solve(lake, lake.prior, solver=few, resume=loaded)
    path = tmp_path / "solution.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(pr.InputError, match="damaged"):
        pr.Solution.load(path)


def test_a_saved_solution_makes_nothing_but_its_own_records(tmp_path):
    from prudent.runs.exporting import _digest
    from prudent.runs.tensors import packed

    for said in ({"record": "Path", "fields": {}}, {"enum": ["Stream", "WORLD"]}, {"tuple": [], "list": True}):
        path = tmp_path / "x.safetensors"
        path.write_bytes(packed({}, {"kind": "solution", "solution": said, "digest": _digest(said, {})}))
        with pytest.raises(pr.InputError, match="no solution that prudent has written"):
            pr.Solution.load(path)


def test_a_solution_shows_itself(solution, tmp_path):
    assert len(repr(solution).splitlines()) == 1
    page = solution._repr_html_()
    assert page.count("<tr>") <= 8 and "risk" in page
    frame = solution.to_frame()
    assert list(frame.columns[:3]) == ["probability", "weight", "loss"]
    assert "worn, run → broken" in frame.columns
    assert np.isclose((frame.probability * frame.weight * frame.loss).sum(), solution.risk)
    assert solution.plot(tmp_path / "losses.png").axes
    assert (tmp_path / "losses.png").stat().st_size > 1000
    text = solution.report(tmp_path / "page.html", title="A machine").read_text(encoding="utf-8")
    assert "A machine" in text and "worn" in text


def test_a_belief_goes_to_arviz():
    pytest.importorskip("arviz", reason="is not among what is pinned for Python 3.11")
    belief = pr.Beta.uniform(2)
    data = belief.to_arviz(samples=200, seed=4)
    np.testing.assert_array_equal(data.posterior["theta"].values[0], belief.sample(4, 200))


def test_a_step_that_gives_the_wrong_thing_gets_a_sentence():
    policy = pr.TabularPolicy(np.ones((3, 1)))
    for wrong, words in (
        (2, "gave 2; it must give a pair"),
        ((1, 0.5, False), "must give a pair"),
        ((1, "no"), "pair"),
    ):
        world = pr.StepWorld(lambda s, a, g, wrong=wrong: wrong, reset=lambda g: 0, states=3, actions=1)
        with pytest.raises(pr.InputError, match=words):
            world.deploy(policy, np.random.default_rng(0))


def test_episodes_run_with_the_solver_that_solve_uses():
    lake = pr.envs.frozen_lake("SF\nHG")
    result = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=2)
    assert result.episodes[-1].solution.status in (pr.Status.CONVERGED, pr.Status.STALLED, pr.Status.SAMPLE_LIMIT)
    again = pr.run_episodes(lake, lake.prior, lake.world((0.3, 0.1)), episodes=2)
    np.testing.assert_array_equal(result.policy.probabilities, again.policy.probabilities)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda lake: pr.CVaR(alpha=0.9), r"CVaR has no argument alpha=; did you mean level=\?"),
        (lambda lake: pr.solve(lake, lake.prior, verbose=True), r"did you mean progress=\?"),
        (lambda lake: pr.TabularFamily(lake.support, costs=1, start=0, discount=0.9), r"did you mean cost=\?"),
        (lambda lake: pr.TabularFamily(lake.support, rewards=1, start=0, discount=0.9), "a cost is a negative reward"),
        (lambda lake: pr.BRPG(iteration=3), r"did you mean iterations=\?"),
        (lambda lake: pr.evaluate(1, lake, lake.prior, zzz=1), "there are policy=, model="),
    ],
)
def test_a_keyword_of_another_library_gets_a_hint(call, words):
    with pytest.raises(pr.InputError, match=words):
        call(pr.envs.frozen_lake("SF\nHG"))
