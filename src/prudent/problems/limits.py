"""`[[limit]]`: what else a policy may lose, in a problem file's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from ..errors import InputError
from ..losses import CostTable
from ..solvers import Limit, refuse_idle
from ..tables import LARGEST_COST, Names, entries_of, read_table
from .sections import Name, Risk, Section, wrong


class LimitSection(Section):
    """One `[[limit]]`: what else a policy may lose."""

    at_most: float = Field(description="the most that is allowed, in the limit's own unit")
    visits: Annotated[list[Name], Field(min_length=1)] | None = Field(
        default=None, description="states that may be visited only so often; or else `costs`"
    )
    actions: Annotated[list[Name], Field(min_length=1)] | None = Field(
        default=None, description="with `visits`: actions that count there; all when left out"
    )
    costs: str | dict[str, dict[str, float]] | None = Field(
        default=None,
        description="a file with `state`, `action`, `cost`, or a table `state.action = cost`; 0 for pairs left out",
    )
    per: Annotated[float, Field(gt=0.0)] | None = Field(
        default=None,
        description="periods for which the limit is stated, such as 52; 1 is a share of time; when left out, the "
        "discounted total",
    )
    chance: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None, description="in the place of a risk: the posterior probability with which it is to be kept"
    )
    confidence: Annotated[float, Field(ge=0.5, lt=1.0)] = Field(
        default=0.95, description="with which fresh draws are to show it kept"
    )
    name: Annotated[str, Field(max_length=80)] = Field(default="", description="what a reader calls it")
    unit: Annotated[str, Field(max_length=80)] = Field(default="", description="such as failures a year")
    risk: Risk | None = Field(default=None, description="of it over the posterior; `cvar` of level 0.9 when left out")

    @model_validator(mode="after")
    def _one_of_each(self) -> LimitSection:
        if (self.visits is None) == (self.costs is None):
            raise wrong("limit", "a limit is on visits or on costs; give one of the two")
        if self.actions is not None and self.visits is None:
            raise wrong("limit", "actions go with visits; a table of costs names its own")
        if self.chance is not None and self.risk is not None:
            raise wrong("limit", "a limit is kept in a risk or with a chance; give one of the two")
        return self

    def build(self, table: np.ndarray) -> Limit:
        """The limit on the costs of a table `[S, A]`."""
        told = {name: getattr(self, name) for name in ("chance", "name", "unit", "confidence")}
        return Limit(CostTable(table, self.per), self.at_most, None if self.risk is None else self.risk.build(), **told)


def limit_tables(limits: list[Any], states: Names, actions: Names, folder: Path, source: str) -> tuple[np.ndarray, ...]:
    """What one visit of each pair counts for each limit, `[S, A]`."""
    return tuple(
        _table(limit, states, actions, folder, f"{source}: limit {number + 1}") for number, limit in enumerate(limits)
    )


def _table(limit: LimitSection, states: Names, actions: Names, folder: Path, where: str) -> np.ndarray:
    table = np.zeros((len(states), len(actions)))
    if limit.visits is not None:
        rows = [states.number(str(name), f"{where}, visits") for name in limit.visits]
        columns = (
            range(len(actions))
            if limit.actions is None
            else [actions.number(str(name), f"{where}, actions") for name in limit.actions]
        )
        table[np.ix_(rows, list(columns))] = 1.0
        return table
    if isinstance(limit.costs, dict):
        for state, row in limit.costs.items():
            for action, value in row.items():
                table[states.number(state, f"{where}, costs"), actions.number(action, f"{where}, costs")] = value
    else:
        read = read_table(str(limit.costs), {"state": states, "action": actions}, ["cost"], (), folder)
        table.ravel()[entries_of(read, ("state", "action"), table.shape)] = read.numbers["cost"]
    if np.abs(table).max() > LARGEST_COST:
        raise InputError(f"{where}: a cost of {np.abs(table).max():g} is too large; change the unit")
    if not np.any(table):
        raise InputError(f"{where}: all its costs are 0, so that it limits nothing; give the costs of some pair")
    return table


def refuse_idle_limits(
    limits: list[Any], tables: tuple[np.ndarray, ...], made: tuple[Limit, ...], discount: float
) -> None:
    """Refuse limits that nothing could break, or nothing keep, in all of the time."""
    for number, (section, table, limit) in enumerate(zip(limits, tables, made, strict=True)):
        time = section.per or 1.0 / (1.0 - discount)
        refuse_idle(limit, number, float(table.min()) * time, float(table.max()) * time)


def build_limits(limits: list[Any], tables: tuple[np.ndarray, ...], source: str) -> list[Limit]:
    """The limits of a file."""
    made = []
    for number, (limit, table) in enumerate(zip(limits, tables, strict=True)):
        try:
            made.append(limit.build(table))
        except InputError as error:
            raise InputError(f"{source}: limit {number + 1}: {error}") from None
    return made
