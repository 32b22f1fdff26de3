"""A proof as a file that others can check: models, policy, cuts, and values that prove every leaf's bound."""

from __future__ import annotations

import json
from pathlib import Path

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..arrays import Array, in_float64, to_numpy
from ..errors import InputError
from ..files import write_whole
from ..objectives import Boxes
from ..risks import CVaR, Expectation, Mixture, Risk
from .prove import Proof
from .relaxation import bounded, risk_of_least
from .search import BATCH
from .tree import Tree

# Up to here values keep all their digits; beyond, half of them, and the bound is what those prove.
DOUBLE_BYTES = 64 * 2**20


def write_proof(proof: Proof, path: str | Path, digests: dict[str, str] | None = None) -> Path:
    """Write a proof for `prudent_verifier`, which shares no code with what found it.

    The claims in the file are what its own values prove; they may be below `proof.lower_bound` by their rounding.

    Args:
        proof: of an expected cost under the mean, CVaR or a mixture of these.
        path: of the file, in the safetensors format.
        digests: of the problem's files, to be written beside the claims.

    >>> import prudent as pr, prudent_verifier, tempfile, pathlib
    >>> lake = pr.envs.frozen_lake("SF\\nHG")
    >>> proof = pr.prove(lake, pr.Draws([[0.1, 0.2], [0.4, 0.1]]), risk=pr.CVaR(0.5), seconds=20.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     verdict = prudent_verifier.verify(pr.write_proof(proof, pathlib.Path(folder) / "proof.safetensors"))
    >>> verdict.draws, bool(abs(verdict.lower_bound - proof.lower_bound) < 1e-6)
    (2, True)
    """
    return write_whole(path, proof_file(proof, digests))


@in_float64
def proof_file(proof: Proof, digests: dict[str, str] | None = None) -> bytes:
    """What `write_proof` writes."""
    from safetensors.numpy import save

    parts = _tails(proof.measure)
    boxes = proof.objective.boxes(proof.draws.thetas)
    listed = None if boxes is None else boxes.listed()
    if parts is None or boxes is None or listed is None:
        raise InputError(
            "only proofs of a loss that is linear in the occupancy, under the mean, CVaR or a mixture of these, can be "
            "written for the verifier, which knows no others"
        )
    tree = Tree(listed["cost"].shape[1:], proof.deterministic, proof.cuts)
    share = np.asarray(proof.draws.probabilities)
    low, high = tree.boxes(tree.leaves())
    bound, values = _leaf_values(boxes, proof.measure, share, low, high)
    claims = {
        "lower_bound": min(bound, proof.risk),
        "risk": proof.risk,
        "gap": proof.risk - min(bound, proof.risk),
        "discount": float(listed.pop("discount")),
        "deterministic": proof.deterministic,
        "exact": proof.exact,
        "risk_parts": parts,
        "digests": digests or {},
    }
    arrays = {
        **listed,
        "share": share,
        "policy": np.asarray(proof.policy.probabilities),
        "values": values,
        **{name: getattr(proof.cuts, name) for name in ("child", "state", "action", "at")},
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(arrays, {"proof": json.dumps(claims, sort_keys=True)})


def _tails(risk: Risk) -> list[list[float]] | None:
    """A risk as weights and levels of means of tails; None for any other."""
    if isinstance(risk, Expectation):
        return [[1.0, 0.0]]
    if isinstance(risk, CVaR):
        return [[1.0, float(risk.level)]]
    if not isinstance(risk, Mixture):
        return None
    parts = [_tails(part) for part in risk.risks]
    if any(part is None for part in parts):
        return None
    weighted = zip(np.asarray(risk.weights).tolist(), parts, strict=True)
    return [[weight * share, level] for weight, part in weighted for share, level in part or []]


def _leaf_values(
    boxes: Boxes, risk: Risk, share: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[float, Float[np.ndarray, "L R S"]]:
    """Values that prove the bound of each leaf, and the least of these bounds."""
    count, states = len(low), low.shape[1]
    kind = np.float64 if 8 * count * share.size * states <= DOUBLE_BYTES else np.float32
    least, parts = np.inf, []
    for first in range(0, count, BATCH):
        rows = np.minimum(np.arange(first, first + BATCH), count - 1)
        values = np.zeros((BATCH, states, share.size), np.float32)
        values = to_numpy(bounded(boxes, risk, share, False, low[rows], high[rows], values)).values.astype(kind)
        proved = boxes.proved(low[rows], high[rows], values.astype(float))
        bounds = to_numpy(_risks(risk, share, proved))
        least = min(least, float(bounds.min()))
        parts.append(values[: count - first].swapaxes(1, 2))
    return least, np.concatenate(parts)


@eqx.filter_jit
def _risks(risk: Risk, share: Array, least: Array) -> Array:
    """`[N]` risks of least losses `[N, R]`."""
    return risk_of_least(risk, share, least)[0]
