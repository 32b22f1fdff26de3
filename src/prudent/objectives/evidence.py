"""What an answer stands on, in a word: how much of it rests on few rows, and on the prior."""

from __future__ import annotations

import enum

from ..records import Record, field

# Rows below which a pair is thin.
FEW = 5

# The rule, in tenths of a per cent. From these values of `exceeded` less `own` on, an answer is thin or unsupported.
# From these shares in thin pairs on, of discounted time, of that time in the tail and of what its costs vary by, an
# answer is thin. By both together it is unsupported. CVaR 0.9 has an `own` of about 4 points, a mean of about 50.
THIN_FROM, UNSUPPORTED_FROM = 120, 360
THIN_TIME_FROM, THIN_TAIL_FROM, THIN_COST_FROM = 100, 250, 500


class Soundness(enum.Enum):
    """What an answer stands on, in a word; the value says what it means, `Evidence.message` why it was chosen.

    >>> import prudent as pr
    >>> pr.Soundness.SOUND.warns, pr.Soundness.THIN.warns
    (False, True)
    """

    SOUND = (
        "no other prior for the same rows makes a loss above the stated risk 12 points likelier than the belief itself "
        "does; pairs with few rows take less than a tenth of the time, a quarter of the time in the tail and half "
        "of what the costs vary by"
    )
    THIN = (
        "another prior for the same rows makes a loss above the stated risk 12 to 36 points likelier than the belief "
        "itself does; or pairs with few rows take a tenth of the time, a quarter of the time in the tail or half "
        "of what the costs vary by"
    )
    UNSUPPORTED = (
        "another prior for the same rows makes a loss above the stated risk 36 points likelier than the belief itself "
        "does, or more; or 12 points or more, and pairs with few rows take a tenth of the time, a quarter of the time "
        "in the tail or half of what the costs vary by"
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


class Evidence(Record):
    """What an answer stands on.

    >>> import prudent as pr
    >>> records = [(0, 0, 0)] * 500 + [(0, 1, 0)] + [(1, 0, 1), (1, 1, 1)] * 500  # the shortcut, action 1, once
    >>> log = pr.Transitions.from_records(records, states=2, actions=2)
    >>> support = pr.Support.lists([[[0], [0]], [[1], [1]]], observed=True)
    >>> plant = pr.TabularFamily(support, cost=[[1.0, 0.0], [50.0, 50.0]], start=0, discount=0.9)
    >>> belief = pr.Dirichlet.symmetric(support).update(log)
    >>> evidence = pr.evaluate([[0.0, 1.0], [0.0, 1.0]], plant, belief).evidence
    >>> evidence.word.name, evidence.pairs[0].pair, evidence.pairs[0].rows
    ('UNSUPPORTED', (0, 1), 1.0)
    >>> print(evidence.message())  # doctest: +ELLIPSIS
    under the prior 'one row spread over all successors', the loss is above the stated risk with probability ...

    Attributes:
        word: sound, thin or unsupported; None where it cannot be said.
        reason: why it cannot be said; empty where it can.
        few: a pair with fewer rows than this is thin.
        time: share of its discounted time that the policy spends in thin pairs, the mean over the belief.
        tail_time: the same under the weights xi* of the risk: how much of its tail passes through them.
        cost_share: share of `sum time |cost - median cost|` that falls to thin pairs; 0 of a loss that is not linear.
        pairs: the thin pairs that it leans on, those with the most time for each row first.
        others: the policy under other priors.
        exceeded: the largest of their probabilities that the loss is above the stated risk; NaN without any.
        own: that chance under the belief itself, on the draws that the risk is stated on; NaN without a word.
    """

    word: Soundness | None = field(static=True)
    reason: str = field(static=True)
    few: int = field(static=True)
    time: float
    tail_time: float
    cost_share: float
    pairs: tuple[ThinPair, ...]
    others: tuple[OtherPrior, ...]
    exceeded: float
    own: float

    @staticmethod
    def unknown(reason: str) -> Evidence:
        """Nothing can be said, and why."""
        nan = float("nan")
        return Evidence(None, reason, FEW, nan, nan, nan, (), (), nan, nan)

    def rows(self) -> list[tuple[str, str]]:
        """Lines of a summary, as (label, text); none where nothing can be said."""
        if self.word is None:
            return []
        return [("evidence", f"{self.word.name.lower()}: {self.message()}"), ("leans on", self.leaning())]

    def message(self) -> str:
        """Name the conditions that made the word, with their numbers; the reason where there is no word."""
        if self.word is None:
            return self.reason
        more = excess_of(self.exceeded, self.own)
        limit = ("unsupported", UNSUPPORTED_FROM) if more >= UNSUPPORTED_FROM else ("thin", THIN_FROM)
        # Of two chances that are printed alike, which is the higher one is not said.
        apart = (
            f"{abs(more) / 10:.1f} points {'less' if more < 0 else 'more'} than"
            if more
            else "within 0.1 points of that"
        )
        worst = max(self.others, key=lambda other: other.exceeded)
        chance = (
            f"under the prior '{worst.name}', the loss is above the stated risk with probability "
            f"{_percent(self.exceeded)}, {apart} under the belief itself ({_percent(self.own)}; "
            f"{limit[0]} from {limit[1] // 10} points on)"
        )
        leaning = [text for text, fails in self._shares() if fails]
        if more >= THIN_FROM and leaning:
            both = [] if more >= UNSUPPORTED_FROM else ["both together are unsupported"]
            return "; ".join([chance, *leaning, *both])
        # A warning names what failed and nothing else; where nothing did, the numbers tell how near it was.
        return chance if more >= THIN_FROM else "; ".join(leaning or [chance, self._shares()[0][0]])

    def _shares(self) -> list[tuple[str, bool]]:
        """Return what is said of each share in thin pairs, and whether it makes the answer thin."""
        said = (
            (self.time, THIN_TIME_FROM, "of the discounted time passes through"),
            (self.tail_time, THIN_TAIL_FROM, "of the discounted time in the tail of the risk passes through"),
            (self.cost_share, THIN_COST_FROM, "of what the costs vary by falls to"),
        )
        rest = f"uncertain pairs with fewer than {self.few} rows"
        return [
            (f"{_percent(share)} {what} {rest} (thin from {limit // 10} % on)", tenths(share) >= limit)
            for share, limit, what in said
        ]

    def leaning(self) -> str:
        """Say how much of the answer passes through thin pairs."""
        return (
            f"uncertain pairs with fewer than {self.few} rows for {self.time:.1%} of its discounted time, "
            f"{self.tail_time:.1%} in the tail of the risk"
        )


def tenths(share: float) -> int:
    """A share in tenths of a per cent: what is printed is what decides."""
    return round(1000.0 * share)


def excess_of(exceeded: float, own: float) -> int:
    """How much likelier a loss above the stated risk is under the other priors, in tenths of a point.

    The difference of what is printed, so that no reader finds another one.
    """
    return tenths(exceeded) - tenths(own)


def word_for(exceeded: float, own: float, time: float, tail_time: float, cost_share: float = 0.0) -> Soundness:
    """Apply the rule: what the least favourable prior adds to the chance, and the shares that fall to thin pairs."""
    more = excess_of(exceeded, own)
    shares = ((time, THIN_TIME_FROM), (tail_time, THIN_TAIL_FROM), (cost_share, THIN_COST_FROM))
    doubted, leaning = more >= THIN_FROM, any(tenths(share) >= limit for share, limit in shares)
    if more >= UNSUPPORTED_FROM or (doubted and leaning):
        return Soundness.UNSUPPORTED
    return Soundness.THIN if doubted or leaning else Soundness.SOUND


def _percent(share: float) -> str:
    """In tenths; what is not nothing or not all does not look like it."""
    if share > 0.0 and tenths(share) == 0:
        return "under 0.1 %"
    if share < 1.0 and tenths(share) == 1000:
        return "over 99.9 %"
    return f"{tenths(share) / 10:.1f} %"
