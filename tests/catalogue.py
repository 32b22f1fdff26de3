"""Tables that tests are parametrised over; a new part of the library is added here once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import prudent as pr


class RiskCase(NamedTuple):
    """A kind of risk; `build` makes one from a number in [0, 1), which may be a JAX tracer."""

    name: str
    build: Callable[[Any], pr.Risk]
    has_standard_error: bool = True


RISKS = (
    RiskCase("expectation", lambda level: pr.Expectation()),
    RiskCase("cvar", lambda level: pr.CVaR(level)),
    RiskCase("worst_case", lambda level: pr.WorstCase(), has_standard_error=False),
)
