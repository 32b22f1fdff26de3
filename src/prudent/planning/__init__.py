"""Planners for known models, one or many at once."""

from .convex import ConvexPlan, ConvexStatus, plan_convex
from .exact import Plan, plan
from .many import least_costs, plan_many, robust_actions

__all__ = [
    "ConvexPlan",
    "ConvexStatus",
    "Plan",
    "least_costs",
    "plan",
    "plan_convex",
    "plan_many",
    "robust_actions",
]
