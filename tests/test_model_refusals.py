"""Bad kernels, models, families and maps are refused: each message says what was received, where, and the fix."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

from .sound_parts import (
    ANYWHERE,
    COIN,
    COST,
    DENSE,
    HALF,
    INF,
    KERNEL,
    LAKE,
    MDP,
    NAN,
    RAGGED,
    STAY,
    TABULAR,
    UNIFORM,
    family,
    mdp,
    move,
    spoilt,
    table,
)


@table(
    ("nan", lambda: pr.Kernel.dense(spoilt(HALF, (1, 0, 1), NAN)), r"transition prob.*nan at index \(1, 0, 1\)"),
    ("infinite", lambda: pr.Kernel.dense(spoilt(HALF, (0, 1, 1), INF)), r"transition prob.*inf at index \(0, 1, 1\)"),
    ("negative", lambda: pr.Kernel.dense(spoilt(HALF, (1, 0), (1.5, -0.5))), r"negative.*-0.5.*state 1, action 0"),
    ("row off 1", lambda: pr.Kernel.dense(spoilt(HALF, (0, 1, 0), 0.5 + 2e-8)), r"sum to 1.*state 0, action 1.*divide"),
    ("counts", lambda: pr.Kernel.dense(4 * HALF), r"sums to 4.0 at state 0, action 0; divide by the sum"),
    ("not three axes", lambda: pr.Kernel.dense(UNIFORM), r"\[state, action, next_state\].*\(2, 2\)"),
    ("not square", lambda: pr.Kernel.dense(np.full((2, 2, 4), 0.25)), r"\[state, action, next_state\].*\(2, 2, 4\)"),
    ("no state", lambda: pr.Kernel.dense(np.zeros((0, 1, 0))), r"at least one state"),
    ("ragged table", lambda: pr.Kernel.dense([[[0.5, 0.5], [1.0]]]), r"array of numbers"),
    ("words", lambda: pr.Kernel.dense([[["all"]]]), r"array of numbers.*all"),
    ("None", lambda: pr.Kernel(DENSE, None), r"None"),
    ("a word", lambda: pr.Kernel(DENSE, "half"), r"half"),
    ("shape of another support", lambda: pr.Kernel(DENSE, HALF[:1]), r"\(1, 2, 2\).*\(2, 2, 2\).*\[state, action"),
    ("support not made", lambda: pr.Kernel([[[0, 1]]], [[[0.5, 0.5]]]), r"[Ss]upport"),
    ("on padding", lambda: pr.Kernel(RAGGED, HALF), r"padding"),
)
def test_kernels_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("no successor", lambda: pr.Support.lists([[[0], []], [[1], [0]]]), r"state 0, action 1 lists no successor"),
    ("no successor at all", lambda: pr.Support.lists([[[]], [[]]]), r"\[state, action, successor\].*\(2, 1, 0\)"),
    ("no action", lambda: pr.Support.lists([[], []]), r"\[state, action, successor\].*\(2, 0\)"),
    ("nothing", lambda: pr.Support.lists([]), r"\[state, action, successor\].*\(0,\)"),
    ("None", lambda: pr.Support.lists(None), r"\[state, action, successor\]|None"),
    ("ragged actions", lambda: pr.Support.lists([[[0, 1]], [[1], [0]]]), r"same number of actions, got \[1, 2\]"),
    ("unknown", lambda: pr.Support.lists([[[0, 5]], [[0, 1]]]), r"successor 5 at index \(0, 0, 1\) is unknown.*0 to 1"),
    ("unknown in ragged", lambda: pr.Support.lists([[[0]], [[0, 5]]]), r"successor 5.* \(1, 0, 1\) is unknown"),
    ("negative", lambda: pr.Support.lists([[[0, -1]], [[1]]]), r"successor -1.* \(0, 0, 1\) is negative"),
    ("fractional", lambda: pr.Support.lists([[[0, 0.5]], [[1, 0]]]), r"0.5 at index \(0, 0, 1\) is not a whole"),
    ("nan", lambda: pr.Support.lists([[[0, NAN]], [[1, 0]]]), r"nan at index \(0, 0, 1\) is not a number"),
    ("words", lambda: pr.Support.lists([[["home"]]]), r"successor.*home"),
    ("words in ragged", lambda: pr.Support.lists([[["home"], [0, 1]]]), r"home"),
    ("numbers for lists", lambda: pr.Support.lists([[0, 1], [[1], 2]]), r"state 0, action 0|list"),
    ("states differ", lambda: pr.Support.lists([[[0]], [[1]]], states=3), r"2 states but states=3"),
    ("no state", lambda: pr.Support.dense(0, 1), r"at least one state.*0 and 1"),
    ("fractional size", lambda: pr.Support.dense(2.5, 1), r"2\.5"),
    ("a word for a size", lambda: pr.Support.dense("two", 1), r"two"),
)
def test_supports_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("cost nan", lambda: mdp(cost=spoilt(COST, (1, 0), NAN)), r"cost.*nan at index \(1, 0\)"),
    ("cost infinite", lambda: mdp(cost=spoilt(COST, (0, 1), -INF)), r"cost.*-inf at index \(0, 1\)"),
    ("cost shape", lambda: mdp(cost=np.ones((2, 3))), r"cost.*\[state, action\].*\(2, 2\), got \(2, 3\)"),
    ("cost one number", lambda: mdp(cost=1.0), r"cost.*\(2, 2\), got \(\)"),
    ("cost words", lambda: mdp(cost=[["a", "b"], ["c", "d"]]), r"array of numbers"),
    ("cost complex", lambda: mdp(cost=1j * COST), r"number"),
    ("cost None", lambda: mdp(cost=None), r"None"),
    ("start nan", lambda: mdp(start=[NAN, 1.0]), r"start.*nan at index \(0,\)"),
    ("start infinite", lambda: mdp(start=[0.0, INF]), r"start.*inf at index \(1,\)"),
    ("start negative", lambda: mdp(start=[1.5, -0.5]), r"start.*negative.*-0.5.*entry 1"),
    ("start off 1", lambda: mdp(start=[0.5, 0.5 + 2e-8]), r"start.*sum to 1"),
    ("start shape", lambda: mdp(start=[0.5, 0.25, 0.25]), r"start.*2 states, got shape \(3,\)"),
    ("start unknown", lambda: mdp(start=2), r"start state 2 is unknown.*0 to 1"),
    ("start negative state", lambda: mdp(start=-1), r"start state -1 is unknown.*0 to 1"),
    ("start fractional", lambda: mdp(start=0.5), r"start must be a state number or a distribution"),
    ("start None", lambda: mdp(start=None), r"start"),
    ("kernel a table", lambda: mdp(kernel=HALF), r"[Kk]ernel"),
    *(
        (f"discount {value}", lambda value=value: mdp(discount=value), r"discount.*\[0, 1\), got")
        for value in (1.0, -0.1, NAN, 1.5, INF, [0.9, 0.9])
    ),
    ("discount None", lambda: mdp(discount=None), r"discount.*None"),
    ("discount a word", lambda: mdp(discount="0.9"), r"discount.*0\.9"),
    ("replaced discount", lambda: dataclasses.replace(MDP, discount=1.0), r"discount.*\[0, 1\), got 1.0"),
    ("replaced cost", lambda: dataclasses.replace(MDP, cost=[[1.0, 1.0]]), r"cost.*\(2, 2\), got \(1, 2\)"),
)
def test_models_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("theta nan", lambda: LAKE.at([0.3, NAN]), r"theta.*nan at index \(1,\)"),
    ("theta infinite", lambda: TABULAR.at(spoilt(HALF, (0, 0, 1), INF)), r"theta.*inf at index \(0, 0, 1\)"),
    ("theta no chance", lambda: LAKE.at([1.5, 0.1]), r"negative.*state 0, action 0"),
    ("theta too short", lambda: LAKE.at([0.3]), r"\(1,\)|theta.*2|two"),
    ("theta too long", lambda: LAKE.at([0.3, 0.02, 0.5]), r"\(3,\)|theta.*2|two"),
    ("theta one number", lambda: LAKE.at(0.3), r"\(\)|theta.*2|two"),
    ("theta None", lambda: LAKE.at(None), r"None"),
    ("table too small", lambda: TABULAR.at([[[0.5, 0.5]]]), r"\(1, 1, 2\).*\(2, 2, 2\)"),
    ("table off 1", lambda: TABULAR.at(0.9 * HALF), r"sum to 1.*state 0, action 0"),
    ("probability shape", lambda: family(probability=lambda theta: theta).at([0.5]), r"\(1,\), expected \(2, 2, 2\)"),
    (
        "probability off 1",
        lambda: family(probability=lambda theta: 0.9 * move(theta)).at([0.5]),
        r"sum to 1.*state 0, action 0",
    ),
    (
        "probability nan",
        lambda: family(probability=lambda theta: move(theta) / 0.0).at([0.5]),
        r"prob.*index \(0, 0, 0",
    ),
    ("probability array shape", lambda: family(probability=HALF[:1]), r"\(1, 2, 2\).*\(2, 2, 2\)"),
    ("probability array off 1", lambda: family(probability=0.9 * HALF), r"sum to 1.*state 0, action 0"),
    ("probability None", lambda: family(probability=None), r"None|probability"),
    ("cost nan", lambda: family(cost=spoilt(COST, (1, 0), NAN)), r"cost.*nan at index \(1, 0\)"),
    (
        "cost function nan",
        lambda: family(cost=lambda theta: COST * jnp.log(-theta[0])).at([0.5]),
        r"cost.*nan at index",
    ),
    ("cost shape", lambda: family(cost=[1.0, 1.0]), r"cost must have shape \(2, 2\).*got \(2,\)"),
    ("cost function shape", lambda: family(cost=lambda theta: theta).at([0.5]), r"cost must have shape.*got \(1,\)"),
    ("cost None", lambda: family(cost=None), r"None|cost"),
    ("start", lambda: family(start=2), r"start state 2 is unknown"),
    ("discount", lambda: family(discount=1.0), r"discount.*\[0, 1\), got 1.0"),
    ("support not made", lambda: family(support=[[[0, 1]]]), r"[Ss]upport"),
    ("tabular cost nan", lambda: pr.TabularFamily(DENSE, NAN * COST, 0, 0.9), r"cost.*nan at index \(0, 0\)"),
    ("tabular cost shape", lambda: pr.TabularFamily(DENSE, COST[:1], 0, 0.9), r"cost must have shape.*got \(1, 2\)"),
    ("tabular cost a word", lambda: pr.TabularFamily(DENSE, "dear", 0, 0.9), r"dear"),
    ("tabular discount", lambda: pr.TabularFamily(DENSE, COST, 0, -0.1), r"discount.*\[0, 1\), got -0.1"),
    ("tabular start", lambda: pr.TabularFamily(DENSE, COST, [0.5, 0.6], 0.9), r"start.*sum to 1"),
)
def test_families_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


@table(
    ("ragged", lambda: pr.envs.frozen_lake("SFF\nFG"), r"row 1 of the map has 2 tiles, row 0 has 3"),
    (
        "unknown tile",
        lambda: pr.envs.frozen_lake("SFF\nFXG"),
        r"unknown tile 'X' at row 1, column 1; use S, F, H and G",
    ),
    ("small letter", lambda: pr.envs.frozen_lake("sF\nFG"), r"unknown tile 's' at row 0, column 0"),
    ("no goal", lambda: pr.envs.frozen_lake("SF\nFF"), r"one S and at least one G, got 1 and 0"),
    ("no start", lambda: pr.envs.frozen_lake("FF\nFG"), r"one S and at least one G, got 0 and 1"),
    ("two starts", lambda: pr.envs.frozen_lake("SS\nFG"), r"one S and at least one G, got 2 and 1"),
    ("empty", lambda: pr.envs.frozen_lake(" \n "), r"map is empty"),
    ("a list of rows", lambda: pr.envs.frozen_lake(["SF", "FG"]), r"map|lines?|text"),
    ("discount", lambda: pr.envs.frozen_lake("SG", discount=1.0), r"discount.*\[0, 1\), got 1.0"),
)
def test_maps_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()


LISTS = pr.Kernel(pr.Support.lists([[[0, 1]], [[1, 0]]]), [[[0.5, 0.5]], [[0.5, 0.5]]])


@table(
    ("pull too short", lambda: pr.pull(KERNEL, np.zeros(1)), r"\(1,\)"),
    ("pull too long", lambda: pr.pull(KERNEL, np.zeros(3)), r"\(3,\)"),
    ("pull on lists too short", lambda: pr.pull(LISTS, np.zeros(1)), r"\(1,\)"),
    ("pull on lists too short in JAX", lambda: pr.pull(LISTS, jnp.zeros(1)), r"\(1,\)"),
    ("pull on lists too long", lambda: pr.pull(LISTS, np.zeros(3)), r"\(3,\)"),
    ("push", lambda: pr.push(KERNEL, np.ones((2, 1))), r"\(2, 1\)"),
    ("transition matrix", lambda: pr.transition_matrix(KERNEL, np.ones((2, 1))), r"\(2, 1\)"),
    ("identity minus", lambda: pr.identity_minus(KERNEL, np.ones((2, 1)), 0.9), r"\(2, 1\)"),
    ("occupancy method", lambda: pr.occupancy(MDP, UNIFORM, "exact"), r"exact"),
    ("occupancy of a family", lambda: pr.occupancy(LAKE, ANYWHERE), r"MDP|FrozenLake"),
    ("plan of a family", lambda: pr.plan(LAKE), r"MDP|FrozenLake"),
    ("evaluate an mdp", lambda: pr.evaluate(UNIFORM, MDP, COIN, samples=4), r"model must be a family.*got MDP"),
    ("evaluate no belief", lambda: pr.evaluate(UNIFORM, STAY, [0.5], samples=4), r"belief must be .*posterior"),
    ("evaluate no risk", lambda: pr.evaluate(UNIFORM, STAY, COIN, risk=0.9, samples=4), r"risk must be .*CVaR"),
    ("evaluate no draw", lambda: pr.evaluate(UNIFORM, STAY, COIN, samples=0), r"number of draws.*>= 1, got 0"),
    (
        "evaluate beyond chance",
        lambda: pr.evaluate(UNIFORM, STAY, pr.Point([1.5]), samples=4),
        r"negative.*state 0, action 0",
    ),
    (
        "evaluate another theta",
        lambda: pr.evaluate(ANYWHERE, LAKE, pr.Beta.uniform(1), samples=4),
        r"\(1,\)|theta.*2|two|belief",
    ),
    (
        "evaluate vector loss",
        lambda: pr.evaluate(UNIFORM, STAY, COIN, loss=lambda occupancy, mdp: occupancy, samples=4),
        r"loss must return one number",
    ),
    (
        "evaluate nan loss",
        lambda: pr.evaluate(UNIFORM, STAY, COIN, loss=lambda occupancy, mdp: NAN * occupancy.sum(), samples=4),
        r"loss is nan.*theta",
    ),
    ("loss_at nan", lambda: pr.loss_at(UNIFORM, STAY, [NAN]), r"theta.*nan at index \(0,\)"),
    ("loss_at beyond chance", lambda: pr.loss_at(UNIFORM, STAY, [1.5]), r"negative.*state 0, action 0"),
    ("loss_at another theta", lambda: pr.loss_at(ANYWHERE, LAKE, [0.3]), r"\(1,\)|theta.*2|two"),
)
def test_operations_are_refused(call, message):
    with pytest.raises(pr.InputError, match=message):
        call()
