"""Ready-made families of MDPs."""

from .coins import MachineReplacement, RiverSwim, machine_replacement, river_swim
from .frozen_lake import RECONSTRUCTED_MAP, FrozenLake, frozen_lake
from .inventory import Inventory, inventory
from .unknown_tables import GymnasiumProblem, TabularProblem, from_gymnasium, observed_support
