"""A problem ready to be solved, of any kind: the arguments of `pr.solve`, its names, its rivals, its digest."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..kernels import Support
from ..models import AbstractFamily, TabularFamily
from ..posteriors import Dirichlet, OutcomeLaws, Pooled, Posterior, WithCosts
from ..transitions import Transitions
from .costs import BelievedCosts
from .counted import digest_of_arrays
from .facts import Facts
from .limits import build_limits
from .outcomes import OutcomeLayout
from .schema import parse

if TYPE_CHECKING:
    from ..solvers import Solution
    from .assembling import Trusted

# The table of posterior draws has a column for each unknown, up to this many.
MOST_UNKNOWNS = 200


class AbstractCase(ABC):
    """What a run needs of a problem, of whatever kind its model is.

    What only problems of states and actions have is asked for by `table()`.

    Attributes:
        facts: the file, its log, its source and the logs that were counted.
        states, actions: names by number.
        shape: sizes of states, actions and next states, by which memory is estimated.
    """

    facts: Any

    @property
    def file(self) -> Any:
        """The file's content."""
        return self.facts.file

    @property
    def source(self) -> str:
        """The problem file, for messages."""
        return self.facts.source

    @property
    def log(self) -> Any:
        """All that was observed, or None."""
        return self.facts.log

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """Names by number."""

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """Names by number."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """How large a model is."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The arguments of `pr.solve` that this problem stands for: `pr.solve(**case.arguments())`."""

    @abstractmethod
    def digest(self) -> str:
        """A number for the question asked: names, log, model, loss and risk; not how it is solved."""

    @abstractmethod
    def describe(self) -> list[tuple[str, str]]:
        """What was understood, as (label, text)."""

    @abstractmethod
    def seen(self) -> dict[str, Any]:
        """What the log has, as plain numbers."""

    @abstractmethod
    def rivals(self, arguments: dict[str, Any], iterations: int) -> dict[str, tuple[Any, str]]:
        """Other ways to plan, as far as there are any: by name the policy, and how its planner ended.

        Args:
            arguments: of `solve`.
            iterations: that were made for the answer.
        """

    @abstractmethod
    def unknowns(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Names of the numbers theta is made of that are not known, and their places in a flattened theta.

        None where they are too many for the columns of a table.
        """

    @abstractmethod
    def driver_name(self, *place: int) -> str | None:
        """What an unknown is called that drives the risk; None where a family names its own."""

    @abstractmethod
    def why_infinite(self, solution: Solution) -> str:
        """What to say of a policy whose loss is infinite at some draw."""

    @abstractmethod
    def _after(self, facts: Any) -> Any:
        """The case of other facts, checked."""

    def table(self) -> Case | None:
        """The case itself, where it is one of states and actions."""
        return None

    def require_table(self, what: str) -> Case:
        """The case itself; refuse one that is not of states and actions, for which something is."""
        if (table := self.table()) is None:
            raise InputError(
                f"{self.source}: {what} is for problems of states and actions, this one is of a linear system"
            )
        return table

    def solver(self) -> Any:
        """The solver that the file asks for."""
        return self.file.solver.build(self.shape)

    def with_log(self, sources: Any, again: bool = False, only_new: bool = False) -> Any:
        """The same problem after more has been observed; a path, a frame or a list of them.

        A log that was counted before, by its path or by its rows, or that begins with logs that were, is refused
        unless it is to count `again`, or only its rows behind those are.
        """
        several = sources if isinstance(sources, list | tuple) else [sources]
        return self._after(self.facts.with_log(several, again, only_new))

    def with_solver(self, settings: dict[str, Any]) -> Any:
        """The same problem with other settings of the solver, checked."""
        content = self.file.model_dump(mode="json", exclude_unset=True)
        content["solver"] = content.get("solver", {}) | settings
        file = parse(content, "the options", kind=type(self.file))
        return replace(self, facts=replace(self.facts, file=file))  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Case(AbstractCase):
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
        layout: outcomes along the successors, where rows share laws of them.
    """

    facts: Facts
    start: np.ndarray
    terminal: np.ndarray
    support: Support
    costs: BelievedCosts | None
    reachable: np.ndarray
    family: Trusted | None = None
    layout: OutcomeLayout | None = None

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
        outcome = "" if self.layout is None else self.layout.names[self.layout.law[state, action]][slot]
        return outcome or self.facts.states[self.support.index()[state, action, slot]]

    def arguments(self) -> dict[str, Any]:
        """The arguments of `pr.solve` that this problem stands for: `pr.solve(**case.arguments())`."""
        file, facts = self.facts.file, self.facts
        limits = build_limits(file.limit, facts.limits, facts.source)
        model, belief = self._model_and_belief()
        return {
            "model": model,
            "belief": belief,
            "risk": file.risk.build(),
            "loss": facts.loss(),
            "solver": self.solver(),
            "seed": file.seed,
        } | ({"subject_to": limits} if limits else {})

    @property
    def model(self) -> AbstractFamily:
        """The family."""
        return self._model_and_belief()[0]

    @property
    def belief(self) -> Posterior:
        """The posterior with the whole log."""
        return self._model_and_belief()[1]

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
        layout = self.layout
        assert layout is not None
        seen = np.zeros((len(facts.outcomes.laws) + 1, self.shape[2]))
        for law, outcome, count in () if facts.outcomes.seen is None else facts.outcomes.seen:
            seen[int(law), layout.slot[int(law), int(outcome)]] += count
        # Laws that no pair has, such as that of pairs without a way out where every pair has one, are left out.
        used, law = np.unique(layout.law, return_inverse=True)
        names = tuple(layout.names[k] for k in used)
        return OutcomeLaws(self.support, law.reshape(self.shape[:2]), weight, seen=seen[used], names=names)

    def digest(self) -> str:
        """A number for the question asked."""
        facts = self.facts
        content = facts.file.model_dump(mode="json")
        said = {key: content[key] for key in ("discount", "family", "options", "posterior", "risk", "loss")}
        said |= {"limit": content["limit"]} if facts.file.limit else {}
        if facts.file.posterior.pooled or facts.file.posterior.rule is not None:
            # Pooled rows learn from moves along the grid, and a rule says how far along it a step may lead.
            said["grid"] = content["layout"]["grid"]
        log, known = facts.log, facts.outcomes
        seen = [] if log is None else [log.state, log.action, log.next_state, log.count]
        spread = None if self.costs is None else self.costs.spread
        tables = [None, None] if known is None else [known.moves, known.seen]
        arrays = (self.start, self.cost, spread, facts.target, facts.listed, *tables, *seen, *facts.limits)
        return digest_of_arrays(arrays, json.dumps([said, self.states, self.actions], sort_keys=True))

    def describe(self) -> list[tuple[str, str]]:
        """What the problem asks, and what its log shows."""
        from .describing import describe

        return describe(self)

    def seen(self) -> dict[str, Any]:
        """How much of the problem the log has seen."""
        from .describing import log_coverage

        return log_coverage(self)

    def rivals(self, arguments: dict[str, Any], iterations: int) -> dict[str, tuple[Any, str]]:
        """The plans of `pr.rivals`."""
        from ..baselines import rivals, row_radius

        # A run that goes on makes a few iterations more; the risk-neutral one begins again and gets as many as all.
        solver = arguments["solver"]
        solver = replace(solver, iterations=max(iterations, solver.iterations))
        parts = {name: part for name, part in arguments.items() if name != "subject_to"} | {"solver": solver}
        radius, belief = self.file.rivals.robust_radius, arguments["belief"]
        belief = belief.posterior if isinstance(belief, WithCosts) else belief
        if radius is None and not isinstance(belief, Dirichlet):
            # The log's rows stand in for a Dirichlet's counts.
            counts = belief.rows() if isinstance(belief, OutcomeLaws) else self.counts()
            radius = row_radius(arguments["model"].support, counts + 1.0)
        made = rivals(**parts, radius=radius, evaluation=2)
        return {name: (plan.policy, plan.status.name) for name, plan in made.items()}

    def unknowns(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Probabilities by move or outcome, and costs that are not known."""
        if math.prod(shape) > 50 * MOST_UNKNOWNS:
            return {}
        if self.family is not None:
            named = {self.family.model.name_of(place, shape): k for k, place in enumerate(np.ndindex(*shape))}
            return named if len(named) <= MOST_UNKNOWNS else {}
        entry = self.support.allowed()
        free = entry & (entry.sum(axis=2, keepdims=True) > 1)
        if self.costs is not None and self.costs.spread is not None:
            free = np.concatenate([free, (self.costs.spread > 0).reshape(*self.shape[:2], -1)], axis=2)
        named = {}
        for place in np.argwhere(free).tolist():
            named.setdefault(self._unknown(*place), int(np.ravel_multi_index(place, shape)))
        return named if len(named) <= MOST_UNKNOWNS else {}

    def _unknown(self, state: int, action: int, slot: int) -> str:
        """The column of an unknown: the chance of a move or an outcome, or a cost."""
        if (outcome := self._outcome(state, action, slot)) is not None:
            return f"P({outcome})"
        pair, follower = f"{self.facts.states[state]}, {self.facts.actions[action]}", self._led_to(state, action, slot)
        if slot < self.shape[2]:
            return f"P({follower} | {pair})"
        return f"cost({pair})" if follower is None else f"cost({pair}, {follower})"

    def driver_name(self, *place: int) -> str | None:
        """The move that a probability or a cost belongs to."""
        if self.family is not None:
            return None
        if (outcome := self._outcome(*place)) is not None:
            return outcome
        state, action, slot = place
        follower = self._led_to(*place)
        move = f"{self.facts.states[state]}, {self.facts.actions[action]}" + (f" → {follower}" if follower else "")
        return move if slot < self.shape[2] else f"cost of {move}"

    def _outcome(self, state: int, action: int, slot: int) -> str | None:
        """What an entry of a law is the chance of, with the law's name where there are several; None without laws."""
        if self.layout is None or slot >= self.shape[2]:
            return None
        assert self.facts.outcomes is not None
        law, laws = int(self.layout.law[state, action]), self.facts.outcomes.laws
        outcome = self.follower(state, action, slot)
        return f"outcome {outcome}" if len(laws) < 2 or law >= len(laws) else f"{laws[law]} → {outcome}"

    def _led_to(self, state: int, action: int, slot: int) -> str | None:
        """The state that an entry of a row is about, probabilities before costs; None for the cost of the pair."""
        assert self.costs is not None
        if slot >= self.shape[2] and self.costs.mean.ndim == 2:
            return None
        return self.follower(state, action, slot % self.shape[2])

    def why_infinite(self, solution: Solution) -> str:
        """What to check."""
        return (
            f"the loss of the policy is not a finite number at every posterior draw ({solution.status.value}); "
            "check the costs"
        )

    def table(self) -> Case:
        """It is one of states and actions."""
        return self

    def _after(self, facts: Facts) -> Case:
        from .assembling import case_of

        return case_of(facts, self.family)
