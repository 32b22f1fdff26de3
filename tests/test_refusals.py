"""Bad logs, beliefs, policies and settings are refused; the edge of what is allowed is accepted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

from .sound_parts import (
    ANYWHERE,
    COIN,
    DENSE,
    DIRICHLET,
    HALF,
    INF,
    LAKE,
    MDP,
    NAN,
    RAGGED,
    SMALL,
    STAY,
    UNIFORM,
    log,
    mdp,
    spoilt,
    table,
)


@table(
    ("empty", lambda: log([]), r"no row; observe at least one"),
    ("unknown state", lambda: log([(0, 0, 1), (2, 0, 1)]), r"^state 2 at row 1 is unknown.*0 to 1"),
    ("unknown action", lambda: log([(0, 0, 1), (1, 7, 1)]), r"^action 7 at row 1 is unknown.*0 to 1"),
    ("unknown successor", lambda: log([(0, 0, 2)]), r"^next_state 2 at row 0 is unknown"),
    ("negative", lambda: log([(0, 0, 1), (0, 0, 1), (0, -1, 1)]), r"^action -1 at row 2 is negative"),
    ("fractional", lambda: log([(0, 0, 1), (0.5, 0, 1)]), r"^state 0.5 at row 1 is not a whole number"),
    ("nan", lambda: log([(0, 0, 1), (NAN, 0, 1)]), r"^state nan at row 1 is not a number"),
    ("infinite", lambda: log([(0, 0, 1), (0, 0, INF)]), r"^next_state inf at row 1 is not a number"),
    ("words", lambda: log([(0, 0, 1), (0, "left", 1)]), r"^action .*left.* row 1"),
    ("None", lambda: log([(0, 0, 1), (0, None, 1)]), r"^action .*None.* row 1"),
    ("two columns", lambda: log([(0, 1), (1, 0)]), r"\(state, action, next_state\).*\(2, 2\)"),
    ("one row flat", lambda: log((0, 0, 1)), r"\(state, action, next_state\).*\(3,\)"),
    ("ragged", lambda: log([(0, 0, 1), (0, 0)]), r"\(state, action, next_state\)|row 1"),
    ("count negative", lambda: log([(0, 0, 1), (1, 0, 1)], count=[1, -2]), r"count -2.* at row 1 is negative"),
    ("count nan", lambda: log([(0, 0, 1), (1, 0, 1)], count=[1, NAN]), r"count.*nan at index \(1,\)"),
    ("count shape", lambda: log([(0, 0, 1), (1, 0, 1)], count=[1]), r"count.*2 rows, got shape \(1,\)"),
    ("count words", lambda: log([(0, 0, 1)], count=["many"]), r"count.*many"),
    ("fractional size", lambda: log([(0, 0, 1)], states=2.5), r"2\.5"),
    (
        "made by hand",
        lambda: pr.Transitions(np.array([-1]), np.array([0]), np.array([0]), np.ones(1), 2, 2),
        r"state -1 at row 0 is negative",
    ),
    ("trials negative", lambda: pr.Trials([[1, 2], [3, -4]]), r">= 0.*coordinate 1"),
    ("trials fractional", lambda: pr.Trials([[0.5, 2]]), r"whole numbers.*coordinate 0"),
    ("trials nan", lambda: pr.Trials([[1, NAN]]), r"trial count.*nan at index \(0, 1\)"),
    ("trials infinite", lambda: pr.Trials([[1, INF]]), r"trial count.*inf at index \(0, 1\)"),
    ("trials shape", lambda: pr.Trials([1, 2]), r"\(success, failure\).*\(2,\)"),
    ("trials empty", lambda: pr.Trials([]), r"\(success, failure\).*\(0,\)"),
    ("trials ragged", lambda: pr.Trials([[1, 2], [3]]), r"\(success, failure\)|number"),
    ("trials words", lambda: pr.Trials([["one", 2]]), r"one"),
    ("no lake trial", lambda: LAKE.trials(n=0, truth=(0.3, 0.02)), r"trials of each coordinate.*>= 1, got 0"),
    ("lake truth", lambda: LAKE.trials(n=5, truth=(0.3, 1.2)), r"truth.*two probabilities.*1.2"),
    ("lake truth nan", lambda: LAKE.trials(n=5, truth=(0.3, NAN)), r"truth.*two probabilities.*nan"),
    ("lake truth shape", lambda: LAKE.trials(n=5, truth=0.3), r"truth.*two probabilities.*0.3"),
)
def test_logs_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


SEEN = np.zeros((2, 2, 2))


@table(
    ("beta nan", lambda: pr.Beta([[1.0, NAN]], [[0, 0]]), r"Beta prior.*nan at index \(0, 1\)"),
    ("beta infinite", lambda: pr.Beta([[1.0, INF]], [[0, 0]]), r"Beta prior.*inf at index \(0, 1\)"),
    ("beta negative", lambda: pr.Beta([[1.0, -2.0]], [[0, 0]]), r"Beta prior must be positive, got -2.0; 1 is"),
    ("beta zero", lambda: pr.Beta([[1.0, 0.0]], [[0, 0]]), r"Beta prior must be positive.*1 is the uniform"),
    ("beta shape", lambda: pr.Beta([1.0, 1.0], [0, 0]), r"\(D, 2\), got \(2,\)"),
    ("beta counts shape", lambda: pr.Beta([[1.0, 1.0]], np.zeros((2, 2))), r"\(D, 2\), got \(1, 2\) and \(2, 2\)"),
    ("beta counts negative", lambda: pr.Beta([[1.0, 1.0]], [[-1, 0]]), r"counts?.*-1"),
    ("beta counts nan", lambda: pr.Beta([[1.0, 1.0]], [[NAN, 0]]), r"counts?.*nan"),
    ("beta counts None", lambda: pr.Beta([[1.0, 1.0]], None), r"None"),
    ("beta of nothing", lambda: pr.Beta.uniform(0), r"\b0\b"),
    ("beta of minus one", lambda: pr.Beta.uniform(-1), r"-1"),
    ("beta of a fraction", lambda: pr.Beta.uniform(1.5), r"1\.5"),
    ("beta wrong log", lambda: COIN.update(log([(0, 0, 1)])), r"Trials, got Transitions"),
    ("beta long log", lambda: COIN.update(pr.Trials([[1, 2], [3, 4]])), r"log has 2 coordinates, the posterior 1"),
    (
        "beta no data",
        lambda: pr.Beta.uniform(2).update(pr.Trials([[1, 1], [0, 0]])).maximum_likelihood(),
        r"no trial of coordinate 1.*mean\(\)",
    ),
    (
        "dirichlet nan",
        lambda: pr.Dirichlet(DENSE, spoilt(HALF, (1, 0, 1), NAN), SEEN),
        r"Dirichlet prior.*nan at index \(1, 0, 1\)",
    ),
    ("dirichlet infinite", lambda: pr.Dirichlet.symmetric(DENSE, INF), r"Dirichlet (prior|weight).*inf"),
    ("dirichlet infinite ragged", lambda: pr.Dirichlet.symmetric(RAGGED, INF), r"Dirichlet (prior|weight).*inf"),
    ("dirichlet negative", lambda: pr.Dirichlet(DENSE, -HALF, SEEN), r"Dirichlet prior must be positive, got -0.5"),
    ("dirichlet weight", lambda: pr.Dirichlet.symmetric(DENSE, 0.0), r"weight must be > 0, got 0.0; 1 is"),
    ("dirichlet weight nan", lambda: pr.Dirichlet.symmetric(DENSE, NAN), r"weight must be > 0, got nan"),
    ("dirichlet weight a word", lambda: pr.Dirichlet.symmetric(DENSE, "flat"), r"weight must be > 0.*flat"),
    ("dirichlet shape", lambda: pr.Dirichlet(DENSE, HALF[:1], SEEN), r"\(2, 2, 2\), got \(1, 2, 2\)"),
    ("dirichlet counts shape", lambda: pr.Dirichlet(DENSE, HALF, SEEN[:1]), r"\(2, 2, 2\).*\(1, 2, 2\)"),
    ("dirichlet counts negative", lambda: pr.Dirichlet(DENSE, HALF, spoilt(SEEN, (1, 0, 1), -3)), r"counts?.*-3"),
    ("dirichlet counts nan", lambda: pr.Dirichlet(DENSE, HALF, spoilt(SEEN, (1, 0, 1), NAN)), r"counts?.*nan"),
    ("dirichlet empty row", lambda: pr.Dirichlet(DENSE, spoilt(HALF, (1, 0), 0.0), SEEN), r"state 1, action 0; give"),
    ("dirichlet on padding", lambda: pr.Dirichlet(RAGGED, HALF, SEEN), r"padding|state 0, action 1"),
    (
        "dirichlet repeats",
        lambda: pr.Dirichlet.symmetric(pr.Support.lists([[[0, 1]], [[1, 1]]])),
        r"state 1, action 0 lists a successor twice",
    ),
    ("dirichlet wrong log", lambda: DIRICHLET.update(pr.Trials([[1, 2]])), r"Transitions, got Trials"),
    ("dirichlet other sizes", lambda: DIRICHLET.update(log([(0, 0, 1)], states=3)), r"3 states and 2 actions.*2 and 2"),
    (
        "dirichlet off support",
        lambda: pr.Dirichlet.symmetric(RAGGED).update(log([(0, 0, 1), (1, 0, 0)])),
        r"row 1 .*state 1 by action 0 to state 0.*add it to the support",
    ),
    ("dirichlet no data", lambda: DIRICHLET.maximum_likelihood(), r"4 .*no data.*state 0, action 0.*mean\(\)"),
    ("dirichlet stand-in shape", lambda: DIRICHLET.maximum_likelihood(unseen=np.ones(5)), r"unseen.*\(5,\)"),
    ("dirichlet stand-in number", lambda: DIRICHLET.maximum_likelihood(unseen=0.3), r"unseen.*\(\)"),
    ("point nan", lambda: pr.Point([0.3, NAN]), r"theta.*nan at index \(1,\)"),
    ("point infinite", lambda: pr.Point(INF), r"theta.*inf"),
    ("point None", lambda: pr.Point(None), r"None"),
    ("point a word", lambda: pr.Point("truth"), r"truth"),
    *(
        (f"number of draws {n!r}", lambda n=n: COIN.sample(0, n), r"number of draws.*>= 1, got")
        for n in (0, -1, 2.0, True, None)
    ),
)
def test_posteriors_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("negative", lambda: COIN.sample(-1, 3), r"seed.*>= 0.*got -1"),
    ("fraction", lambda: COIN.sample(0.5, 3), r"seed.*got 0.5"),
    ("True", lambda: COIN.sample(True, 3), r"seed.*got True"),
    ("None", lambda: COIN.sample(None, 3), r"seed.*got None"),
    (
        "array of JAX's",
        lambda: COIN.sample(jnp.array([0, 1], dtype=jnp.uint32), 3),
        r"seed must be a whole number.*Array",
    ),
    ("NumPy array", lambda: COIN.sample(np.array([0, 1]), 3), r"seed must be a whole number.*ndarray"),
    ("key of JAX's", lambda: COIN.sample(jax.random.key(0), 3), r"seed must be a whole number.*key<"),
    ("too large", lambda: COIN.sample(2**70, 3), r"seed.*\d"),
    ("solve", lambda: pr.solve(STAY, COIN, solver=SMALL, seed=-1), r"seed.*>= 0.*got -1"),
    ("solve_many", lambda: pr.solve_many(STAY, [COIN], [pr.CVaR(0.9)], solver=SMALL, seed=0.5), r"seed.*got 0.5"),
    ("evaluate", lambda: pr.evaluate(UNIFORM, STAY, COIN, seed=-1), r"seed.*>= 0.*got -1"),
    ("trials", lambda: LAKE.trials(n=5, truth=(0.3, 0.02), seed=-1), r"seed.*>= 0.*got -1"),
)
def test_seeds_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("nan", lambda: pr.TabularPolicy(spoilt(UNIFORM, (1, 0), NAN)), r"policy.*nan at index \(1, 0\)"),
    ("infinite", lambda: pr.TabularPolicy(spoilt(UNIFORM, (1, 0), INF)), r"policy.*inf at index \(1, 0\)"),
    ("negative", lambda: pr.TabularPolicy([[0.5, 0.5], [1.5, -0.5]]), r"policy.*negative.*-0.5 at state 1, entry 1"),
    ("off 1", lambda: pr.TabularPolicy([[0.5, 0.5], [0.5, 0.5 + 2e-8]]), r"policy must sum to 1.*state 1"),
    ("one axis", lambda: pr.TabularPolicy([0.5, 0.5]), r"\[state, action\], got shape \(2,\)"),
    ("no action", lambda: pr.TabularPolicy(np.zeros((2, 0))), r"sum|shape"),
    ("ragged", lambda: pr.TabularPolicy([[0.5, 0.5], [1.0]]), r"array of numbers"),
    ("a word", lambda: pr.TabularPolicy("up"), r"\[state, action\]|up"),
    ("unknown action", lambda: pr.TabularPolicy.deterministic([0, 7], 2), r"action 7 at row 1 is unknown"),
    ("negative action", lambda: pr.TabularPolicy.deterministic([0, -1], 2), r"action -1 at row 1 is negative"),
    ("fractional action", lambda: pr.TabularPolicy.deterministic([0, 0.5], 2), r"action 0.5 at row 1 is not a whole"),
    ("occupancy shape", lambda: pr.occupancy(MDP, ANYWHERE), r"policy has shape \(4, 4\).*\(2, 2\)"),
    ("occupancy off 1", lambda: pr.occupancy(MDP, 0.9 * UNIFORM), r"policy must sum to 1.*state 0"),
    ("evaluate shape", lambda: pr.evaluate(UNIFORM, LAKE, LAKE.prior), r"policy has shape \(2, 2\).*\(4, 4\)"),
    ("loss_at shape", lambda: pr.loss_at(UNIFORM, LAKE, (0.3, 0.02)), r"policy has shape \(2, 2\).*\(4, 4\)"),
    ("one of several", lambda: pr.loss_at([ANYWHERE, UNIFORM], LAKE, (0.3, 0.02)), r"policy has shape \(2, 2\)"),
    ("none of several", lambda: pr.loss_at([], LAKE, (0.3, 0.02)), r"polic"),
    ("drawn shape", lambda: LAKE.draw(UNIFORM), r"policy has shape \(2, 2\).*\(4, 4\)"),
    ("box upside down", lambda: pr.Box(1.0, -1.0), r"Box high must lie in \(1.0, inf\], got -1.0"),
    ("box nan", lambda: pr.Box(NAN, 1.0), r"Box low must lie in"),
    ("ball of nothing", lambda: pr.Ball(0.0), r"radius must lie in \(0, inf\], got 0.0"),
    ("ball nan", lambda: pr.Ball(NAN), r"radius must lie in .* got nan"),
)
def test_policies_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    *(
        (f"level {level}", lambda level=level: pr.CVaR(level), r"level.*\[0, 1\), got.*WorstCase")
        for level in (1.0, -0.1, NAN, 1.5, INF)
    ),
    ("level None", lambda: pr.CVaR(None), r"level|None"),
    ("level a word", lambda: pr.CVaR("0.9"), r"level|0\.9"),
    ("several levels at once", lambda: pr.CVaR([0.1, 0.5])([1.0, 2.0]), r"level"),
    ("several levels, other size", lambda: pr.CVaR([0.1, 0.5])([1.0, 2.0, 3.0]), r"level"),
    ("loss nan", lambda: pr.CVaR(0.9)([1.0, NAN]), r"loss.*nan at index \(1,\)"),
    ("loss infinite", lambda: pr.Expectation()([1.0, INF]), r"loss.*inf at index \(1,\)"),
    ("JAX loss nan", lambda: pr.WorstCase()(jnp.array([1.0, NAN])), r"loss.*nan at index \(1,\)"),
    ("no loss", lambda: pr.CVaR(0.9)([]), r"at least one loss, got shape \(0,\)"),
    ("one number", lambda: pr.CVaR(0.9)(1.0), r"at least one loss, got shape \(\)"),
    ("a table", lambda: pr.CVaR(0.9)(UNIFORM), r"at least one loss, got shape \(2, 2\)"),
    ("None", lambda: pr.CVaR(0.9)(None), r"loss|None"),
    ("weights too few", lambda: pr.CVaR(0.9)([1.0, 2.0], [1.0]), r"2 losses need as many weights, got shape \(1,\)"),
    ("weights negative", lambda: pr.CVaR(0.9)([1.0, 2.0], [1.5, -0.5]), r"weights.*negative.*-0.5.*entry 1"),
    ("weights off 1", lambda: pr.CVaR(0.9)([1.0, 2.0], [0.5, 0.5 + 2e-8]), r"weights must sum to 1"),
    ("weights nan", lambda: pr.CVaR(0.9)([1.0, 2.0], [0.5, NAN]), r"weight.*nan at index \(1,\)"),
    ("error of nan", lambda: pr.CVaR(0.9).standard_error([1.0, NAN]), r"loss.*nan at index \(1,\)"),
)
def test_risks_and_samples_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("samples 0", lambda: pr.BRPG(samples=0), r"samples.*>= 1, got 0"),
    ("samples fractional", lambda: pr.BRPG(samples=2.5), r"samples.*whole number >= 1, got 2.5"),
    ("samples True", lambda: pr.BRPG(samples=True), r"samples.*>= 1, got True"),
    ("iterations negative", lambda: pr.BRPG(iterations=-1), r"iterations.*>= 0, got -1"),
    ("evaluation 0", lambda: pr.BRPG(evaluation=0), r"evaluation.*>= 1, got 0"),
    *(
        (f"step {step}", lambda step=step: pr.BRPG(step=step), r"step.*> 0 or an optax.*got")
        for step in (0, 0.0, -1.0, NAN, INF, None, "long")
    ),
    ("tolerance negative", lambda: pr.BRPG(tolerance=-1e-3), r"tolerance.*\[0, inf\), got -0.001"),
    ("tolerance nan", lambda: pr.BRPG(tolerance=NAN), r"tolerance.*\[0, inf\), got nan"),
    ("tolerance a word", lambda: pr.BRPG(tolerance="small"), r"small"),
    ("held out samples", lambda: pr.BestHeldOut(samples=0), r"samples must be a whole number >= 1, got 0"),
    ("held out fraction", lambda: pr.BestHeldOut(samples=2.5), r"2\.5"),
    ("held out every", lambda: pr.BestHeldOut(every=0), r"every must be a whole number >= 1, got 0"),
    ("horizon negative", lambda: pr.Truncated(horizon=-1), r"horizon.*>= 0, got -1"),
    ("horizon fractional", lambda: pr.Truncated(horizon=2.5), r"horizon.*whole number.*got 2.5"),
    ("horizon True", lambda: pr.Truncated(horizon=True), r"horizon.*got True"),
    ("horizon None", lambda: pr.Truncated(horizon=None), r"horizon.*got None"),
)
def test_settings_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


# ---------------------------------------------------------------- the edge of what is allowed

SLIGHTLY_OFF = np.array([0.5, 0.5 + 5e-9])


@pytest.mark.parametrize(
    "call",
    [
        lambda: pr.Kernel.dense(np.broadcast_to(SLIGHTLY_OFF, (2, 2, 2))),
        lambda: mdp(start=SLIGHTLY_OFF),
        lambda: pr.TabularPolicy([SLIGHTLY_OFF]),
        lambda: pr.CVaR(0.5)([1.0, 2.0], SLIGHTLY_OFF),
        lambda: mdp(discount=0.0),
        lambda: mdp(discount=1.0 - 2.0**-53),
        lambda: mdp(start=np.int64(1)),
        lambda: pr.CVaR(0.0),
        lambda: pr.CVaR(1.0 - 2.0**-53),
        lambda: pr.Truncated(horizon=0),
        lambda: pr.BRPG(samples=1, iterations=0, tolerance=0.0, evaluation=1),
        lambda: pr.Trials([[0, 0]]),
        lambda: log([(0.0, 0.0, 1.0)], count=[0]),
        lambda: pr.Support.lists([[[0, 0]]]),
        lambda: pr.envs.frozen_lake("SG"),
        lambda: COIN.sample(np.int64(3), np.int64(2)),
    ],
    ids=[
        "kernel row off by 5e-9",
        "start off by 5e-9",
        "policy row off by 5e-9",
        "weights off by 5e-9",
        "no discount",
        "discount just below 1",
        "start a NumPy number",
        "level 0",
        "level just below 1",
        "horizon 0",
        "least settings",
        "no trial",
        "whole numbers as floats",
        "a successor listed twice",
        "smallest map",
        "NumPy seed and number",
    ],
)
def test_the_edge_of_what_is_allowed_is_accepted(call):
    call()


def test_the_one_exception_is_a_value_error():
    assert issubclass(pr.InputError, ValueError)


def test_more_calls_that_used_to_fail_without_a_word():
    lake = pr.envs.frozen_lake("SF\nHG")
    calls = {
        "lists of one length": lambda: pr.Transitions([0], [0, 1], [1], [1], 2, 2),
        "beliefs must be a list": lambda: pr.solve_many(lake, lake.prior, [pr.CVaR(0.5)]),
        "risks must be a list": lambda: pr.solve_many(lake, [lake.prior], pr.CVaR(0.5)),
        r"one number in \[0, inf\)": lambda: pr.BRPG(tolerance=[1, 2]),
        "support must be a Support": lambda: pr.TabularFamily("x", [[1.0]], 0, 0.5),
        "support must be": lambda: pr.Dirichlet.symmetric("x"),
        "discount": lambda: pr.identity_minus(pr.Kernel.dense([[[1.0]]]), [[1.0]], 2.0),
        "samples must be a whole": lambda: pr.BestHeldOut(samples=True),
        "step must be": lambda: pr.BRPG(step=True),
        "is NaN at|is nan at": lambda: pr.solve(
            lake, lake.prior, loss=lambda o, m: (o * jnp.log(o)).sum(), occupancy=pr.Truncated(0)
        ),
    }
    for message, call in calls.items():
        with pytest.raises(pr.InputError, match=message):
            call()
    assert pr.pull(pr.Kernel.dense([[[1.0]]]), [2.0]).tolist() == [[2.0]]
