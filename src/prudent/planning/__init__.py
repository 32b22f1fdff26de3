"""Planners for known models, for expected costs and for convex losses."""

from .convex import ConvexPlan, ConvexStatus, plan_convex, searched
from .exact import Plan, least_costs, plan, plan_of, require_tolerance, robust_actions
from .incumbent import ConvexSearch
