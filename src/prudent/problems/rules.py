"""Where a pair may lead by a rule on the order of the states, or on their grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from ..errors import InputError
from ..tables import Names, suggest
from .sections import Name, Section, wrong

Levels = Annotated[int, Field(ge=0, le=2**31)]


def _from_word(value: Any) -> Any:
    """`adjacent` is a rule of one step."""
    if not isinstance(value, str):
        return value
    if value != "adjacent":
        hint = suggest(value, ["adjacent"]) or ""
        raise wrong("rule", 'there is no rule "{word}"{hint}', word=value[:40], hint=hint)
    return {"steps": 1}


class Bounds(Section):
    """How far one step may lead, of one action or of all."""

    forward: Levels | Annotated[list[Levels], Field(min_length=1, max_length=8)] | None = Field(
        default=None,
        description="most levels towards later states, or a number for each axis of the grid; when left out, any",
    )
    back: Levels | Annotated[list[Levels], Field(min_length=1, max_length=8)] | None = Field(
        default=None, description="the same towards earlier states"
    )
    steps: Levels | None = Field(default=None, description="most levels in all, over all axes of a grid together")
    only: Annotated[list[Name], Field(min_length=1)] | None = Field(
        default=None, description="of the states within reach, only these"
    )
    also: list[Name] = Field(default=[], description="and these, wherever they are")


class Reach(Bounds):
    """How far one step of an action may lead."""


class Rule(Bounds):
    """How far one step may lead."""

    actions: dict[str, Annotated[Reach, BeforeValidator(_from_word)]] = Field(
        default={}, description='tables `action = { ... }`, or `"adjacent"`, in the place of the keys above'
    )


#: A rule, or the word for the most usual one.
RuleOrWord = Annotated[Rule, BeforeValidator(_from_word)]


def reach_of(rule: Rule, actions: Names, where: str) -> list[Bounds]:
    """What holds for each action; refuses a rule for an action that there is not."""
    own = {actions.number(name, f"{where}: posterior.rule.actions"): reach for name, reach in rule.actions.items()}
    return [own.get(action, rule) for action in range(len(actions))]


def widest(rule: Rule, sizes: Sequence[int], actions: Names, where: str) -> int:
    """Successors that a pair may have at most, found without listing any."""
    return max(_width(reach, sizes, where) for reach in reach_of(rule, actions, where))


def _width(reach: Bounds, sizes: Sequence[int], where: str) -> int:
    spans = [min(most, size - 1) + min(least, size - 1) + 1 for least, most, size in _bounds(reach, sizes, where)]
    near = min(math.prod(spans), math.prod(sizes))
    if reach.steps is not None:
        near = min(near, (2 * reach.steps + 1) ** len(sizes))
    return min(math.prod(sizes), near + len(reach.also))


def _bounds(reach: Bounds, sizes: Sequence[int], where: str) -> list[tuple[int, int, int]]:
    """Most levels back and forward along each axis, and its size."""
    both = []
    for name, given in (("back", reach.back), ("forward", reach.forward)):
        levels = given if isinstance(given, list) else [given] * len(sizes)
        if len(levels) != len(sizes):
            axes = f"the {len(sizes)} axes of layout.grid" if len(sizes) > 1 else "the one axis of the states"
            raise InputError(
                f"{where}: posterior.rule: {name} has {len(levels)} numbers for {axes}; give one for each, or one alone"
            )
        both.append([size if level is None else level for level, size in zip(levels, sizes, strict=True)])
    return list(zip(*both, sizes, strict=True))


def moves_of(rule: Rule, sizes: Sequence[int], states: Names, actions: Names, where: str) -> np.ndarray:
    """`[K, 3]` every `(state, action, next_state)` that a rule allows, in order.

    Args:
        rule: the rule.
        sizes: of the axes that the states are numbered along, row by row.
        states: their names.
        actions: their names.
        where: the problem file, for messages.
    """
    made: dict[str, np.ndarray] = {}
    triples = []
    for action, reach in enumerate(reach_of(rule, actions, where)):
        key = reach.model_dump_json(exclude={"actions"})
        if key not in made:
            made[key] = _moves(reach, sizes, states, where)
        source, target = made[key].T
        triples.append(np.stack([source, np.full(len(source), action), target], axis=1))
    several = np.concatenate(triples)
    return several[np.lexsort(several.T[::-1])]


def _moves(reach: Bounds, sizes: Sequence[int], states: Names, where: str) -> np.ndarray:
    """`[K, 2]` every `(state, next_state)` within reach."""
    ranges = [
        np.arange(-min(least, size - 1), min(most, size - 1) + 1) for least, most, size in _bounds(reach, sizes, where)
    ]
    change = np.stack([axis.ravel() for axis in np.meshgrid(*ranges, indexing="ij")], axis=1)
    if reach.steps is not None:
        change = change[np.abs(change).sum(axis=1) <= reach.steps]
    place = np.stack(np.unravel_index(np.arange(len(states)), tuple(sizes)), axis=1)
    landing = place[:, None] + change
    source, slot = np.nonzero(np.all((landing >= 0) & (landing < np.array(sizes)), axis=2))
    target = np.asarray(np.ravel_multi_index(tuple(landing[source, slot].T), tuple(sizes)))
    if reach.only is not None:
        kept = np.isin(target, numbers_of(reach.only, states, f"{where}: posterior.rule.only"))
        source, target = source[kept], target[kept]
    also = numbers_of(reach.also, states, f"{where}: posterior.rule.also")
    source = np.concatenate([source, np.repeat(np.arange(len(states)), len(also))])
    target = np.concatenate([target, np.tile(also, len(states))])
    return np.unique(np.stack([source, target], axis=1), axis=0)


def numbers_of(names: Sequence[Name], states: Names, where: str) -> np.ndarray:
    """The numbers of the states named."""
    return np.array([states.number(str(name), where) for name in names], np.int64)
