"""The parts of a record: a difference, drivers, what a risk stands on; and how their values are checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..errors import InputError

if TYPE_CHECKING:
    from ..objectives import Evidence
    from ..proofs import Proof

# Shares that are sums may be above 1 by this much.
ROUNDING = 1e-9

# Pairs with few rows that are named.
MOST_PAIRS = 12

# Share of discounted time from which a pair is relied on.
RELIED_ON = 1e-4


def _known(value: Any) -> Any:
    """A number as JSON has it: NaN and infinities, which it has not, are null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _array(value: Any) -> Any:
    if value is not None and (not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub"):
        raise ValueError("should be an array of numbers")
    return None if value is None else value.astype(np.float64, copy=False)


def _finite(value: Any) -> Any:
    value = _array(value)
    if value is not None and not np.all(np.isfinite(value)):
        raise ValueError("should be finite numbers")
    return value


Item = TypeVar("Item")
Kind = TypeVar("Kind", bound="Part")
Several = Annotated[tuple[Item, ...], Field(strict=False)]
Two = Annotated[tuple[Item, Item], Field(strict=False)]
Number = Annotated[float | None, BeforeValidator(_known)]
Share = Annotated[float, Field(ge=0.0, le=1.0 + ROUNDING)]
MaybeShare = Annotated[Share | None, BeforeValidator(_known)]
Count = Annotated[int, Field(ge=0)]
History = Annotated[np.ndarray, BeforeValidator(_array), Field(exclude=True)]
Array = Annotated[np.ndarray, BeforeValidator(_finite), Field(exclude=True)]
Table = Annotated[np.ndarray | None, BeforeValidator(_finite), Field(exclude=True)]


class Part(BaseModel):
    """Values that are checked when it is made; the first that is wrong is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place, cause = ".".join(map(str, first["loc"])), first.get("ctx", {}).get("error")
            raise InputError(": ".join(filter(None, (place, str(cause or first["msg"]))))) from None

    @classmethod
    def of(cls: type[Kind], found: Any, **more: Any) -> Kind:
        """The part that says what was found: fields are attributes of it by their names, or else given."""
        named = (name for name in cls.model_fields if name not in more and hasattr(found, name))
        return cls(**{name: _plain(getattr(found, name)) for name in named} | more)


def _plain(value: Any) -> Any:
    """A value as a part has it: arrays of JAX as NumPy's, single numbers as Python's, lists as tuples."""
    if hasattr(value, "__array__"):
        value = np.asarray(value)
        return value.item() if value.ndim == 0 else value
    return tuple(value) if isinstance(value, list) else value


def require_pairs(name: str, table: np.ndarray | None, pairs: tuple[int, ...], most: float = np.inf) -> None:
    """Refuse a table of other pairs, or with numbers that none has."""
    if table is not None and table.shape != pairs:
        raise InputError(f"the record's {name} must be [S, A] = {pairs}, got {table.shape}")
    if table is not None and not (np.all(table >= 0.0) and np.all(table <= most + ROUNDING)):
        raise InputError(f"the record's {name} must be {'0 or more' if most > 1.0 else 'in [0, 1]'}")


class Difference(Part):
    """The risk of one policy less that of another on the same draws.

    Attributes:
        value: the difference.
        standard_error: what chance leaves open, draw by draw; 0 where the draws are the whole posterior.
        low, high: 95 % confidence interval; both the value where the draws are the whole posterior.
        confidence: what the interval holds: "95 %", "95 % nominally: ..." or "exact".
    """

    value: Number
    standard_error: Number
    low: Number
    high: Number
    confidence: str = "95 %"

    @property
    def clear(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return (self.low is not None and self.low > 0.0) or (self.high is not None and self.high < 0.0)


class DriverRecord(Part):
    """One unknown number that the risk's weights pull away from its posterior mean, by more than chance.

    Attributes:
        name: such as "worn, run → broken" or "slip".
        plain: its posterior mean.
        weighted: its mean under the density xi* that attains the risk.
        shift: the difference, in posterior standard deviations.
        standard_error: of the shift by chance alone, if this unknown had nothing to do with the loss; 0 where the draws
            are the whole posterior.
    """

    name: str
    plain: Number
    weighted: Number
    shift: Number
    standard_error: Number


class PairRecord(Part):
    """A pair with few rows: its rows, and the shares of discounted time spent there, in all and in the tail."""

    state: str
    action: str
    rows: Annotated[float, Field(ge=0.0)]
    time: Share
    tail_time: MaybeShare = None


class PriorRecord(Part):
    """The answer under another prior for the same rows.

    Attributes:
        name: the prior, in words.
        risk: of the answer there.
        exceeded: share of draws in which its loss is above the risk that was stated.
        gain: how much less the best plan for the prior's mean loses there, or None.
    """

    name: str
    risk: Number
    exceeded: Share
    gain: Number


class EvidenceRecord(Part):
    """What a risk stands on.

    Attributes:
        word: `sound`, `thin` or `unsupported`; None where it cannot be said.
        message: which conditions made the word, with their numbers, or why there is none.
        few: rows below which a pair is thin.
        time, tail_time: shares of discounted time in thin pairs, over the posterior and under the risk's weights; None
            without a word.
        cost_share: share of what the costs vary by that falls to thin pairs; None without a word.
        exceeded: the largest probability under one of the priors that the loss is above the stated risk; None without
            a word.
        own: that chance under the posterior itself, on the draws that the risk is stated on; None without a word.
        pairs: the thin pairs it leans on most.
        pairs_left_out: how many more there are.
        others: the answer under other priors.
    """

    word: Literal["sound", "thin", "unsupported"] | None
    message: str
    few: Count
    time: MaybeShare = None
    tail_time: MaybeShare = None
    cost_share: MaybeShare = None
    exceeded: MaybeShare = None
    own: MaybeShare = None
    pairs: Several[PairRecord] = ()
    pairs_left_out: Count = 0
    others: Several[PriorRecord] = ()


class CoverageRecord(Part):
    """How much of what the answer does the log has seen; of the pairs, those with more than one possible outcome.

    Attributes:
        few: rows below which a pair is thin.
        transitions: in the log.
        pairs, unseen: how many pairs there are, and how many of them were never seen.
        some_certain: whether there are pairs with one possible outcome, which are left out here.
        unseen_time, thin_time: shares of the answer's discounted time in pairs never seen, and in thin ones.
        relied_on: the thin pairs that it relies on, most time for each row first.
        more: how many more there are.
        shared: whether the model ties pairs together, so that rows of the others tell of a pair that was never seen.
    """

    few: Count
    transitions: Annotated[float, Field(ge=0.0)]
    pairs: Count
    unseen: Count
    some_certain: bool
    unseen_time: Share
    thin_time: Share
    relied_on: Several[PairRecord]
    more: Count
    shared: bool = False


class ProofRecord(Part):
    """What was proved of all stationary policies, or of all deterministic ones.

    Attributes:
        risk: of the best policy found, on the draws of the proof.
        lower_bound, gap: no policy has less there; the risk less that.
        known_bound: nor has a policy that is told theta less than this.
        draws, exact: on how many draws, and whether they are the whole posterior.
        deterministic: whether only policies with one action in each state count.
        boxes: that were bounded.
        lines: label and text of each line of the summary.
    """

    risk: Number
    lower_bound: Number
    gap: Number
    known_bound: Number
    draws: Annotated[int, Field(ge=1)]
    exact: bool
    deterministic: bool
    boxes: Count
    lines: Several[Two[str]]


def proof_record(proof: Proof) -> ProofRecord:
    """A proof as a part of a record."""
    return ProofRecord.of(proof, draws=len(proof.draws), boxes=proof.nodes, lines=tuple(proof.rows()))


class CertificateRecord(Part):
    """What the certificate says beyond bound and gap.

    Attributes:
        draws: how many of the draws bound and gap were found on, the first ones.
        exact: whether they are the whole posterior.
        no_bound_because: why there is no lower bound.
        gap_confidence: what the limit of the gap holds.
        in_sample: objective on the draws the policy was fitted to.
        stationarity: what any change of the policy gains at most, to first order.
        drivers_considered: how many unknowns were looked at for the drivers.
        limited: whether bound and gap are about policies that keep the limits on these draws.
    """

    limited: bool = False
    draws: Count
    exact: bool
    no_bound_because: str | None
    gap_confidence: str
    in_sample: Number
    stationarity: Number
    drivers_considered: Count


class ProblemRecord(Part):
    """The problem file and the digest of the question."""

    file: str
    digest: str


def evidence_record(evidence: Evidence, states: Any, actions: Any) -> EvidenceRecord:
    """A evidence in the names of its problem."""
    named = evidence.pairs[:MOST_PAIRS]
    word: Any = evidence.word
    if word is None:
        return EvidenceRecord(word=None, message=evidence.reason, few=evidence.few)
    return EvidenceRecord.of(
        evidence,
        word=word.name.lower(),
        message=evidence.message(),
        pairs=tuple(PairRecord.of(each, state=states[each.pair[0]], action=actions[each.pair[1]]) for each in named),
        pairs_left_out=len(evidence.pairs) - len(named),
        others=tuple(PriorRecord.of(other) for other in evidence.others),
    )


def coverage_record(
    counts: np.ndarray,
    certain: np.ndarray,
    occupancy: np.ndarray,
    states: Sequence[str],
    actions: Sequence[str],
    few: int,
    shared: bool = False,
) -> CoverageRecord:
    """How much of a policy's time is spent where the log says little, and in which pairs most.

    Args:
        counts: `[S, A]` rows of each pair.
        certain: `[S, A]` which pairs have one possible outcome, so that there is nothing to see.
        occupancy: `[S, A]` discounted visits of the policy.
        states: names.
        actions: names.
        few: rows below which a pair is thin.
        shared: whether rows of one pair tell of others.
    """
    shares = occupancy / occupancy.sum()
    unseen, thin = ~certain & (counts <= 0), ~certain & (counts < few)
    relied = np.argwhere(thin & (shares >= RELIED_ON)).tolist()
    relied.sort(key=lambda pair: -shares[*pair] / (counts[*pair] + 1.0))
    return CoverageRecord(
        few=few,
        transitions=float(counts.sum()),
        pairs=int((~certain).sum()),
        unseen=int(unseen.sum()),
        some_certain=bool(certain.any()),
        unseen_time=float(shares[unseen].sum()),
        thin_time=float(shares[thin].sum()),
        relied_on=tuple(
            PairRecord(state=states[s], action=actions[a], rows=float(counts[s, a]), time=float(shares[s, a]))
            for s, a in relied[:MOST_PAIRS]
        ),
        more=max(len(relied) - MOST_PAIRS, 0),
        shared=shared,
    )
