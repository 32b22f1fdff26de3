"""What an answer stands on, by the names of the problem; and before there is an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..problems import Case
from ..report.data import LeantOn, Standing, UnderPrior

if TYPE_CHECKING:
    from ..objectives import Footing

# Thin pairs that are named.
MOST_PAIRS = 12

# Draws on which a plan is judged before anything is solved.
MEAN_PLAN_DRAWS = 1000

# Most states of a problem in which a plan is judged before anything is solved.
MOST_STATES = 128


def standing_of(case: Case, footing: Footing) -> Standing:
    """A footing in the names of its problem."""
    named = footing.pairs[:MOST_PAIRS]
    states, actions = case.facts.states, case.facts.actions
    word = footing.word
    return Standing(
        word=None if word is None else word.name.lower(),
        message=footing.reason if word is None else word.value,
        few=footing.few,
        time=None if word is None else footing.time,
        tail_time=None if word is None else footing.tail_time,
        exceeded=None if word is None else footing.exceeded,
        pairs=tuple(LeantOn(states[p.pair[0]], actions[p.pair[1]], p.rows, p.time, p.tail_time) for p in named),
        pairs_left_out=len(footing.pairs) - len(named),
        others=tuple(UnderPrior(other.name, other.risk, other.exceeded, other.gain) for other in footing.others),
    )


def standing_from(said: dict[str, Any] | None) -> Standing | None:
    """A standing as it was written to `solution.json`."""
    if said is None:
        return None
    pairs = tuple(LeantOn(**pair) for pair in said["pairs"])
    return Standing(**said | {"pairs": pairs, "others": tuple(UnderPrior(**other) for other in said["others"])})


def standing_before(case: Case) -> Standing | None:
    """What a plan for the posterior mean would stand on, before anything is solved; None where that takes long."""
    if case.family is not None or case.shape[0] > MOST_STATES:
        return None
    from ..losses import ExpectedCost

    arguments = case.arguments()
    if not isinstance(arguments["loss"], ExpectedCost):
        return None
    return standing_of(case, _of_mean_plan(**{name: arguments[name] for name in ("model", "belief", "risk", "seed")}))


def _of_mean_plan(model: Any, belief: Any, risk: Any, seed: int) -> Footing:
    """What the plan for the posterior mean would stand on, for expected costs: by NumPy, with nothing compiled."""
    import numpy as np

    from ..arrays import as_key, key_words
    from ..evaluation import judged
    from ..objectives import costs_at, plainly
    from ..planning import plan_many
    from ..solvers import fresh_draws

    words, mean = key_words(as_key(seed)), np.asarray(belief.mean())
    chosen = plan_many(model.support, mean[None], costs_at(model, mean[None]), float(model.discount)).action[0]
    table, objective = np.eye(model.support.actions)[chosen], model.objective()
    draws = fresh_draws(belief, words, MEAN_PLAN_DRAWS)
    answer = judged(risk, plainly(objective, table, draws.thetas)[0], draws)
    return objective.footing(belief, risk, table, answer, words)
