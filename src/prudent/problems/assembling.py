"""A problem ready to be solved: names, start, successors and costs, checked; and the objects `pr.solve` takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily, TabularFamily
from ..posteriors import Dirichlet, OutcomeLaws, Pooled, Posterior, WithCosts
from ..solvers import Limit, checked_limits
from ..transitions import Transitions
from .costs import BelievedCosts, costs_of
from .facts import Facts, gather
from .limits import made_limits, refuse_idle_limits
from .memory import require_fit
from .outcomes import Laid, costs_by_outcome, laid_out
from .plain import changed, read_content
from .successors import moves_allowed, refuse_unlisted, said_to_lead, support_of
from .toml_file import parse
from .trusted import Trusted, import_family


@dataclass(frozen=True)
class Case:
    """A problem file with everything it names, checked; `arguments()` are those of `pr.solve`.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     case = pr.read_problem(pr.write_example(folder)[0])
    >>> case.states, case.shape
    (('new', 'used', 'worn', 'broken'), (4, 3, 4))

    Attributes:
        facts: what the files say.
        start: `[S]` distribution of the first state.
        terminal: `[S]` whether a state is never left.
        support: which successors each pair may have.
        costs: what pairs or moves cost, and how well that is known; None for a family.
        reachable: `[S]` whether a state can be reached from the start.
        family: the user's own model, imported because it was trusted; None without one.
        laid: outcomes along the successors, where rows share laws of them.
    """

    facts: Facts
    start: np.ndarray
    terminal: np.ndarray
    support: Support
    costs: BelievedCosts | None
    reachable: np.ndarray
    family: Trusted | None = None
    laid: Laid | None = None

    @property
    def states(self) -> tuple[str, ...]:
        """Names by number."""
        return self.facts.states.all()

    @property
    def actions(self) -> tuple[str, ...]:
        """Names by number."""
        return self.facts.actions.all()

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(S, A, B)` of the kernel."""
        return self.support.shape

    @property
    def drawn_costs(self) -> int:
        """How many costs of each pair are drawn with its probabilities: none where they are known."""
        return 0 if self.costs is None or self.costs.spread is None else self.costs.mean[0, 0].size

    @property
    def cost(self) -> np.ndarray | None:
        """`[S, A]` or, where costs differ by the next state, `[S, A, B]` mean costs; None for a family."""
        return None if self.costs is None else self.costs.mean

    def counts(self) -> np.ndarray:
        """`[S, A]` how often each pair was seen."""
        log, table = self.facts.log, np.zeros(self.shape[:2])
        if log is not None:
            np.add.at(table, (log.state, log.action), log.count)
        return table

    def follower(self, state: int, action: int, slot: int) -> str:
        """What an entry of a pair's row is the chance of: a next state or, where rows share laws, an outcome."""
        outcome = "" if self.laid is None else self.laid.names[self.laid.law[state, action]][slot]
        return outcome or self.facts.states[self.support.index()[state, action, slot]]

    def arguments(self) -> dict[str, Any]:
        """The arguments of `pr.solve` that this problem stands for: `pr.solve(**case.arguments())`."""
        file = self.facts.file
        model, belief = self._model_and_belief()
        return {
            "model": model,
            "belief": belief,
            "risk": file.risk.made(),
            "loss": self.facts.loss(),
            "solver": self.solver(),
            "seed": file.seed,
        } | ({"subject_to": self.limits()} if file.limit else {})

    def limits(self) -> list[Limit]:
        """What a policy has to keep."""
        return made_limits(self.facts.file.limit, self.facts.limits, self.facts.source)

    @property
    def model(self) -> AbstractFamily:
        """The family."""
        return self._model_and_belief()[0]

    @property
    def belief(self) -> Posterior:
        """The posterior with the whole log."""
        return self._model_and_belief()[1]

    def solver(self) -> Any:
        """The solver that the file asks for."""
        return self.facts.file.solver.made(self.shape)

    def _model_and_belief(self) -> tuple[AbstractFamily, Posterior]:
        """The family and the posterior with the whole log."""
        facts, costs, log = self.facts, self.costs, None
        if (seen := facts.log) is not None:
            log = Transitions(seen.state, seen.action, seen.next_state, seen.count, *self.shape[:2])
        if self.family is not None:
            return self.family.model, self.family.after(log)
        prior = self._prior()
        belief = prior if log is None else prior.update(log)
        assert costs is not None
        known = costs.spread is None
        model = TabularFamily(self.support, costs.mean if known else None, self.start, facts.file.discount)
        return model, belief if known else WithCosts(belief, costs.mean, costs.spread, costs.degrees, costs.group)

    def _prior(self) -> Dirichlet | Pooled | OutcomeLaws:
        """What is believed of the table before the log."""
        facts, said = self.facts, self.facts.file.posterior
        if said.pooled:
            return Pooled(self.support, grid=facts.file.layout.grid)
        weight = said.prior or 1.0
        if facts.outcomes is None:
            return Dirichlet.symmetric(self.support, weight)
        laid = self.laid
        assert laid is not None
        seen = np.zeros((len(facts.outcomes.laws) + 1, self.shape[2]))
        for law, outcome, count in () if facts.outcomes.seen is None else facts.outcomes.seen:
            seen[int(law), laid.slot[int(law), int(outcome)]] += count
        # Laws that no pair has, such as that of pairs without a way out where every pair has one, are left out.
        used, law = np.unique(laid.law, return_inverse=True)
        names = tuple(laid.names[k] for k in used)
        return OutcomeLaws(self.support, law.reshape(self.shape[:2]), weight, seen=seen[used], names=names)

    def with_log(self, sources: Any, again: bool = False) -> Case:
        """The same problem after more has been observed; a path, a frame or a list of them.

        A log that was counted before, by its path or by its rows, is refused unless it is to count `again`.
        """
        several = sources if isinstance(sources, list | tuple) else [sources]
        return case_of(self.facts.with_log(several, again), self.family)

    def digest(self) -> str:
        """A number for the question asked: names, log, model, loss and risk; not how it is solved."""
        facts = self.facts
        content = facts.file.model_dump(mode="json")
        said = {key: content[key] for key in ("discount", "family", "options", "posterior", "risk", "loss")}
        said |= {"limit": content["limit"]} if facts.file.limit else {}
        if facts.file.posterior.pooled or facts.file.posterior.rule is not None:
            # Pooled rows learn from moves along the grid, and a rule says how far along it a step may lead.
            said["grid"] = content["layout"]["grid"]
        text = json.dumps([said, self.states, self.actions], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        log = facts.log
        seen = [] if log is None else [log.state, log.action, log.next_state, log.count]
        spread = None if self.costs is None else self.costs.spread
        known = facts.outcomes
        tables = [None, None] if known is None else [known.moves, known.seen]
        for array in (self.start, self.cost, spread, facts.target, facts.listed, *tables, *seen, *facts.limits):
            digest.update(b"|" if array is None else np.ascontiguousarray(array).tobytes() + b"|")
        return digest.hexdigest()


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

        return linear_case(content, str(path), path.resolve().parent, text, frames)
    file = parse(content, str(path), text)
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
    limits = checked_limits(made_limits(facts.file.limit, facts.limits, facts.source))
    discount = facts.file.discount if family is None else float(family.model.discount)
    refuse_idle_limits(facts.file.limit, facts.limits, limits, discount or 0.0)
    if family is not None:
        none = np.zeros(states, dtype=bool)
        return Case(facts, np.asarray(family.model.start), none, family.model.support, None, ~none, family)
    facts.loss()
    start = _start(facts)
    terminal = _terminal(facts)
    laid = None
    if facts.outcomes is None:
        moves = moves_allowed(facts, terminal)
        support = support_of(facts, terminal, moves)
    else:
        laid = laid_out(facts, terminal)
        support, moves = laid.support, facts.outcomes.moves[:, [0, 1, 3]]
        refuse_unlisted(facts, terminal, moves)
    support = support.named(facts.states.all(), facts.actions.all())
    reachable = support.reachable(start)
    _refuse_open_pairs(facts, moves, terminal, reachable)
    if laid is not None and facts.outcomes is not None and facts.outcomes.costs is not None:
        if facts.costs is not None:
            raise InputError(
                f"{facts.source}: costs are given by data.costs and by the column cost of posterior.outcomes; remove "
                "one of them"
            )
        costs = BelievedCosts(costs_by_outcome(facts, laid, terminal), note="of each outcome, given")
    else:
        costs = costs_of(facts, support, terminal, reachable)
    case = Case(facts, start, terminal, support, costs, reachable, laid=laid)
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
