"""Which jobs are worked on together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..records import same_structure, tree_leaves


def batches_of(jobs: list[tuple], fit: int) -> list[list[tuple]]:
    """Cut many jobs into nearly equal batches of at most `fit`."""
    number = -(-len(jobs) // fit)
    size = -(-len(jobs) // number)
    return [jobs[first : first + size] for first in range(0, len(jobs), size)]


def alike(jobs: list[tuple]) -> list[list[tuple]]:
    """Jobs that can share one call: their risks differ in numbers only, their beliefs have as many atoms."""
    groups: list[tuple[Any, Any, list[tuple]]] = []
    for job in jobs:
        risk, atoms = job[2].risk, job[2].belief.as_atoms()
        sizes = (None if atoms is None else len(atoms), [np.shape(leaf) for leaf in tree_leaves(risk)])
        fitting = (group for own, theirs, group in groups if theirs == sizes and same_structure(own, risk))
        group = next(fitting, None)
        if group is None:
            groups.append((risk, sizes, [job]))
        else:
            group.append(job)
    return [group for _, _, group in groups]
