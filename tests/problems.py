"""Random problems for tests, made by NumPy alone, and NumPy answers to compare with."""

from __future__ import annotations

import numpy as np

import prudent as pr


def random_kernel(random: np.random.Generator, states: int, actions: int, successors: int) -> pr.Kernel:
    """A kernel on successor lists with distinct successors in each list."""
    successor = np.argsort(random.random((states, actions, states)), axis=2)[:, :, :successors]
    probability = random.dirichlet(np.ones(successors), size=(states, actions))
    return pr.Kernel(pr.Support.lists(successor), probability)


def random_mdp(
    random: np.random.Generator, states: int, actions: int = 3, successors: int | None = None, discount: float = 0.9
) -> pr.MDP:
    kernel = random_kernel(random, states, actions, successors or states)
    return pr.MDP(kernel, random.uniform(size=(states, actions)), random.dirichlet(np.ones(states)), discount)


def random_policy(random: np.random.Generator, states: int, actions: int) -> np.ndarray:
    return random.dirichlet(np.ones(actions), size=states)


def densified(mdp: pr.MDP) -> pr.MDP:
    """The same MDP with a dense kernel."""
    return pr.MDP(pr.Kernel.dense(mdp.kernel.table()), mdp.cost, mdp.start, mdp.discount)


def numpy_occupancy(table: np.ndarray, policy: np.ndarray, start: np.ndarray, discount: float) -> np.ndarray:
    """The definition, solved by NumPy on the full table `[S, A, S]`."""
    chain = np.einsum("sa,sat->st", policy, table)
    visits = np.linalg.solve(np.eye(len(start)) - discount * chain.T, start)
    return visits[:, None] * policy


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
