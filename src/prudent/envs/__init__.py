"""Stage 14: ready-made families of MDPs."""

from .frozen_lake import RECONSTRUCTED_MAP, FrozenLake, frozen_lake

__all__ = ["RECONSTRUCTED_MAP", "FrozenLake", "frozen_lake"]
