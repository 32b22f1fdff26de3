"""Models that can only be simulated: particles with common noise, policies of vectors; another kind at the seam."""

from .environments import EnvironmentFamily
from .family import AbstractSimulated, SimulatedFamily, SimulatedModel
from .objective import SimulatedObjective, SimulatedOccupancy
from .policies import Network, NetworkPolicy
