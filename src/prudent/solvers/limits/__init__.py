"""Limits: policies that keep other losses below a number, the price of that, and how surely they do."""

from .answer import LimitAnswer, LimitFindings, LimitsAsked, Verdict, level_shown, limit_answer, price_words
from .bounds import Infeasibility, certified, infeasible
from .limit import Limit, checked_limits, limit_objectives, refuse_idle
