"""The rule that a log looks like, in words and as the lines of a problem file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import InputError
from .assembling import case_of
from .rules import RuleOrWord, moves_of, widest
from .schema import PosteriorSection, ProblemFile
from .sections import Section
from .tabular_case import Case

# Fewer moves than the first say nothing of a rule; fewer than the second are said to be few.
LEAST, FEW = 20, 100

# A bound is one where steps pile up: so large a share of those that could reach it do. A tail thins out instead.
AT_THE_BOUND = 0.1

# On a grid that nobody spoke of, at most this share of the moves may lead elsewhere.
ELSEWHERE = 0.1

# A simpler rule is taken if it leaves at most so many times the successors of the narrowest.
SIMPLER = 1.5

# A rule that leaves more of the states than this is not worth saying.
WORTH_SAYING = 0.9

# Rules that would list more moves than this are not looked at.
MOST_MOVES = 2_000_000


@dataclass(frozen=True)
class Suggestion:
    """A rule that every move of a log keeps.

    Attributes:
        sentence: what is true of the log.
        moves: how many moves it rests on: of each bound, those that could have gone beyond it.
        tables: what to set, by table of the problem file: all keys of `posterior`, and of `layout` if the grid is new.
        successors: a pair's mean number of them as the file is, and with the rule.
        then: the problem with the rule.
    """

    sentence: str
    moves: int
    tables: dict[str, dict[str, Any]]
    successors: tuple[float, float]
    then: Case

    @property
    def few(self) -> bool:
        """Whether it rests on too few moves to tell a rule from chance."""
        return self.moves < FEW

    def toml(self) -> str:
        """The tables as a problem file has them."""
        return "\n\n".join(
            "\n".join([f"[{name}]", *(f"{key} = {as_toml(value)}" for key, value in table.items())])
            for name, table in self.tables.items()
        )

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        now, then = self.successors
        said = {"sentence": self.sentence, "moves": self.moves, "few": self.few, "toml": self.toml()}
        return said | {"successors_now": now, "successors_then": then}

    def lines(self) -> list[str]:
        """What `prudent check` prints."""
        now, then = (f"{number:.1f}" for number in self.successors)
        few = f" That rests on {self.moves:,} moves, too few to tell a rule from chance." if self.few else ""
        several = " and ".join(f"[{name}]" for name in self.tables)
        return [
            f"{self.sentence}.{few}",
            f"If you know that it cannot be otherwise, say so with these lines in the place of {several}. "
            f"A pair then has {then} successors on average, and has {now} now:",
            "",
            *self.toml().split("\n"),
        ]


@dataclass(frozen=True, eq=False)
class _Moves:
    """The moves of a log: from, by, to, how often."""

    source: np.ndarray
    action: np.ndarray
    target: np.ndarray
    count: np.ndarray

    @property
    def total(self) -> float:
        return float(self.count.sum())

    def where(self, kept: np.ndarray) -> _Moves:
        return _Moves(self.source[kept], self.action[kept], self.target[kept], self.count[kept])


@dataclass(frozen=True)
class _Candidate:
    """A rule that every move keeps: what it says, its keys, the grid it is for, and how many moves it rests on."""

    sentence: str
    rule: dict[str, Any]
    sizes: tuple[int, ...]
    basis: float


def suggestion_of(case: Case) -> Suggestion | None:
    """The rule that the log of a case looks like; None where nothing is, or something was said.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_example(folder)[0])
    >>> print(suggestion_of(case).sentence)
    All 53 moves lead at most 1 level forward
    """
    facts = case.facts
    file, log = facts.file, facts.log
    if (
        case.family is not None
        or log is None
        or facts.outcomes is not None
        or file.posterior.support not in ("observed", "all")
    ):
        return None
    if not facts.ordered:
        return None
    kept = (log.count > 0) & ~case.terminal[log.state]
    moves = _Moves(log.state[kept], log.action[kept], log.next_state[kept], log.count[kept])
    if moves.total < LEAST:
        return None
    sized = [(each, _size(case, each)) for each in _candidates(case, moves)]
    fitting = [(each, size) for each, size in sized if size is not None]
    if not fitting:
        return None
    narrowest = min(size for _, size in fitting)
    chosen = next(each for each, size in fitting if size <= SIMPLER * narrowest)
    tables = {"posterior": _posterior(file.posterior, chosen.rule)}
    if len(chosen.sizes) > 1 and file.layout.grid is None:
        tables["layout"] = {"grid": list(chosen.sizes)} | file.layout.model_dump(exclude_none=True)
    try:
        then = case_of(replace(facts, file=_with(file, tables)))
    except InputError:
        return None
    successors = (_mean(case), _mean(then))
    if successors[1] > WORTH_SAYING * len(facts.states):
        return None
    return Suggestion(chosen.sentence, int(chosen.basis), tables, successors, then)


def _posterior(section: PosteriorSection, rule: dict[str, Any]) -> dict[str, Any]:
    said = section.model_dump(exclude_unset=True, exclude={"support"})
    return said | {"support": "rule", "rule": "adjacent" if rule == {"steps": 1} else rule}


def _with(file: ProblemFile, tables: dict[str, dict[str, Any]]) -> ProblemFile:
    return ProblemFile.model_validate(file.model_dump(exclude_unset=True) | tables)


def _mean(case: Case) -> float:
    """Successors of a pair that can be reached and left, on average."""
    return float(case.support.allowed().sum(axis=2)[case.reachable & ~case.terminal].mean())


def _size(case: Case, each: _Candidate) -> float | None:
    """Moves that a candidate allows; None if they are too many to look at."""
    facts = case.facts
    rule = _Checked.model_validate({"rule": each.rule}).rule
    shape = len(facts.states) * len(facts.actions)
    if shape * widest(rule, each.sizes, facts.actions, facts.source) > MOST_MOVES:
        return None
    return len(moves_of(rule, each.sizes, facts.states, facts.actions, facts.source)) / shape


class _Checked(Section):
    rule: RuleOrWord


def _candidates(case: Case, moves: _Moves) -> Iterator[_Candidate]:
    """Simple rules first."""
    states, grid = len(case.facts.states), case.facts.file.layout.grid
    if grid is None:
        yield from _in_order(case, moves)
    shapes = [(rows, states // rows) for rows in range(2, states // 2 + 1) if states % rows == 0]
    for sizes in shapes if grid is None else [tuple(grid)]:
        yield from _on_a_grid(case, moves, sizes, 1.0 if grid is not None else ELSEWHERE)


def _on_a_grid(case: Case, moves: _Moves, sizes: tuple[int, ...], elsewhere: float) -> Iterator[_Candidate]:
    """To neighbours, or else to one and the same state."""
    place = np.stack(np.unravel_index(np.arange(len(case.facts.states)), sizes), axis=1)
    far = np.abs(place[moves.target] - place[moves.source]).sum(axis=1) > 1
    others = moves.where(far)
    if len(np.unique(others.target)) > 1 or others.total > elsewhere * moves.total:
        return
    said = f"All {moves.total:,.0f} moves stay or lead to a neighbour on a {' x '.join(map(str, sizes))} grid"
    if not far.any():
        yield _Candidate(said, {"steps": 1}, sizes, moves.total)
        return
    name = case.facts.states[others.target[0]]
    said += f", but for {others.total:,.0f} that lead to {name}"
    yield _Candidate(said, {"steps": 1, "also": [name]}, sizes, moves.total - others.total)


def _in_order(case: Case, moves: _Moves) -> Iterator[_Candidate]:
    """Bounds along the order of the states, for all actions alike or for each."""
    states, actions = len(case.facts.states), case.facts.actions
    rule, basis = _reach(case, moves)
    if rule:
        short = {"steps": 1} if rule == {"forward": 1, "back": 1} else rule
        yield _Candidate(f"All {moves.total:,.0f} moves lead {_in_words(rule)}", short, (states,), basis)
    by_action = [moves.where(moves.action == action) for action in range(len(actions))]
    found = {a: _reach(case, mine) for a, mine in enumerate(by_action)}
    found = {a: (rule, basis) for a, (rule, basis) in found.items() if rule}
    if found:
        said = [f"all {by_action[a].total:,.0f} by {actions[a]} {_in_words(rule)}" for a, (rule, _) in found.items()]
        yield _Candidate(
            f"Of {moves.total:,.0f} moves there lead {', '.join(said)}",
            {"actions": {actions[a]: rule for a, (rule, _) in found.items()}},
            (states,),
            min(basis for _, basis in found.values()),
        )


def _reach(case: Case, moves: _Moves) -> tuple[dict[str, Any], float]:
    """Bounds that all moves keep, if there are any, and the least number of moves that one of them rests on."""
    states = case.facts.states
    if moves.total < LEAST:
        return {}, 0.0
    if len(np.unique(moves.target)) == 1 and len(np.unique(moves.source)) > 2:
        return {"only": [states[moves.target[0]]]}, moves.total
    rule, basis = _bounds(moves, len(states))
    far = moves.where(np.abs(moves.target - moves.source) > 1)
    if len(rule) < 2 and far.total > 0:
        often = int(np.argmax(np.bincount(far.target, far.count)))
        others, their_basis = _bounds(moves.where(moves.target != often), len(states))
        if len(others) > len(rule):
            return others | {"also": [states[often]]}, their_basis
    return rule, basis


def _bounds(moves: _Moves, states: int) -> tuple[dict[str, Any], float]:
    """How far forward and back moves lead at most, where they could lead further and the bound is no thin tail.

    Where they lead k levels and never fewer, the numbers of the states are no order.
    """
    change = moves.target - moves.source
    found: dict[str, Any] = {}
    basis = np.inf
    for name, along, room in (("forward", change, states - 1 - moves.source), ("back", -change, moves.source)):
        most = int(max(0, along.max(initial=0)))
        further, there = (float(moves.count[room >= least].sum()) for least in (most + 1, most))
        piled = moves.count[along == most].sum() >= AT_THE_BOUND * there
        if further >= LEAST and (most == 0 or (piled and np.isin(np.arange(1, most), along).all())):
            found[name] = most
            basis = min(basis, further)
    return found, basis


def _in_words(rule: dict[str, Any]) -> str:
    if "only" in rule:
        return f"to {rule['only'][0]}"
    words = [
        f"at most {rule[way]} {'level' if rule[way] == 1 else 'levels'} {way}" if rule[way] else f"never {way}"
        for way in ("forward", "back")
        if way in rule
    ]
    return " and ".join(words) + (f", or to {rule['also'][0]}" if "also" in rule else "")


def as_toml(value: Any) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {as_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
