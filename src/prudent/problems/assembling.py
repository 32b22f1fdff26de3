"""A problem file to a case: names, start, successors and costs, checked; code of the user's only if that is trusted."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..models import AbstractFamily
from ..posteriors import Posterior
from ..solvers import checked_limits
from ..transitions import Transitions
from .costs import BelievedCosts, costs_of
from .facts import Facts, gather
from .limits import build_limits, refuse_idle_limits
from .memory import require_fit
from .outcomes import costs_by_outcome, lay_out_outcomes
from .plain import changed, read_content
from .schema import parse
from .successors import moves_allowed, refuse_unlisted, said_to_lead, support_of
from .tabular_case import Case


def read_problem(
    problem: str | Path | Mapping[str, Any], *, trust: bool = False, changes: dict[str, Any] | None = None
) -> Any:
    """Read a problem file and every table it names, as a `Case`, or a `LinearCase`; nothing is solved.

    Args:
        problem: a TOML file, see the page on the problem file; or its content as a dictionary, in which a frame may
            stand wherever the file would have the path of a table. Paths then begin in the working folder.
        trust: import and run the code that `family` names; refused otherwise.
        changes: keys to set over what the file says, such as `{"solver.iterations": 50}`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_example(folder)[0], changes={"seed": 7})
    >>> case.facts.file.seed
    7
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"state": ["new", "worn"], "action": ["run", "fix"], "next_state": ["worn", "new"]})
    >>> costs = {"new": {"run": 0, "fix": 1}, "worn": {"run": 3, "fix": 2}}
    >>> said = {"discount": 0.9, "start": "new", "data": {"transitions": frame, "costs": costs}}
    >>> said["solver"] = {"samples": 32, "largest": 32, "starts": 1}
    >>> pr.solve(**pr.read_problem(said).arguments()).policy.act("worn", seed=0) in ("run", "fix")
    True
    """
    frames: dict[str, Any] = {}
    if isinstance(problem, Mapping):
        path, text = Path("the problem"), ""
        content = changed(_without_frames(problem, frames), changes)
    else:
        path = Path(problem)
        content, text = read_content(path, changes)
    if content.get("kind") is not None:
        # A kind tells files of vectors apart; their descriptions are made of those of tables, so they come later.
        from .linear_file import linear_case

        return linear_case(content, path, text, frames, tuple(changes or ()))
    file = parse(content, str(path), text, changes=tuple(changes or ()))
    if file.family is None:
        return case_of(gather(file, path, None, frames))
    trusted = import_family(file.family, file.options, path.resolve().parent, trust)
    return case_of(gather(file, path, trusted.model.support.shape[:2], frames), trusted)


def _without_frames(content: Any, frames: dict[str, Any]) -> Any:
    """Plain values, with names in the place of frames, which are put aside."""
    if isinstance(content, Mapping):
        return {str(key): _without_frames(value, frames) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_frames(value, frames) for value in content]
    if isinstance(content, Path):
        return str(content)
    if isinstance(content, np.generic):
        return content.item()
    if isinstance(content, np.ndarray):
        return content.tolist()
    if content is None or isinstance(content, str | int | float):
        return content
    name = f"frame {len(frames) + 1}"
    frames[name] = content
    return name


def case_of(facts: Facts, family: Trusted | None = None) -> Case:
    """Check facts against one another and lay them out as arrays."""
    states = len(facts.states)
    if facts.file.layout.grid is not None and int(np.prod(facts.file.layout.grid)) != states:
        raise InputError(f"{facts.source}: layout.grid {facts.file.layout.grid} does not hold the {states} states")
    directions = facts.file.layout.directions
    if directions is not None and len(directions) != len(facts.actions):
        raise InputError(f"{facts.source}: layout.directions needs one for each of the {len(facts.actions)} actions")
    limits = checked_limits(build_limits(facts.file.limit, facts.limits, facts.source))
    discount = facts.file.discount if family is None else float(family.model.discount)
    refuse_idle_limits(facts.file.limit, facts.limits, limits, discount or 0.0)
    if family is not None:
        none = np.zeros(states, dtype=bool)
        return Case(facts, np.asarray(family.model.start), none, family.model.support, None, ~none, family)
    facts.loss()
    start = _start(facts)
    terminal = _terminal(facts)
    layout = None
    if facts.outcomes is None:
        moves = moves_allowed(facts, terminal)
        support = support_of(facts, terminal, moves)
    else:
        layout = lay_out_outcomes(facts, terminal)
        support, moves = layout.support, facts.outcomes.moves[:, [0, 1, 3]]
        refuse_unlisted(facts, terminal, moves)
    support = support.named(facts.states.all(), facts.actions.all())
    reachable = support.reachable(start)
    _refuse_open_pairs(facts, moves, terminal, reachable)
    if layout is not None and facts.outcomes is not None and facts.outcomes.costs is not None:
        if facts.costs is not None:
            raise InputError(
                f"{facts.source}: costs are given by data.costs and by the column cost of posterior.outcomes; remove "
                "one of them"
            )
        costs = BelievedCosts(costs_by_outcome(facts, layout, terminal), note="of each outcome, given")
    else:
        costs = costs_of(facts, support, terminal, reachable)
    case = Case(facts, start, terminal, support, costs, reachable, layout=layout)
    require_fit(case.shape, facts.file.solver, case.drawn_costs)
    return case


def _start(facts: Facts) -> np.ndarray:
    given, states, source = facts.file.start, facts.states, facts.source
    start = np.zeros(len(states))
    if isinstance(given, str | int):
        start[states.number(str(given), f"{source}: start")] = 1.0
        return start
    if isinstance(given, dict):
        for name, probability in given.items():
            start[states.number(name, f"{source}: start")] = probability
    else:
        assert given is not None
        if len(given) != len(states):
            raise InputError(f"{source}: start has {len(given)} probabilities for {len(states)} states")
        start[:] = given
    if np.any(start < 0):
        raise InputError(f"{source}: start gives state {states[int(np.argmin(start))]} a probability below 0")
    if abs(start.sum() - 1.0) > 1e-8:
        raise InputError(f"{source}: the probabilities of start sum to {start.sum():.9g}, not to 1")
    return start


def _terminal(facts: Facts) -> np.ndarray:
    terminal = np.zeros(len(facts.states), dtype=bool)
    for name in facts.file.terminal:
        terminal[facts.states.number(str(name), f"{facts.source}: terminal")] = True
    log = facts.log
    if log is not None:
        left = terminal[log.state] & (log.next_state != log.state) & (log.count > 0)
        if left.any():
            name = facts.states[log.state[int(np.argmax(left))]]
            raise InputError(f"{facts.source}: state {name} is called terminal, but the log goes on from it")
    return terminal


def _refuse_open_pairs(facts: Facts, moves: np.ndarray, terminal: np.ndarray, reachable: np.ndarray) -> None:
    """Refuse a pair that can be reached and to which lists or a rule leave no successor."""
    said = said_to_lead(facts)
    if said is None:
        return
    listed = np.zeros((len(facts.states), len(facts.actions)), dtype=bool)
    listed[moves[:, 0], moves[:, 1]] = True
    open_pairs = np.argwhere(~listed & (reachable & ~terminal)[:, None])
    if len(open_pairs):
        state, action = open_pairs[0]
        raise InputError(
            f"{facts.source}: {said[0]} none for {facts.pair(state, action)}, which can be reached"
            f"{_and_others(len(open_pairs))}; list at least one, or call the state terminal"
        )


def _and_others(number: int) -> str:
    return f" (nor for {number - 1} more)" if number > 1 else ""


class Trusted(NamedTuple):
    """What the user's function made.

    Attributes:
        name: `module:function`.
        model: the family of MDPs.
        prior: the posterior before the log.
    """

    name: str
    model: AbstractFamily
    prior: Posterior

    def after(self, log: Transitions | None) -> Posterior:
        """The belief after a log."""
        update = getattr(self.prior, "update", None)
        if log is None:
            return self.prior
        if update is None:
            raise InputError(f"the prior of family {self.name!r} has no update(log), and there is a log")
        return update(log)


def import_family(name: str, options: dict[str, Any], folder: Path, trust: bool) -> Trusted:
    """Call `module:function(**options)`; modules in the problem file's folder are found first.

    The function gives a family and a prior, `(family, prior)`, or a family with an attribute `prior`.
    """
    if not trust:
        raise InputError(
            f"the problem file names the code {name!r}; it is imported and run only with --trust "
            "(in Python: read_problem(path, trust=True)), so look at it first"
        )
    module_name, function_name = name.split(":")
    sys.path.insert(0, str(folder))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        made = function(**options)
    except Exception as error:
        raise InputError(
            f"family {name!r} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        ) from None
    finally:
        sys.path.remove(str(folder))
    model, prior = made if isinstance(made, tuple) and len(made) == 2 else (made, getattr(made, "prior", None))
    if not isinstance(model, AbstractFamily) or not isinstance(prior, Posterior):
        raise InputError(
            f"family {name!r} must give a family and its prior, (family, prior), or a family with a prior; "
            f"it gave {type(model).__name__} and {type(prior).__name__}"
        )
    return Trusted(name, model, prior)
