"""Limits: policies that keep other losses below a number, the price of that, and how surely they do."""

from .answer import LimitAnswer, Verdict, level_shown, limit_answer, price_words
from .limit import Limit, checked_limits, refuse_idle
from .solving import limit_objectives, solve_limited
