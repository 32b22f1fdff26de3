"""The rivals a policy is compared with, and the planners that only they need."""

from .judged_plans import nested, plug_in, robust, robust_by_q_learning
from .nested_planner import NestedPlan, nested_plan
from .panel import rivals, row_radius
from .robust_planner import RobustPlan, RobustQLearning, robust_plan, robust_q_learning
