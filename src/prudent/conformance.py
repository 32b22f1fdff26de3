"""Checks of a user's part: what they report, the laws it was held to; and how it is said what a part raises itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .errors import InputError


@contextlib.contextmanager
def explained(words: Callable[[Any], str], besides: tuple[type[Exception], ...] = (InputError,)) -> Iterator[None]:
    """Whatever a user's part raises is refused in these words, besides errors that say enough themselves."""
    try:
        yield
    except besides:
        raise
    except Exception as error:
        raise InputError(words(error)) from error


class Finding(NamedTuple):
    """One law, the worst violation met, and the violation that would have been refused."""

    law: str
    worst: float
    tolerance: float


def held_to(law: str, violations: Any, allowed: float, refusal: Callable[[int], str]) -> Finding:
    """The worst violation of a law; refused, in words about the place of it, where more than is allowed."""
    violations = np.where(np.isnan(violations), np.inf, violations)
    place = int(np.argmax(violations))
    worst = max(0.0, float(violations.flat[place]))
    if worst > allowed:
        raise InputError(refusal(place))
    return Finding(law, worst, allowed)


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
