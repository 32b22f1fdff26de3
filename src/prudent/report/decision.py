"""What to do: the policy as a rule in words, the choices that come up, and how much each of them matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from .parts import Count, Difference, Part, Several, Share, Two
from .words import clean, number, percent, several

# Names that a rule lists of a group of states, groups that it may have, and pieces that an ordered one may have.
MOST_NAMES, MOST_GROUPS, MOST_PIECES = 8, 6, 8

# Names that stand for an amount.
NUMBERED = re.compile(r"[-−+]?\d")

# From this probability on an action is called the one that is taken.
SURE = 0.995


class ChoiceRecord(Part):
    """A state that comes up, and what is done there.

    Attributes:
        state: its name.
        number: its number.
        act: what the policy does there, in words.
        time: share of discounted time that the policy spends there.
        other: the best action found in the place of what the policy does; None where none was tried.
        cost: what always taking it there adds to the risk, on the same draws; None where none was tried.
        verdict: `matters`, a `toss-up` that the draws cannot tell, `small` (below a hundredth of the spread of losses),
            `better` if the other action is, `rare` for a state that the policy hardly meets, or `unknown`.
        plans: names of other plans, and what they do there where that is something else.
    """

    state: str
    number: Count
    act: str
    time: Share
    other: str | None = None
    cost: Difference | None = None
    verdict: Literal["matters", "toss-up", "small", "better", "rare", "unknown"]
    plans: Several[Two[str]] = ()


class DecisionRecord(Part):
    """What to do in the states that come up.

    Attributes:
        rule: in words; empty where it takes a table.
        certain: the rule of the best deterministic policy found, where the policy leaves something to chance.
        others: names of other plans, those that agree together, with their rule where it differs.
        choices: the states that the policy meets, and those where plans disagree.
        left_out: how many more there are.
        alike: states that come up in which all actions come to the same; they are not among the choices.
        least_time: the share of discounted time from which on a state comes up.
        draws: how many draws the costs were found on; 0 where none was tried.
        screened: whether the action to try was chosen by a first-order estimate of its cost, not among all.
        starts, ends, walls: numbers of states where it begins, of those that are never left, and of those out of reach.
    """

    rule: str = ""
    certain: str = ""
    others: Several[Two[str]] = ()
    choices: Several[ChoiceRecord] = ()
    left_out: Count = 0
    alike: Count = 0
    least_time: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    draws: Count = 0
    screened: bool = False
    starts: Several[Count] = ()
    ends: Several[Count] = ()
    walls: Several[Count] = ()


def act_words(row: Sequence[float], actions: Sequence[str]) -> str:
    """What a row of probabilities does.

    >>> act_words([0.0, 1.0], ["run", "service"]), act_words([0.18, 0.82], ["run", "service"])
    ('service', 'service (82 %) or run (18 %)')
    """
    order = sorted(range(len(row)), key=lambda action: -row[action])
    if row[order[0]] >= SURE:
        return actions[order[0]]
    return " or ".join(f"{actions[a]} ({percent(float(row[a]))})" for a in order if row[a] > 1.0 - SURE)


def rule_words(acts: Sequence[str], states: Sequence[str], numbers: Sequence[int], ordered: bool) -> str:
    """A rule: thresholds where the states have an order, else the states of each action; empty where it is too long.

    Args:
        acts: what is done in each state that comes up.
        states: their names.
        numbers: their numbers, rising.
        ordered: whether the order of the numbers means something; it is spoken of where names begin with a number.

    >>> rule_words(["keep", "keep", "replace"], ["0", "5", "10"], [0, 1, 2], True)
    'keep below 10, replace from 10 on'
    >>> rule_words(["run", "fix", "run"], ["new", "worn", "idle"], [0, 1, 2], False)
    'run in new and idle; fix in worn'
    >>> rule_words(["run", "run"], ["new", "worn"], [0, 1], True)
    'always run'
    """
    if not acts:
        return ""
    if len(set(acts)) == 1:
        return f"always {acts[0]}"
    begins = [k for k in range(len(acts)) if k == 0 or acts[k] != acts[k - 1]]
    if ordered and speaks_of_order(states) and len(begins) <= MOST_PIECES:
        return _thresholds(acts, states, numbers, begins)
    groups: dict[str, list[str]] = {}
    for act, state in zip(acts, states, strict=True):
        groups.setdefault(act, []).append(state)
    if len(groups) > MOST_GROUPS:
        return ""
    return "; ".join(f"{act} in {_listed(names)}" for act, names in groups.items())


def speaks_of_order(states: Sequence[str]) -> bool:
    """Whether a rule for these states, if they are in an order, is one of thresholds: names are amounts.

    >>> speaks_of_order(["0 miles", "5k miles", "10k miles"]), speaks_of_order(["new", "used", "worn"])
    (True, False)
    """
    return len(states) > 2 and all(NUMBERED.match(state) for state in states)


def _thresholds(acts: Sequence[str], states: Sequence[str], numbers: Sequence[int], begins: list[int]) -> str:
    parts = []
    for place, begin in enumerate(begins):
        end = (begins[place + 1] if place + 1 < len(begins) else len(acts)) - 1
        if place == len(begins) - 1:
            where = f"from {states[begin]} on"
        elif place > 0:
            where = f"at {states[begin]}" if begin == end else f"from {states[begin]} to {states[end]}"
        else:
            # States in between that do not come up belong to neither side.
            near = numbers[end] + 1 == numbers[end + 1]
            where = f"below {states[end + 1]}" if near else f"up to {states[end]}"
        parts.append(f"{acts[begin]} {where}")
    return ", ".join(parts)


def _listed(names: Sequence[str]) -> str:
    shown = [clean(name) for name in names[:MOST_NAMES]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {several(more, 'more state')}"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def cost_words(choice: ChoiceRecord) -> str:
    """What the other action costs there, with its standard error.

    >>> cost_words(ChoiceRecord(state="new", number=0, act="run", time=0.5, verdict="unknown"))
    'not tried'
    """
    cost = choice.cost
    if cost is None or cost.value is None:
        return "hardly met" if choice.verdict == "rare" else "not tried"
    sign = "+" if cost.value > 0 else ""
    error = "" if not cost.standard_error else f" ± {number(cost.standard_error, 2)}"
    return f"{sign}{number(cost.value, 2)}{error}"


VERDICTS = {
    "matters": "matters",
    "toss-up": "toss-up",
    "small": "hardly matters",
    "better": "lower risk",
    "rare": "hardly met",
    "unknown": "not known",
}
