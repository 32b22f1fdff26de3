"""How cautious to be, and what to measure next."""

from .frontier import Frontier, FrontierPoint, frontier
from .worth import Worth, WorthOfData, worth_of_data

__all__ = ["Frontier", "FrontierPoint", "Worth", "WorthOfData", "frontier", "worth_of_data"]
