"""The rivals a policy is compared with, and the planners that only they need."""

from .judged_plans import nested, plug_in, rivals, robust, row_radius
from .nested_planner import NestedPlan, nested_plan
from .robust_planner import RobustPlan, robust_plan
