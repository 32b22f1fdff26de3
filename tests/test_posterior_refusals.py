"""What the posteriors refuse: each message says what was received, where, and the fix."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

NAN, INF = float("nan"), float("inf")
LAKE = pr.envs.frozen_lake("SFF\nFHF\nFFG")
BETA = pr.Beta.uniform(2)
DENSE = pr.Support.dense(2, 2)
DIRICHLET = pr.Dirichlet.symmetric(DENSE)
RAGGED = pr.Support.lists([[[0, 1], [1]], [[1, 0], [0, 1]]])
HALF = np.full((2, 2, 2), 0.5)
LARGE = pr.Dirichlet.symmetric(pr.Support.lists(np.broadcast_to(np.arange(4), (100, 100, 4)).copy()))


def log(*records, states=9, count=None):
    return pr.Transitions.from_records(records, states=states, actions=4, count=count)


def grid(low=(0, 0), high=(1, 1), **settings):
    return pr.Grid(settings.pop("family", LAKE), low, high, cells=settings.pop("cells", 30), **settings)


def without_home(theta):
    return jnp.stack([theta[0] + 2.0, -theta[0] - 1.0]) * jnp.ones((2, 1, 1))


IMPROPER = pr.Family(pr.Support.lists([[[1, 0]], [[0, 1]]]), without_home, np.zeros((2, 1)), 0, 0.9)
FLAT = log((4, 1, 7), (4, 1, 4), count=[1, 2])

CASES = [
    ("likelihood family", lambda: pr.log_likelihood([0.5], [0.1, 0.1], FLAT), r"family must be"),
    ("likelihood log", lambda: pr.log_likelihood(LAKE, [0.1, 0.1], pr.Trials([[1, 2]])), r"log.*Transitions.*Trials"),
    ("likelihood sizes", lambda: pr.log_likelihood(LAKE, [0.1, 0.1], log((0, 0, 1), states=4)), r"4 states.*for 9"),
    (
        "likelihood impossible",
        lambda: pr.log_likelihood(LAKE, [0.1, 0.1], log((0, 0, 0), (0, 0, 0), (0, 1, 8), (0, 1, 7))),
        r"row 2 of the log goes from state 0 by action 1 to state 8, which the support does not allow; add it",
    ),
    ("likelihood theta", lambda: pr.log_likelihood(LAKE, [0.1], FLAT), r"two numbers; got shape \(1,\)"),
    (
        "likelihood table",
        lambda: pr.log_likelihood(
            pr.TabularFamily(DENSE, np.zeros((2, 2)), 0, 0.9),
            [0.5],
            pr.Transitions.from_records([(0, 0, 1)], states=2, actions=2),
        ),
        r"theta of shape \(1,\).*support has \(2, 2, 2\)",
    ),
    ("grid family", lambda: grid(family="lake"), r"family must be .*got 'lake'"),
    ("grid box", lambda: grid(low=0, high=1), r"low and high are lists.*\(\) and \(\)"),
    ("grid box lengths", lambda: grid(low=[0], high=[1, 1]), r"\(1,\) and \(2,\)"),
    ("grid of three", lambda: grid(low=[0, 0, 0], high=[1, 1, 1]), r"1 or 2 numbers, got a box of 3; use MCMC"),
    ("grid box nan", lambda: grid(low=[0, NAN]), r"low.*nan at index \(1,\)"),
    ("grid box reversed", lambda: grid(low=[0, 2]), r"low must be below high, got 2.0 and 1.0 for coordinate 1"),
    ("grid few cells", lambda: grid(cells=3), r"cells must be a whole number >= \d+, got 3"),
    ("grid theta", lambda: grid(low=[0], high=[1]), r"two numbers; got shape \(1,\)"),
    ("grid prior kind", lambda: grid(prior=0.5), r"prior must be a function theta -> log-density.*0\.5"),
    ("grid prior nan", lambda: grid(prior=lambda t: jnp.log(t[0] - 0.5)), r"log-density is nan at theta = \[0\.0"),
    ("grid prior infinite", lambda: grid(prior=lambda t: jnp.inf * t[0]), r"log-density is inf at theta"),
    ("grid prior shape", lambda: grid(prior=lambda t: t), r"one number, the log-density.*\(2,\)"),
    ("grid prior zero", lambda: grid(prior=lambda t: -jnp.inf * (1 + t[0])), r"0 at every cell.*move or widen"),
    ("grid no domain", lambda: grid([0], [1], family=IMPROPER), r"nowhere a proper model.*move or widen the box"),
    ("grid impossible", lambda: grid(log=log((0, 1, 8))), r"row 0 .*state 0 by action 1 to state 8"),
    ("grid update", lambda: grid().update(log((0, 0, 0), (0, 1, 8))), r"row 1 .*to state 8"),
    ("grid update kind", lambda: grid().update(pr.Trials([[1, 2]])), r"Transitions.*got Trials"),
    ("grid levels", lambda: grid().quantile([0.5, 1.5]), r"levels must lie in \[0, 1\], got \[0\.5, 1\.5\]"),
    ("grid no data", lambda: grid().maximum_likelihood(), r"no transition seen.*use mean\(\)"),
    ("grid flat", lambda: grid(log=FLAT).maximum_likelihood(), r"nothing of coordinate 0.*use mean\(\)"),
    ("draws none", lambda: pr.Draws(np.zeros((0, 2))), r"batch axis first, got shape \(0, 2\)"),
    ("draws a number", lambda: pr.Draws(0.5), r"batch axis first, got shape \(\)"),
    ("draws nan", lambda: pr.Draws([[0.1, NAN]]), r"thetas has a non-finite entry: nan at index \(0, 1\)"),
    ("draws words", lambda: pr.Draws("chain"), r"thetas: expected an array of numbers"),
    (
        "draws chains",
        lambda: pr.Draws(np.zeros((4, 10, 2)), weights=np.ones((4, 10))),
        r"shape \(4,\), one for each draw, got \(4, 10\); chains are flattened by thetas\.reshape",
    ),
    ("draws weights negative", lambda: pr.Draws([1.0, 2.0], [1, -1]), r">= 0 and not all 0, the smallest is -1"),
    ("draws weights zero", lambda: pr.Draws([1.0, 2.0], [0, 0]), r"not all 0.*log-weights"),
    ("draws weights nan", lambda: pr.Draws([1.0, 2.0], [1, NAN]), r"weights.*nan"),
    ("tied shape", lambda: pr.Dirichlet.symmetric(DENSE, tied=[0, 1]), r"shape \(2, 2\), got \(2,\)"),
    ("tied fraction", lambda: pr.Dirichlet.symmetric(DENSE, tied=[[0, 0.5], [1, 1]]), r"tied label 0\.5.*whole"),
    (
        "tied lengths",
        lambda: pr.Dirichlet.symmetric(RAGGED, tied=[[0, 1], [1, 2]]),
        r"state 0, action 1 and state 1, action 0 are tied but have different numbers of successors; make",
    ),
    (
        "tied priors",
        lambda: pr.Dirichlet(DENSE, HALF * [[[1], [2]]], 0 * HALF, [[0, 0], [1, 2]]),
        r"state 0, action 0 and state 0, action 1 are tied but have different priors",
    ),
    ("sobol kind", lambda: pr.Sobol([0.5]), r"posterior must be a posterior"),
    ("sobol draws", lambda: pr.Sobol(pr.Draws([0.1, 0.2])), r"Draws is not a function of uniform numbers.*use it as"),
    ("sobol point", lambda: pr.Sobol(pr.Point([0.1, 0.2])), r"Point is not a function of uniform"),
    ("sobol twice", lambda: pr.Sobol(pr.Sobol(BETA)), r"Sobol is not a function of uniform"),
    ("sobol rejection", lambda: pr.Sobol(pr.WithinBox(DIRICHLET, 0.1, 0.9)), r"rejection.*without Sobol"),
    ("sobol dimension", lambda: pr.Sobol(LARGE), r"dimension 21201,.*made of 30000 uniform numbers; use"),
    ("box kind", lambda: pr.WithinBox(0.5, 0, 1), r"posterior must be a posterior"),
    ("box reversed", lambda: pr.WithinBox(BETA, [0.1, 0.7], 0.5), r"below high, got 0\.7 and 0\.5 at index \(1,\)"),
    ("box nan", lambda: pr.WithinBox(BETA, NAN, 0.5), r"below high, got nan"),
    ("box shapes", lambda: pr.WithinBox(BETA, [0, 0, 0], [1, 1]), r"broadcast, got shapes \(3,\) and \(2,\)"),
    ("box shape", lambda: pr.WithinBox(BETA, [0, 0, 0], 1), r"\(3,\) and \(\), theta has \(2,\)"),
    ("box empty", lambda: pr.WithinBox(BETA, [0, 1.5], 2), r"none of the posterior's mass along coordinate 1; widen"),
    (
        "box off",
        lambda: pr.WithinBox(pr.Point([0.5]), 0.6, 0.7).sample(0, 2),
        r"only 0 of .*index \(0,\).*widen the box",
    ),
    ("box rare", lambda: pr.WithinBox(DIRICHLET, [0.9999, 0], 1).sample(0, 50), r"only 0\.\d+ of .*widen the box"),
    ("box draws", lambda: pr.WithinBox(DIRICHLET, [0, 0, 0], 1).sample(0, 2), r"\(3,\).*theta has \(2, 2, 2\)"),
    ("box mean", lambda: pr.WithinBox(DIRICHLET, 0, 1).mean(), r"no closed form; use posterior\.sample"),
    ("box update", lambda: pr.WithinBox(pr.Point([0.5]), 0, 1).update(FLAT), r"Point does not learn from a log"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_posteriors_refuse(call, message):
    with pytest.raises(pr.InputError, match=f"(?s){message}"):
        call()
