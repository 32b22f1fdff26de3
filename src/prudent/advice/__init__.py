"""How cautious to be, and what to measure next."""

from .frontier import Frontier, FrontierPoint, LimitFrontier, LimitPoint, frontier, limit_frontier, risk_words
from .worth import Worth, WorthOfData, WorthQuestion, outcome_beliefs, outcome_chances, worth_of_data
