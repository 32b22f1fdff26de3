"""What an answer stands on, in a word: how much of it rests on few rows, and on the prior."""

from __future__ import annotations

import enum

import equinox as eqx

# Rows below which a pair is thin.
FEW = 5

# The rule, by `exceeded`: below the first an answer is sound, from the second on it is unsupported.
THIN_FROM, UNSUPPORTED_FROM = 0.2, 0.4


class Soundness(enum.Enum):
    """What an answer stands on, in a word; the value says what it means.

    >>> import prudent as pr
    >>> pr.Soundness.SOUND.warns, pr.Soundness.THIN.warns
    (False, True)
    """

    SOUND = "averaged over several priors for the same rows, the chance of a loss above the stated risk is below 20 %"
    THIN = "averaged over several priors for the same rows, the chance of a loss above the stated risk is 20 % or more"
    UNSUPPORTED = (
        "averaged over several priors for the same rows, the chance of a loss above the stated risk is 40 % or more"
    )

    @property
    def warns(self) -> bool:
        """Whether the stated risk is to be taken with caution."""
        return self is not Soundness.SOUND


class ThinPair(eqx.Module):
    """A pair with few rows that the policy leans on.

    >>> import prudent as pr
    >>> pr.ThinPair((0, 1), rows=1.0, time=0.2, tail_time=0.4).rows
    1.0

    Attributes:
        pair: state and action.
        rows: how often the log has it; for tied pairs, all of them together.
        time: share of discounted time that the policy spends there, the mean over the belief.
        tail_time: the same under the weights xi* of the risk.
    """

    pair: tuple[int, int] = eqx.field(static=True)
    rows: float
    time: float
    tail_time: float


class OtherPrior(eqx.Module):
    """The policy under another prior for the same rows; where the belief is a `Pooled` one, under it, too.

    >>> import prudent as pr
    >>> pr.OtherPrior("seen successors only", risk=12.0, exceeded=0.25, gain=None).exceeded
    0.25

    Attributes:
        name: the prior, in words.
        risk: of the policy there.
        exceeded: share of its draws in which the loss is above the risk that was stated.
        gain: how much less the best policy for its mean table loses there; None where no planner finds that.
    """

    name: str = eqx.field(static=True)
    risk: float
    exceeded: float
    gain: float | None


class Footing(eqx.Module):
    """What an answer stands on.

    >>> import prudent as pr
    >>> support = pr.Support.dense(2, 2)
    >>> records = [(0, 0, 0)] * 500 + [(0, 1, 0)] + [(1, 0, 1), (1, 1, 1)] * 500
    >>> belief = pr.Dirichlet(support, support.allowed() / 100.0, support.allowed() * 0.0)
    >>> belief = belief.update(pr.Transitions.from_records(records, states=2, actions=2))
    >>> plant = pr.TabularFamily(support, cost=[[1.0, 0.0], [50.0, 50.0]], start=0, discount=0.9)
    >>> footing = pr.solve(plant, belief).footing
    >>> footing.word.name, footing.pairs[0].pair, footing.pairs[0].rows
    ('UNSUPPORTED', (0, 1), 1.0)

    Attributes:
        word: sound, thin or unsupported; None where it cannot be said.
        reason: why it cannot be said; empty where it can.
        few: a pair with fewer rows than this is thin.
        time: share of its discounted time that the policy spends in thin pairs, the mean over the belief.
        tail_time: the same under the weights xi* of the risk: how much of its tail passes through them.
        pairs: the thin pairs that it leans on, those with the most time for each row first.
        others: the policy under other priors.
        exceeded: the mean of their chances that the loss is above the stated risk; NaN without any.
    """

    word: Soundness | None = eqx.field(static=True)
    reason: str = eqx.field(static=True)
    few: int = eqx.field(static=True)
    time: float
    tail_time: float
    pairs: tuple[ThinPair, ...]
    others: tuple[OtherPrior, ...]
    exceeded: float

    @staticmethod
    def unknown(reason: str) -> Footing:
        """Nothing can be said, and why."""
        return Footing(None, reason, FEW, float("nan"), float("nan"), (), (), float("nan"))

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a summary, as (label, text); none where nothing can be said."""
        if self.word is None:
            return []
        return [("footing", f"{self.word.name.lower()}: {self.word.value}"), ("leans on", self.leaning())]

    def leaning(self) -> str:
        """How much of the answer passes through thin pairs."""
        return (
            f"pairs with fewer than {self.few} rows for {self.time:.0%} of its discounted time, "
            f"{self.tail_time:.0%} in the tail"
        )


def word_for(exceeded: float) -> Soundness:
    """The rule: how likely the stated risk is exceeded for one who is undecided between priors."""
    if exceeded >= UNSUPPORTED_FROM:
        return Soundness.UNSUPPORTED
    return Soundness.THIN if exceeded >= THIN_FROM else Soundness.SOUND
