"""Which method suits a support."""

from __future__ import annotations

from typing import Any

from .banded import Banded
from .base import Method
from .elimination import Elimination
from .krylov import Krylov

# Up to here elimination by NumPy takes less time than the import of Numba.
TINY_STATES = 16

# Up to here a dense matrix is eliminated in Numba's loops; beyond it BLAS multiplies by it.
DENSE_STATES = 100

# Up to here, and where successors are no farther than this in some order of the states, elimination within the band
# takes less time than iterations; its work grows with the square of the band.
BANDED_STATES, WIDEST_BAND = 4096, 48


def choose_method(support: Any) -> Method:
    """Return the method that suits the size and the structure of a support."""
    if support.states <= TINY_STATES:
        return Elimination.of(support)
    if support.states <= (DENSE_STATES if support.is_dense else BANDED_STATES):
        banded = Banded.of(support)
        if support.states <= DENSE_STATES or banded.band <= WIDEST_BAND:
            return banded
    return Krylov.of(support)
