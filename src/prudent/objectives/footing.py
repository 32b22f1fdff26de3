"""What an answer stands on, in a word: how much of it rests on few rows, and on the prior."""

from __future__ import annotations

import enum

from ..records import Record, field

# Rows below which a pair is thin.
FEW = 5

# The rule: from these values of `exceeded` on, an answer is thin or unsupported; from this `tail_time` on, it is thin;
# where both make it thin, it is unsupported.
THIN_FROM, UNSUPPORTED_FROM, THIN_TIME_FROM = 0.2, 0.4, 0.5


class Soundness(enum.Enum):
    """What an answer stands on, in a word; the value says what it means.

    >>> import prudent as pr
    >>> pr.Soundness.SOUND.warns, pr.Soundness.THIN.warns
    (False, True)
    """

    SOUND = (
        "averaged over several priors for the same rows, the chance of a loss above the stated risk is below 20 %, and "
        "less than half of the tail's time passes through pairs with few rows"
    )
    THIN = (
        "averaged over several priors for the same rows, the chance of a loss above the stated risk is 20 % or more, "
        "or half of the tail's time or more passes through pairs with few rows"
    )
    UNSUPPORTED = (
        "averaged over several priors for the same rows, the chance of a loss above the stated risk is 40 % or more, "
        "or 20 % or more where half of the tail's time or more passes through pairs with few rows"
    )

    @property
    def warns(self) -> bool:
        """Whether the stated risk is to be taken with caution."""
        return self is not Soundness.SOUND


class ThinPair(Record):
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

    pair: tuple[int, int] = field(static=True)
    rows: float
    time: float
    tail_time: float


class OtherPrior(Record):
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

    name: str = field(static=True)
    risk: float
    exceeded: float
    gain: float | None


class Footing(Record):
    """What an answer stands on.

    >>> import prudent as pr
    >>> records = [(0, 0, 0)] * 500 + [(0, 1, 0)] + [(1, 0, 1), (1, 1, 1)] * 500  # the shortcut, action 1, once
    >>> log = pr.Transitions.from_records(records, states=2, actions=2)
    >>> support = pr.Support.lists([[[0], [0]], [[1], [1]]], observed=True)
    >>> plant = pr.TabularFamily(support, cost=[[1.0, 0.0], [50.0, 50.0]], start=0, discount=0.9)
    >>> belief = pr.Dirichlet.symmetric(support).update(log)
    >>> footing = pr.evaluate([[0.0, 1.0], [0.0, 1.0]], plant, belief).footing
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

    word: Soundness | None = field(static=True)
    reason: str = field(static=True)
    few: int = field(static=True)
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
            f"pairs with fewer than {self.few} rows for {self.time:.1%} of its discounted time, "
            f"{self.tail_time:.1%} in the tail"
        )


def word_for(exceeded: float, tail_time: float) -> Soundness:
    """The rule: by how likely one who is undecided between priors finds the stated risk exceeded, and by the tail."""
    doubted, leaning = exceeded >= THIN_FROM, tail_time >= THIN_TIME_FROM
    if exceeded >= UNSUPPORTED_FROM or (doubted and leaning):
        return Soundness.UNSUPPORTED
    return Soundness.THIN if doubted or leaning else Soundness.SOUND
