"""Random problems with limits, and references that share no code with the library."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

import prudent as pr

from .atom_problems import AtomProblem, tail_mean


class LimitedProblem(AtomProblem):
    """An `AtomProblem` with tables of other costs `[L, S, A]`, each with a level of CVaR and a limit."""

    def __init__(self, seed, limits=None, most=12, known=False, **sizes):
        super().__init__(seed, most=most, **sizes)
        random = np.random.default_rng([seed, 1])
        if known:
            self.kernels, self.costs, self.shares, self.level = self.kernels[:1], self.costs[:1], np.ones(1), 0.0
        count = int(random.integers(1, 4)) if limits is None else limits
        self.tables = random.uniform(size=(count, *self.costs.shape[1:]))
        self.levels = [0.0 if known else float(random.choice([0.0, 0.5, 0.9])) for _ in range(count)]
        # Between what the best policy without limits has and what a random one has, or below both.
        plain = pr.solve(self.family, self.belief(), risk=pr.CVaR(self.level), certify=False)
        free = self.limit_values(np.asarray(plain.policy.probabilities)[None])[0]
        others = self.limit_values(random.dirichlet(np.ones(self.costs.shape[2]), size=(50, self.costs.shape[1])))
        self.at_most = free + random.uniform(0.2, 0.9, size=count) * (np.quantile(others, 0.1, axis=0) - free)

    def subject_to(self, at_most=None):
        at_most = self.at_most if at_most is None else at_most
        return [
            pr.Limit(pr.CostTable(table), at_most=most, risk=pr.CVaR(level))
            for table, most, level in zip(self.tables, at_most, self.levels, strict=True)
        ]

    def solved(self, at_most=None, **options):
        return self.solve(subject_to=self.subject_to(at_most), **options)

    def limit_losses(self, tables):
        """`[L, K, R]`."""
        states = self.kernels.shape[1]
        chains = np.eye(states) - self.discount * np.einsum("ksa,rsat->krst", tables, self.kernels)
        visits = np.linalg.solve(np.swapaxes(chains, -1, -2), np.eye(states)[:, :1])[..., 0]
        return np.einsum("krs,ksa,lsa->lkr", visits, tables, self.tables)

    def limit_values(self, tables):
        """`[K, L]`."""
        found = self.limit_losses(tables)
        return np.stack([tail_mean(row, self.shares, level) for row, level in zip(found, self.levels, strict=True)], 1)


def occupancy_program(problem, at_most=None, objective=True):
    """The exact answer where theta is known: value and multipliers of the linear program in the occupancy, or None."""
    kernel, cost = problem.kernels[0], problem.costs[0]
    states, actions = cost.shape
    flow = np.repeat(np.eye(states), actions, axis=1) - problem.discount * kernel.reshape(-1, states).T
    at_most = problem.at_most if at_most is None else at_most
    answer = linprog(
        cost.ravel() if objective else np.zeros(cost.size),
        A_ub=problem.tables.reshape(len(problem.tables), -1),
        b_ub=at_most,
        A_eq=flow,
        b_eq=np.eye(states)[0],
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return None if answer.status != 0 else (answer.fun, -answer.ineqlin.marginals)


def told_program(problem, objective=True):
    """The least risk of one who is told which atom it is, with the limits: one program over all atoms' occupancies."""
    atoms, states, actions = problem.costs.shape
    cells, count = states * actions, len(problem.tables)
    levels = [problem.level, *problem.levels]
    costs = [problem.costs, *(np.broadcast_to(table, problem.costs.shape) for table in problem.tables)]
    groups = count + 1
    # Variables: occupancies of each atom, then for each loss its threshold and its excess at each atom, then a breach.
    width = atoms * cells + groups * (1 + atoms) + 1
    rows, right = [], []
    heads = []
    for g, (level, cost) in enumerate(zip(levels, costs, strict=True)):
        begin = atoms * cells + g * (1 + atoms)
        head = np.zeros(width)
        head[begin] = 1.0
        head[begin + 1 : begin + 1 + atoms] = problem.shares / (1.0 - level)
        heads.append(head)
        for r in range(atoms):
            row = np.zeros(width)
            row[r * cells : (r + 1) * cells] = cost[r].ravel()
            row[begin], row[begin + 1 + r] = -1.0, -1.0
            rows.append(row)
            right.append(0.0)
    for head, most in zip(heads[1:], problem.at_most, strict=True):
        rows.append(head - np.eye(width)[-1])
        right.append(most)
    flows = [
        np.repeat(np.eye(states), actions, axis=1) - problem.discount * kernel.reshape(-1, states).T
        for kernel in problem.kernels
    ]
    equal = np.concatenate([sparse.block_diag(flows).toarray(), np.zeros((atoms * states, width - atoms * cells))], 1)
    free = [(0.0, None)] * (atoms * cells) + ([(None, None)] + [(0.0, None)] * atoms) * groups
    answer = linprog(
        heads[0] if objective else np.eye(width)[-1],
        A_ub=np.array(rows),
        b_ub=right,
        A_eq=equal,
        b_eq=np.tile(np.eye(states)[0], atoms),
        bounds=[*free, (0.0, 0.0 if objective else None)],
    )
    return None if answer.status != 0 else float(answer.fun)


def by_brute_force(problem, points=None, zooms=12, kept=6):
    """The least risk of all policies of two actions that keep the limits, on grids around the best; inf for none.

    Where none on the first grid keeps them, grids close in on the least breach.
    """
    states = problem.costs.shape[1]
    points = {1: 4001, 2: 301, 3: 51}[states] if points is None else points
    centres, width = np.full((1, states), 0.5), 0.5
    best = np.inf
    for zoom in range(zooms):
        steps = np.linspace(-width, width, points if zoom == 0 else 9)
        moves = np.stack(np.meshgrid(*[steps] * states, indexing="ij"), -1).reshape(-1, states)
        shares = np.unique(np.clip(centres[:, None] + moves, 0.0, 1.0).reshape(-1, states).round(12), axis=0)
        tables = np.stack([shares, 1.0 - shares], axis=2)
        values = problem.risk(tables)
        breach = np.maximum(problem.limit_values(tables) - problem.at_most, 0.0).sum(axis=1)
        best = min(best, values[breach <= 0].min(initial=np.inf))
        # Near the edge of what keeps the limits the next grid may find better ones.
        score = values + 100.0 * breach
        inside = np.where(breach <= 0, values, np.inf)
        centres = shares[np.unique(np.concatenate([np.argsort(score)[:kept], np.argsort(inside)[:kept]]))]
        width = 2.0 * width / (points - 1) if zoom == 0 else width / 3.0
    return best
