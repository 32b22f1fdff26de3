"""Ready-made families of MDPs."""

from .frozen_lake import RECONSTRUCTED_MAP, FrozenLake, frozen_lake
from .gymnasium_family import GymnasiumProblem, from_gymnasium, observed_support

__all__ = [
    "RECONSTRUCTED_MAP",
    "FrozenLake",
    "GymnasiumProblem",
    "from_gymnasium",
    "frozen_lake",
    "observed_support",
]
