"""Policies: what a user is given and deploys, and the parametrisations that solvers move in."""

from .files import policy_from as policy_from
from .files import read_policy_file as read_policy_file
from .files import write_policy_file as write_policy_file
from .networks import NeuralPolicy as NeuralPolicy
from .parametrisations import LOWEST_LOGIT as LOWEST_LOGIT
from .parametrisations import Direct as Direct
from .parametrisations import Neural as Neural
from .parametrisations import Parametric as Parametric
from .parametrisations import Parametrisation as Parametrisation
from .parametrisations import Softmax as Softmax
from .parametrisations import action_tables as action_tables
from .tabular_policy import TabularPolicy as TabularPolicy
from .tabular_policy import action_probabilities as action_probabilities
