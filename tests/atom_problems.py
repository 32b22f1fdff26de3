"""Random problems whose posterior is a few atoms, with NumPy references that share no code with the library."""

import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

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

    def slopes(self, table):
        """`[R, S, A]` derivatives of the losses by one table: visits of a state times the value of each action."""
        states = self.kernels.shape[1]
        chains = np.eye(states) - self.discount * np.einsum("sa,rsat->rst", table, self.kernels)
        values = np.linalg.solve(chains, np.einsum("sa,rsa->rs", table, self.costs)[..., None])[..., 0]
        visits = np.linalg.solve(chains.transpose(0, 2, 1), np.eye(states)[:, :1])[..., 0]
        return visits[..., None] * (self.costs + self.discount * np.einsum("rsat,rt->rsa", self.kernels, values))

    def to_gain(self, table, radius=1.0):
        """What a change of the table by at most `radius` gains to first order, and the table that does.

        One linear program: `min t + sum p z / (1 - level)` with `z >= 0` and `z >= linearised loss - t`.
        """
        states, actions = table.shape
        atoms, cells = len(self.shares), table.size
        losses, slopes = self.losses(table[None])[0], self.slopes(table).reshape(atoms, cells)
        answer = linprog(
            np.concatenate([np.zeros(cells), [1.0], self.shares / (1.0 - self.level)]),
            A_ub=np.concatenate([slopes, -np.ones((atoms, 1)), -np.eye(atoms)], axis=1),
            b_ub=-losses,
            A_eq=sparse.hstack([sparse.kron(np.eye(states), np.ones(actions)), sparse.csr_matrix((states, 1 + atoms))]),
            b_eq=np.zeros(states),
            bounds=[
                *zip(np.maximum(-table, -radius).ravel(), np.minimum(1.0 - table, radius).ravel(), strict=True),
                (None, None),
                *[(0.0, None)] * atoms,
            ],
        )
        if answer.status != 0:
            # Within so small a radius the program's own tolerance is larger than what could be gained.
            assert radius < 1e-6, answer.message
            return 0.0, table
        moved = np.clip(table + answer.x[:cells].reshape(table.shape), 0.0, 1.0)
        here = float(tail_mean(losses, self.shares, self.level))
        return here - answer.fun, moved / moved.sum(axis=1, keepdims=True)


class DegenerateProblem(AtomProblem):
    """Integer costs, costs of one pair alone, deterministic kernels, actions that tie, atoms that cost nothing."""

    def __init__(self, seed):
        random = np.random.default_rng([1, seed])
        states, actions = [(2, 2), (4, 3)][int(random.integers(2))]
        atoms = int(random.integers(2, 13))
        shape = (atoms, states, actions)
        one, level = np.zeros(shape), float(random.choice([0.0, 0.1, 0.5, 0.9, 0.99, 0.999]))
        one[:, int(random.integers(states)), int(random.integers(actions))] = random.choice([0.0, 1.0, 5.0], size=atoms)
        few = random.choice([0.0, 0.0, 1.0, 5.0], size=shape)
        self.costs = [random.integers(0, 2, shape) * 5.0, few, one, random.uniform(size=shape)][int(random.integers(4))]
        if random.uniform() < 0.2:
            self.costs = self.costs * random.integers(0, 2, (atoms, 1, 1))
        jumps, noise = np.eye(states)[random.integers(0, states, shape)], random.dirichlet(np.full(states, 0.5), shape)
        self.kernels = [noise, jumps, jumps[:, :, :1]][int(random.integers(3))]
        if random.uniform() < 0.2:
            self.kernels = self.kernels[:1]
        self.kernels = np.broadcast_to(self.kernels, (*shape, states))
        uneven = random.dirichlet(np.ones(atoms)), random.dirichlet(np.full(atoms, 0.1)) + 1e-12
        shares = [np.ones(atoms), *uneven][int(random.integers(3))]
        self.shares = shares / shares.sum()
        self.discount, self.level = float(random.choice([0.5, 0.9, 0.95])), level
        self.family = family(states, actions, self.discount)


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


def best_found(problem, random):
    """The least risk known: an upper bound of the optimum by means that share nothing with the library's."""
    return min(value for _, value in searched(problem, random))


def is_unique(problem, table, near=1e-2):
    """Whether a table is the only optimum of its risk, curved enough to be known to 1e-6 if costs are known to 1e-10.

    No search ends elsewhere with the same risk, and around the table the risk rises by at least a ten-thousandth of the
    square of the distance, in units of how much policies differ.
    """
    random = np.random.default_rng(0)
    states, actions = table.shape
    unit = float(np.ptp(problem.risk(random.dirichlet(np.ones(actions), size=(100, states)))))
    value = float(problem.risk(table[None])[0])
    ends = searched(problem, random)
    tied = any(abs(found - value) <= 1e-7 * unit and np.abs(end - table).max() > near for end, found in ends)
    towards = random.dirichlet(np.full(actions, 0.2), size=(2000, states)) - table
    towards *= random.uniform(size=(2000, states, 1)) < 0.5
    lengths = np.abs(towards).max(axis=(1, 2), keepdims=True)
    far = lengths.ravel() > near
    rises = problem.risk(table + near * towards[far] / lengths[far]) - value
    return not tied and bool(rises.min() >= 1e-4 * near**2 * unit)


def searched(problem, random, rounds=60):
    """Where searches end and their risks: random steps from the best of many policies, then linear programs."""
    states, actions = problem.kernels.shape[1:3]
    pure = np.eye(actions)[np.indices((actions,) * states).reshape(states, -1).T]
    tables = np.concatenate([pure, random.dirichlet(np.ones(actions), size=(300, states))])
    order = np.argsort(problem.risk(tables))
    best = np.concatenate([tables[order[:10]], tables[random.choice(order[10:], 6)]])
    values, width = problem.risk(best), np.full(16, 0.3)
    for _ in range(rounds):
        towards = random.dirichlet(np.full(actions, 0.3), size=(16, states))
        chosen = random.uniform(size=(16, states, 1)) < 0.6
        trial = np.where(chosen, best + width[:, None, None] * (towards - best), best)
        found = problem.risk(trial)
        better = found < values
        best, values = np.where(better[:, None, None], trial, best), np.minimum(found, values)
        width = np.clip(np.where(better, 1.5 * width, 0.9 * width), 1e-7, 1.0)
    return [descended(problem, table) for table in best]


def descended(problem, table, steps=60):
    """Down from one table: the linearised problem within a trust region, solved and tried again and again."""
    value, radius = float(problem.risk(table[None])[0]), 1.0
    for _ in range(steps):
        gain, moved = problem.to_gain(table, radius)
        found = float(problem.risk(moved[None])[0])
        if gain <= 1e-6 * radius * value or radius < 1e-7:
            break
        if value - found > 0.1 * gain:
            table, value, radius = moved, found, min(2.0 * radius, 1.0)
        else:
            radius = 0.3 * min(radius, float(np.abs(moved - table).max()))
    return table, value
