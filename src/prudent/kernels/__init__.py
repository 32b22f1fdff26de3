"""Transition kernels as successor lists, and how mass and values move through them."""

from .kernel import Kernel, identity_minus, pull, pull_batch, push, transition_matrix
from .support import Graph, Support

__all__ = ["Graph", "Kernel", "Support", "identity_minus", "pull", "pull_batch", "push", "transition_matrix"]
