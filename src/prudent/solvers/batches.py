"""Which jobs are worked on together."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def batches_of(jobs: list[tuple], fit: int) -> list[list[tuple]]:
    """Cut many jobs into equal batches of at most `fit`; one compiled function serves all.

    The last batch is filled up with repeats of its last job, whose answers are dropped, because a
    shorter batch would be compiled again.
    """
    number = -(-len(jobs) // fit)
    size = -(-len(jobs) // number)
    batches = [jobs[first : first + size] for first in range(0, len(jobs), size)]
    batches[-1] += batches[-1][-1:] * (size - len(batches[-1]))
    return batches


def alike(jobs: list[tuple]) -> list[list[tuple]]:
    """Jobs that can share one compiled call: their risks differ in numbers only, their beliefs have as many atoms."""
    groups: dict[Any, list[tuple]] = {}
    for job in jobs:
        leaves, structure = jax.tree.flatten(job[2].risk)
        atoms = job[2].belief.as_atoms()
        name = (structure, *(np.shape(leaf) for leaf in leaves), None if atoms is None else len(atoms))
        groups.setdefault(name, []).append(job)
    return list(groups.values())
