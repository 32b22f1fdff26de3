"""A check that anyone's own risk can be put through: the laws of coherence, and what the solver relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays import in_float64, require_kind, require_size
from ..conformance import Conformance, Finding, explained, held_to
from ..errors import InputError
from .base import Risk, assess_sample

# What a law may be off by, as a share of the size of the losses: convex programs are solved to some 1e-8.
TOLERANCE = 1e-6
GRADIENT_TOLERANCE = 1e-4
STEP = 1e-4


# Each law with its statement.
LAWS = {
    "weights": "xi >= 0 and sum p xi = 1",
    "value": "rho(Z) = sum p xi Z",
    "translation": "rho(Z + c) = rho(Z) + c",
    "homogeneity": "rho(s Z) = s rho(Z) for s >= 0",
    "monotonicity": "Z <= Z' everywhere implies rho(Z) <= rho(Z')",
    "convexity": "rho(a Z + (1 - a) Z') <= a rho(Z) + (1 - a) rho(Z'), rho(Z + Z') <= rho(Z) + rho(Z')",
    "envelope": "the weights of one loss are no worse for another than its own, sum p xi(Z) Z' <= rho(Z')",
    "gradient": "the derivative of the value is p xi: against central differences, away from ties",
    "repetition": "the same value for a sample by itself and among others",
}
_FIXES = {
    "weights": "density must be >= 0 with sum p xi = 1; divide it by (probabilities * density).sum()",
    "value": "do not override the value: it follows from density",
    "translation": "adding a sure cost must not move the weights; use differences of losses",
    "homogeneity": "the weights must not change with the unit of the losses; divide the losses by a scale of theirs",
    "monotonicity": "a larger loss must not get a negative weight; limit the weight given to deviations",
    "convexity": "the value must be a maximum of means over a fixed set of densities",
    "envelope": "density must be the worst one of a fixed set of densities at every loss",
    "gradient": "density must be the maximiser of sum p xi C, exactly",
    "repetition": "density must not depend on anything but its arguments",
}


@in_float64
def check_risk(risk: Risk, *, samples: int = 200, draws: int = 7, seed: int = 0) -> Conformance:
    """Check that a risk is coherent and gives the weights that the gradient needs; refuse it by the first broken law.

    Args:
        risk: yours.
        samples: how many losses are tried, with ties, equal weights and weights of 0 among them.
        draws: the length of each.
        seed: of the losses.

    Returns:
        The worst violation of each law, as a share of the size of the losses; all of them within rounding.

    >>> import prudent as pr
    >>> report = pr.check_risk(0.5 * pr.CVaR(0.9) + 0.5 * pr.Expectation())
    >>> max(finding.worst for finding in report.findings) < 1e-6
    True
    """
    require_kind("risk", risk, Risk, "a risk such as CVaR(0.9); a sum of weighted risks is one when they sum to 1")
    samples, draws = require_size("samples", samples, 4), require_size("draws", draws, 2)
    trial = _Trial(risk, samples, draws, seed)
    return Conformance(type(risk).__name__, tuple(_held(risk, *broken) for broken in trial.laws()))


def _held(risk: Risk, law: str, amounts: np.ndarray, witness: Callable[[int], str]) -> Finding:
    def refusal(place: int) -> str:
        by = f"by {np.nan_to_num(amounts.flat[place], nan=np.inf):.3g}"
        return f"{type(risk).__name__} breaks the law of {law} ({LAWS[law]}) {by}: {witness(place)}; {_FIXES[law]}"

    return held_to(law, amounts, GRADIENT_TOLERANCE if law == "gradient" else TOLERANCE, refusal)


class _Trial:
    """Samples in a few groups of common weights, assessed in one batch."""

    def __init__(self, risk: Risk, samples: int, draws: int, seed: int):
        rng = np.random.default_rng(seed)
        self.risk, self.draws = risk, draws
        groups = max(1, min(8, samples // 4))
        self.weights = rng.dirichlet(np.ones(draws), size=groups)
        self.weights[::3] = 1.0 / draws
        self.weights[2::3, 0] = 0.0
        self.weights /= self.weights.sum(axis=1, keepdims=True)
        shape = (groups, samples // groups, draws)
        self.one = rng.normal(size=shape)
        self.one[:, ::3] = rng.integers(-2, 3, size=self.one[:, ::3].shape)
        self.other = np.roll(self.one, 1, axis=1)
        self.more = self.one + np.where(rng.uniform(size=shape) < 0.5, rng.exponential(size=shape), 0.0)
        self.share = rng.uniform(size=shape[:2])
        self.factor = 10.0 ** rng.uniform(-2, 2, size=shape[:2])
        self.sure = 10.0 * rng.normal(size=shape[:2])
        tried = {
            "one": self.one,
            "more": self.more,
            "sum": self.one + self.other,
            "mix": self.share[..., None] * self.one + (1.0 - self.share[..., None]) * self.other,
            "scaled": self.factor[..., None] * self.one,
            "moved": self.one + self.sure[..., None],
        }
        losses = np.concatenate([each.reshape(-1, draws) for each in tried.values()])
        weights = np.tile(np.repeat(self.weights, shape[1], axis=0), (len(tried), 1))
        values, densities = self._assess(losses, weights)
        cut = dict(zip(tried, np.split(values, len(tried)), strict=True))
        self.rho = {name: each.reshape(shape[:2]) for name, each in cut.items()}
        self.density = densities[: self.one.size // draws].reshape(shape)
        self.tried = losses, weights, densities, values

    def _assess(self, losses: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        called = f"{type(self.risk).__name__}.density"
        with explained(lambda error: f"{called} fails: {error}"):
            shape = self.risk.densities(losses[0], weights[0]).shape
            if shape != losses[0].shape:
                raise InputError(f"density gives shape {shape} for {self.draws} losses; one number a draw")
            return assess_sample(self.risk, losses, weights)

    def _sample(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        group, row = np.unravel_index(index, self.one.shape[:2])
        return self.one[group, row], self.weights[group]

    def _at(self, index: int) -> str:
        losses, weights = self._sample(index)
        return f"at losses {_short(losses)} with weights {_short(weights)}"

    def laws(self) -> Iterator[tuple[str, np.ndarray, Callable[[int], str]]]:
        """One law after the other: how much each sample breaks it, and where, in words."""
        losses, weights, densities, values = self.tried
        negative = -np.where(weights > 0, densities, 0.0).min(axis=1)
        mass = np.abs((weights * densities).sum(axis=1) - 1.0)
        where = lambda k: f"at losses {_short(losses[k])} density is {_short(densities[k])}"  # noqa: E731
        yield "weights", np.maximum(negative, mass), where
        away = np.abs((weights * densities * losses).sum(axis=1) - values) / np.maximum(1.0, np.abs(losses).max(axis=1))
        yield "value", away, lambda k: f"{values[k]:.6g} at losses {_short(losses[k])}"
        yield from self._coherence()
        yield "gradient", *self._gradient()
        yield "repetition", *self._repetition()

    def _coherence(self) -> Iterator[tuple[str, np.ndarray, Callable[[int], str]]]:
        one, rho, sure, factor, share = self.rho["one"], self.rho, self.sure, self.factor, self.share
        more, others = (part.reshape(-1, self.draws) for part in (self.more, self.other))
        away = np.abs(rho["moved"] - one - sure) / (1.0 + np.abs(sure))
        yield "translation", away, lambda k: f"adding {sure.flat[k]:.4g} adds another amount {self._at(k)}"
        away = np.abs(rho["scaled"] - factor * one) / np.maximum(1.0, factor)
        yield (
            "homogeneity",
            away,
            lambda k: f"{factor.flat[k]:.4g} times the losses is not as much riskier {self._at(k)}",
        )
        yield (
            "monotonicity",
            one - rho["more"],
            lambda k: f"larger losses {_short(more[k])} are less risky {self._at(k)}",
        )
        other = np.roll(one, 1, axis=1)
        away = np.maximum(rho["mix"] - share * one - (1.0 - share) * other, rho["sum"] - one - other)
        beside = lambda k: f"a sum or mean with {_short(others[k])} is riskier than its parts {self._at(k)}"  # noqa: E731
        yield "convexity", away, beside
        away = np.einsum("gr,gir,gjr->gji", self.weights, self.density, self.one) - one[:, :, None]
        rivals = np.take_along_axis(self.one, away.argmax(axis=2)[..., None], axis=1).reshape(-1, self.draws)
        worse = lambda k: f"the weights of losses {_short(rivals[k])} give a larger mean {self._at(k)}"  # noqa: E731
        yield "envelope", away.max(axis=2), worse

    def _gradient(self) -> tuple[np.ndarray, Any]:
        plain = np.flatnonzero(np.tile(np.arange(self.one.shape[1]) % 3 != 0, self.one.shape[0]))[:12]
        samples = [self._sample(int(k)) for k in plain]
        losses, weights = (np.stack(part) for part in zip(*samples, strict=True))
        moves = STEP * np.concatenate([np.eye(self.draws), -np.eye(self.draws), np.zeros((1, self.draws))])
        moved = (losses[:, None] + moves).reshape(-1, self.draws)
        values, _ = self._assess(moved, np.repeat(weights, len(moves), axis=0))
        values = values.reshape(len(losses), len(moves))
        forward = (values[:, : self.draws] - values[:, -1:]) / STEP
        backward = (values[:, -1:] - values[:, self.draws : -1]) / STEP
        slopes = weights * assess_sample(self.risk, losses, weights)[1]
        # Where the two sides differ much there is a kink: two losses tied, or one at a quantile or at the mean.
        smooth = np.abs(forward - backward) < 100 * STEP
        away = np.where(smooth, np.abs(slopes - 0.5 * (forward + backward)), 0.0)
        return away.max(axis=1), lambda k: f"away from the difference quotient {self._at(int(plain[k]))}"

    def _repetition(self) -> tuple[np.ndarray, Any]:
        chosen = np.linspace(0, self.one.size // self.draws - 1, 6).astype(int)
        alone = [float(assess_sample(self.risk, *self._sample(int(k)))[0]) for k in chosen]
        return np.abs(alone - self.rho["one"].flat[chosen]), lambda k: f"another value {self._at(int(chosen[k]))}"


def _short(values: np.ndarray) -> str:
    return " ".join(np.array2string(values, precision=3, threshold=8, edgeitems=3).split())
