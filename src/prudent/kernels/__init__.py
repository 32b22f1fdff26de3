"""Transition kernels as successor lists, and how mass and values move through them."""

from .kernel import Kernel, identity_minus, pull, push, transition_matrix
from .support import Support, reached
