"""What a conformance check reports: the laws an object was held to, and how far off it was at worst."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class Finding(NamedTuple):
    """One law, the worst violation met, and the violation that would have been refused."""

    law: str
    worst: float
    tolerance: float


@dataclasses.dataclass(frozen=True)
class Conformance:
    """The findings of a check that was passed.

    >>> import prudent as pr
    >>> len(pr.check_risk(pr.CVaR(0.9)).findings)
    9

    Attributes:
        subject: the name of what was checked.
        findings: one a law: its name, the worst violation met, and what would have been refused.
    """

    subject: str
    findings: tuple[Finding, ...]

    def worst_share(self) -> float:
        """The largest violation as a share of what is allowed; above 1 it would have been refused."""
        return max(finding.worst / finding.tolerance for finding in self.findings)

    def __str__(self) -> str:
        width = max(len(finding.law) for finding in self.findings)
        lines = [f"  {law:<{width}}   worst {worst:.1e}, allowed {limit:.1e}" for law, worst, limit in self.findings]
        return "\n".join([f"{self.subject} conforms:", *lines])
