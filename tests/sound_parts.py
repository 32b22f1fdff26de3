"""Sound parts, small ones, which tables of refusals spoil one at a time."""

import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr

NAN, INF = np.nan, np.inf

DENSE = pr.Support.dense(2, 2)
RAGGED = pr.Support.lists([[[0, 1], [1]], [[1], [0, 1]]])
HALF = np.full((2, 2, 2), 0.5)
KERNEL = pr.Kernel.dense(HALF)
COST = np.ones((2, 2))
MDP = pr.MDP(KERNEL, COST, start=0, discount=0.9)
TABULAR = pr.TabularFamily(DENSE, COST, start=0, discount=0.9)
DIRICHLET = pr.Dirichlet.symmetric(DENSE)
UNIFORM = np.full((2, 2), 0.5)
LAKE = pr.envs.frozen_lake("SF\nHG")
ANYWHERE = np.full((4, 4), 0.25)
SMALL = pr.BRPG(samples=4, iterations=2, evaluation=4)


def spoilt(array, where, value):
    array = np.array(array, dtype=float)
    array[where] = value
    return array


def mdp(**changes):
    return pr.MDP(**({"kernel": KERNEL, "cost": COST, "start": 0, "discount": 0.9} | changes))


def log(records, **changes):
    return pr.Transitions.from_records(records, **({"states": 2, "actions": 2} | changes))


def move(theta):
    """Stay with probability theta, whatever is done."""
    stay = jnp.stack([jnp.stack([theta[0], 1 - theta[0]]), jnp.stack([1 - theta[0], theta[0]])])
    return jnp.broadcast_to(stay[:, None], (2, 2, 2))


def family(**changes):
    parts = {"support": DENSE, "probability": move, "cost": COST, "start": 0, "discount": 0.9}
    return pr.Family(**(parts | changes))


STAY = family()
COIN = pr.Beta.uniform(1)


def table(*entries):
    """Parameters of a test from entries (name, call, message)."""
    names = [name for name, *_ in entries]
    assert len(set(names)) == len(names), "two entries share a name"
    return pytest.mark.parametrize(("call", "message"), [entry[1:] for entry in entries], ids=names)
