"""A problem file to begin with, from a log: what can be read off it, and what only the user can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import write_files
from .assembling import case_of
from .facts import Facts, gather
from .schema import parse
from .suggesting import Suggestion, as_toml, suggestion_of

# More names than this are not written down: the file then takes those of the log.
MOST_WRITTEN = 400

DISCOUNT = 0.95


@dataclass(frozen=True)
class Begun:
    """A problem file that was written.

    >>> import prudent as pr, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder, "visits.csv")
    ...     _ = log.write_text("state,action,next_state,cost\\nlow,order,high,2\\nhigh,wait,low,1\\n")
    ...     begun = pr.begin_problem(log)
    >>> begun.path.name, begun.costs
    ('problem.toml', True)

    Attributes:
        path: where it is.
        costs: whether the log has costs; without, the file cannot be solved before they are given.
        suggestion: the rule that the log looks like, in the file as a comment; None where none is.
    """

    path: Path
    costs: bool
    suggestion: Suggestion | None


def begin_problem(
    log: str | Path,
    force: bool = False,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    trajectories: bool = False,
) -> Begun:
    """Write `problem.toml` beside a log: its names, its costs if it has any, and the rule that it looks like.

    The rule is a comment. It says that other moves are impossible, which a log cannot show.

    >>> import prudent as pr, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = pathlib.Path(folder) / "walk.csv"
    ...     moves = ["0,go,1", "1,go,2", "2,go,2", "2,back,1", "1,back,0", "0,back,0"]
    ...     _ = log.write_text("state,action,next_state,count,cost\\n" + "".join(f"{move},20,1\\n" for move in moves))
    ...     begun = pr.begin_problem(log)
    ...     states = pr.read_problem(begun.path).states
    >>> begun.path.name, begun.costs, states
    ('problem.toml', True, ('0', '1', '2'))

    Args:
        log: a table with `state`, `action`, `next_state` and, if there are any, `count` and `cost`.
        force: replace a `problem.toml` that is there; refused otherwise.
        columns: what its columns are called, where that is something else, such as `{"state": "s"}`; of a state that is
            made of several, all of these.
        trajectories: its rows are consecutive steps without `next_state`.
    """
    log = Path(log)
    path = log.parent / "problem.toml"
    if path.exists() and not force:
        raise InputError(f"{path}: is there already; move the log to another folder, or use --force to replace it")
    content: dict[str, Any] = {"discount": DISCOUNT, "start": "0", "data": {"transitions": log.name}}
    form = ({"columns": dict(columns)} if columns else {}) | ({"trajectories": True} if trajectories else {})
    content["data"] |= form
    facts = gather(parse(content, str(log), changes=[f"data.{key}" for key in form]), path)
    assert facts.log is not None
    if not facts.log.count.sum() > 0:
        raise InputError(f"{log}: holds no transition that was seen; a problem needs some")
    costs = bool(facts.log.cost_count.sum() > 0)
    suggestion = _suggested(facts, content, path)
    text = _text(log, facts, form, costs, suggestion)
    return Begun(write_files(path.parent, {path.name: text}, force=True)[0], costs, suggestion)


def _suggested(facts: Facts, content: dict[str, Any], path: Path) -> Suggestion | None:
    """What `prudent check` would suggest: only where the names are numbers, and so in an order."""
    if not _numbered(facts):
        return None
    # What is not said yet does not bear on where moves lead.
    content = content | {"start": facts.states[0], "states": list(facts.states.all())}
    content["data"] = content["data"] | {"default_cost": 0.0}
    try:
        return suggestion_of(case_of(gather(parse(content, str(path)), path)))
    except InputError:
        # Such as a table that is too large: `prudent check` says it, once the file is there.
        return None


def _numbered(facts: Facts) -> bool:
    return all(name.isascii() and name.isdigit() for name in facts.states.all())


def _names(kind: str, names: tuple[str, ...], comment: str) -> str:
    if names == tuple(map(str, range(len(names)))):
        return f"{kind} = {len(names)}  # numbered from 0"
    if len(names) > MOST_WRITTEN:
        return f"# {kind}: the {len(names):,} in the log"
    return f"{kind} = {as_toml(list(names))}{comment}"


def _ends(facts: Facts) -> list[str]:
    """A comment with the states that the log enters and never shows anything of after that."""
    log = facts.log
    assert log is not None
    entered = np.unique(log.next_state[log.count > 0])
    ends = np.setdiff1d(entered, log.state[log.count > 0])
    if not len(ends):
        return []
    names = as_toml([facts.states[end] for end in ends[:MOST_WRITTEN]])
    return [f"# terminal = {names}  # nothing in the log begins there: take the sign # off if they end it"]


def _costs(facts: Facts, costs: bool) -> list[str]:
    """Where costs are to come from: beside a log that has some, a comment with a price for pairs that have none."""
    if not costs:
        return ['costs = "costs.csv"  # the log has none: make this file, with state, action, cost']
    log = facts.log
    assert log is not None
    paid = log.cost_count > 0
    pairs = len(facts.states) * len(facts.actions)
    priced = pairs - len(np.unique(log.state[paid] * len(facts.actions) + log.action[paid]))
    if not priced:
        return []
    dearest = float(np.max(log.cost_total[paid] / log.cost_count[paid])) + 0.0
    return [
        f"# The log has no cost for {priced:,} of the {pairs:,} pairs of a state and an action. default_cost prices",
        "# them, but for those of terminal states. Offered is the mean cost of the dearest move in the log: what is",
        "# priced lower may look better than what was tried, for no reason but this number.",
        f"# default_cost = {dearest!r}",
    ]


def _text(log: Path, facts: Facts, form: dict[str, Any], costs: bool, suggestion: Suggestion | None) -> str:
    assert facts.log is not None
    order = "" if _numbered(facts) else "  # put them in their natural order: rows learn from one another by it"
    first = facts.states[0]
    lines = [
        f"# Begun from a log of {facts.log.count.sum():,.0f} transitions. Look through it; then prudent check.",
        "",
        f"title = {as_toml(log.stem)}",
        _names("states", facts.states.all(), order),
        _names("actions", facts.actions.all(), ""),
        f"discount = {DISCOUNT}  # what a cost of the next step weighs today",
        f"start = {as_toml(first)}  # the first of the states; say where you begin",
        *_ends(facts),
        "",
        "[data]",
        f"transitions = {as_toml(log.name)}",
        *(f"{key} = {as_toml(value)}" for key, value in form.items()),
        *_costs(facts, costs),
        "",
        "[risk]",
        'kind = "cvar"  # the mean of the worst tenth',
        "level = 0.9",
        "",
    ]
    if suggestion is None:
        said = "# If you know where a pair may lead, say so in a table [posterior]: with successors, or with a rule."
        return "\n".join([*lines, said, ""])
    few = ", too few to tell a rule from chance" if suggestion.few else ""
    said = [
        f"# {suggestion.sentence}; that rests on {suggestion.moves:,} moves{few}.",
        "# If you know that it cannot be otherwise, take the sign # off the lines that follow.",
        *(f"# {line}".rstrip() for line in suggestion.toml().split("\n")),
    ]
    return "\n".join([*lines, *said, ""])
