"""Whether the model fits the log: permutation tests of its rows, and what the belief foretells of them."""

from .foretelling import Band, Replays, along_scale, replays, surprise
from .testing import EXCHANGES, LEVEL, Exchangeable, LogTest, blocks, log_tests, moments, outcomes_of

__all__ = [
    "EXCHANGES",
    "LEVEL",
    "Band",
    "Exchangeable",
    "LogTest",
    "Replays",
    "along_scale",
    "blocks",
    "log_tests",
    "moments",
    "outcomes_of",
    "replays",
    "surprise",
]
