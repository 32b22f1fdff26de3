"""How cautious to be, and what to measure next."""

from .frontier import Frontier, FrontierPoint, frontier, risk_words
from .limit_frontier import LimitFrontier, LimitPoint, limit_frontier
from .worth import Worth, WorthOfData, WorthQuestion, outcome_beliefs, outcome_chances, worth_of_data
