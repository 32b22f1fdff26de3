"""The rivals a policy is compared with, and the planners that only they need."""

from ..planning import ConvexPlan, ConvexStatus, Plan, plan, plan_convex
from .nested import NestedPlan, nested_plan
from .q_learning import RobustQLearning, robust_q_learning
from .robust import RobustPlan, robust_plan

# The functions of `rivals` are imported from there: `robust` and `nested` would hide the modules of those names.
__all__ = [
    "ConvexPlan",
    "ConvexStatus",
    "NestedPlan",
    "Plan",
    "RobustPlan",
    "RobustQLearning",
    "nested_plan",
    "plan",
    "plan_convex",
    "robust_plan",
    "robust_q_learning",
]
