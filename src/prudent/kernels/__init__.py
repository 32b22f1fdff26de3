"""Transition kernels as successor lists, and how mass and values move through them."""

from .kernel import (
    LONGEST_UNROLLED,
    Kernel,
    identity_minus,
    on_graph,
    pull,
    pull_batch,
    push,
    sum_terms,
    transition_matrix,
    transition_matrix_batch,
)
from .support import Graph, Support, reached
