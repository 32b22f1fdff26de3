"""Deploy, log, learn, solve, repeated (Algorithm 2 of the paper)."""

from .deployment import Trial, evaluate_in, load_policy
from .loop import Episode, Episodes, EpisodeStart, run_episodes, run_episodes_many
from .worlds import GymnasiumWorld, LinearWorld, SimulatedWorld, StepWorld, World, discrete_sizes
