"""Policies: what a user is given and deploys, and the parametrisations that solvers move in."""

from .logged import LoggedPolicy, policy_of_log
from .networks import NeuralPolicy
from .parametrisations import Direct, Neural, Parametric, Parametrisation, Softmax, action_tables
from .tabular_policy import TabularPolicy, action_probabilities, picked, policy_from, write_policy_file
