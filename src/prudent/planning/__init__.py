"""Planners for known models, one or many at once."""

from .convex import ConvexPlan, ConvexStatus, plan_convex, searched
from .exact import LARGEST_DIRECT, Plan, level_of, plan
from .many import followed, least_costs, plan_many, robust_actions
from .search import Search

__all__ = [
    "LARGEST_DIRECT",
    "ConvexPlan",
    "ConvexStatus",
    "Plan",
    "Search",
    "followed",
    "least_costs",
    "level_of",
    "plan",
    "plan_convex",
    "plan_many",
    "robust_actions",
    "searched",
]
