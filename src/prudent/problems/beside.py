"""Tables of a problem file beside the question: what is proved of the answer, its rivals, how it is drawn."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .sections import NotNegative, Section


class Rivals(Section):
    """The plans the policy is compared with in the report."""

    robust_radius: NotNegative | None = Field(
        default=None,
        description="radius of the robust plan's Kullback-Leibler balls, in nats; when left out, one that "
        "holds each row with a probability of 0.9",
    )


class CertificateSection(Section):
    """How well the answer is known to be good; a lower bound on the risk of every policy is always looked for."""

    prove: bool = Field(
        default=False,
        description="also search all stationary policies by branch and bound, as `prudent prove` does; tables of at "
        "most 48 states",
    )
    gap: Annotated[float, Field(ge=0.0)] = Field(default=1e-3, description="the search ends at this share of the risk")
    seconds: Annotated[float, Field(gt=0.0)] = Field(default=60.0, description="or after so long")
    deterministic: bool = Field(default=False, description="of policies with one action in each state only")
    samples: Annotated[int, Field(ge=2)] = Field(
        default=64, description="draws that are searched, of a posterior that is not a few points"
    )


class Layout(Section):
    """How the report draws the policy."""

    grid: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=8)] | None = Field(
        default=None,
        description="`[rows, columns]` where the states form a grid, row by row, or the sizes of more axes, the last "
        "one the fastest; two are drawn",
    )
    directions: list[Literal["left", "down", "right", "up"]] | None = Field(
        default=None, description="which way each action points on the grid"
    )
