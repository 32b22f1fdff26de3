"""Ready-made families of MDPs."""

from .frozen_lake import RECONSTRUCTED_MAP, FrozenLake, frozen_lake
from .gymnasium_family import GymnasiumProblem, from_gymnasium, observed_support
from .inventory import Inventory, inventory
from .known import KNOWN, KnownEnvironment, known_environment
from .machine_replacement import MachineReplacement, machine_replacement
from .river_swim import RiverSwim, river_swim
from .tabular_problem import TabularProblem

__all__ = [
    "KNOWN",
    "RECONSTRUCTED_MAP",
    "FrozenLake",
    "GymnasiumProblem",
    "Inventory",
    "KnownEnvironment",
    "MachineReplacement",
    "RiverSwim",
    "TabularProblem",
    "from_gymnasium",
    "frozen_lake",
    "inventory",
    "known_environment",
    "machine_replacement",
    "observed_support",
    "river_swim",
]
