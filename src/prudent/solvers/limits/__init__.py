"""Limits: policies that keep other losses below a number, the price of that, and how surely they do."""

from .answer import LimitAnswer, Verdict, price_words, share_interval
from .answer import answer_of as limit_answer
from .limit import Limit, checked_limits, refuse_idle
from .margins import level_shown
from .solving import limit_objectives, solve_limited
