"""The rivals a policy is compared with, and the planners that only they need."""

from .judged_plans import nested, plug_in, rivals, robust, robust_by_q_learning, row_radius
from .nested_planner import NestedPlan, nested_plan
from .robust_planner import RobustPlan, RobustQLearning, robust_plan, robust_q_learning
