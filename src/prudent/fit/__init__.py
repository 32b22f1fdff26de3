"""Whether the model fits the log: permutation tests of its rows, and what the belief foretells of them."""

from .testing import (
    EXCHANGES,
    LEVEL,
    Band,
    Exchangeable,
    LogTest,
    along_scale,
    blocks,
    log_tests,
    moments,
    outcomes_of,
    replays,
    surprise,
)
