"""Planners for known models, one or many at once."""

from .convex import ConvexPlan, ConvexStatus, plan_convex, searched
from .exact import LARGEST_DIRECT, Plan, level_of, plan
from .incumbent import ConvexSearch
from .many import costs_below, least_costs, plan_many, robust_actions
