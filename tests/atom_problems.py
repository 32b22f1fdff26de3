"""Random problems whose posterior is a few atoms, with NumPy references that share no code with the library."""

import jax.numpy as jnp
import numpy as np

import prudent as pr


class AtomProblem:
    """A family in which theta is the whole model, and a posterior of weighted atoms.

    Kernels are `[R, S, A, S]`, costs `[R, S, A]`. Sizes and discounts come from short lists, so that few functions
    are compiled.
    """

    def __init__(self, seed, states=4, actions=3, most=12):
        random = np.random.default_rng(seed)
        atoms = int(random.integers(2, most + 1))
        shape = (atoms, states, actions)
        self.kernels = random.dirichlet(np.full(states, 0.5), size=shape)
        common = np.broadcast_to(random.uniform(size=shape[1:]), shape)
        self.costs = random.uniform(size=shape) if random.uniform() < 0.5 else common
        self.shares = random.dirichlet(np.ones(atoms)) if random.uniform() < 0.5 else np.full(atoms, 1.0 / atoms)
        self.discount = float(random.choice([0.5, 0.9, 0.95]))
        self.level = float(random.choice([0.0, 0.5, 0.9, 0.99]))
        self.family = family(states, actions, self.discount)

    def belief(self, scale=1.0, shift=0.0):
        flat = [self.kernels.reshape(len(self.shares), -1), scale * self.costs.reshape(len(self.shares), -1) + shift]
        return pr.Draws(np.concatenate(flat, axis=1), weights=self.shares)

    def solve(self, **options):
        return pr.solve(self.family, self.belief(), risk=pr.CVaR(self.level), **options)

    def losses(self, tables):
        """`[K, R]` expected discounted costs from state 0, of tables `[K, S, A]`."""
        states = self.kernels.shape[1]
        chains = np.einsum("ksa,rsat->krst", tables, self.kernels)
        paid = np.einsum("ksa,rsa->krs", tables, self.costs)
        return np.linalg.solve(np.eye(states) - self.discount * chains, paid[..., None])[..., 0, 0]

    def risk(self, tables):
        """`[K]` CVaR of the losses, by sorting."""
        return tail_mean(self.losses(tables), self.shares, self.level)


_FAMILIES = {}


def family(states, actions, discount):
    """The family whose theta is kernel and costs, one of each size, so that compiled functions are shared."""
    name = (states, actions, discount)
    if name not in _FAMILIES:
        cells = states * actions * states
        _FAMILIES[name] = pr.Family(
            support=pr.Support.dense(states, actions),
            probability=lambda theta: theta[:cells].reshape(states, actions, states),
            cost=lambda theta: jnp.reshape(theta[cells:], (states, actions)),
            start=0,
            discount=discount,
        )
    return _FAMILIES[name]


def tail_mean(losses, shares, level):
    """The mean of the worst `1 - level` share of each row of weighted losses."""
    order = np.argsort(-losses, axis=-1)
    ordered, weights = np.take_along_axis(losses, order, axis=-1), shares[order]
    before = np.cumsum(weights, axis=-1) - weights
    counted = np.clip((1.0 - level) - before, 0.0, weights)
    return (counted * ordered).sum(axis=-1) / (1.0 - level)


def tables_on_grid(points):
    """All policies of two states and two actions on a grid of `points` probabilities in each state."""
    share = np.linspace(0.0, 1.0, points)
    first, second = (axis.ravel() for axis in np.meshgrid(share, share, indexing="ij"))
    rows = np.stack([first, second], axis=1)
    return np.stack([rows, 1.0 - rows], axis=2)


def best_found(problem, starts, random, rounds=4000):
    """The least risk that a plain random local search finds from the best of many policies: an upper bound."""
    states, actions = problem.kernels.shape[1:3]
    pure = np.eye(actions)[np.indices((actions,) * states).reshape(states, -1).T]
    tables = np.concatenate([pure, random.dirichlet(np.ones(actions), size=(starts, states))])
    values = problem.risk(tables)
    best = tables[np.argsort(values)[:16]]
    values, width = np.sort(values)[:16], np.full(16, 0.3)
    for _ in range(rounds // 16):
        towards = random.dirichlet(np.full(actions, 0.3), size=(16, states))
        chosen = random.uniform(size=(16, states, 1)) < 0.6
        trial = np.where(chosen, best + width[:, None, None] * (towards - best), best)
        found = problem.risk(trial)
        better = found < values
        best, values = np.where(better[:, None, None], trial, best), np.minimum(found, values)
        width = np.clip(np.where(better, 1.5 * width, 0.9 * width), 1e-7, 1.0)
    return float(values.min())
