"""Planners for known models, one or many at once."""

from .convex import ConvexPlan, ConvexStatus, plan_convex, searched
from .exact import LARGEST_DIRECT, Plan, costs_below, least_costs, level_of, plan, plan_many, planned, robust_actions
from .in_order import EPSILON, DrawPlans, Moves, differing, plan_draws
from .incumbent import ConvexSearch
