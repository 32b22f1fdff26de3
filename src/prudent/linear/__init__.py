"""Linear systems with quadratic costs, or any convex loss of their occupancy: a model of its own at the seam."""

from .beliefs import CutOff, LinearBelief, MatrixNormal, MatrixNormalInverseWishart, Share
from .losses import ConvexMoments, GaussianTarget, InputLimit, LinearQuadraticCost, MomentLoss, VariancePenalty
from .moments import LinearOccupancy, lyapunov
from .objective import LinearObjective, linear_occupancy
from .plans import LinearPlan, linear_plan, robust_gain
from .policies import LinearGain, LinearGaussianPolicy, point_of
from .stability import Stability
from .systems import LinearFamily, LinearSystem, covariance, require_log, root
