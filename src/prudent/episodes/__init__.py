"""Deploy, log, learn, solve, repeated (Algorithm 2 of the paper)."""

from .adaptive import ByTheorem, Scales, estimate_scales
from .deployment import Trial, evaluate_in, load_policy
from .loop import Episode, Episodes, run_episodes, run_episodes_many
from .worlds import GymnasiumWorld, LinearWorld, SimulatedWorld, StepWorld, World, discrete_sizes
