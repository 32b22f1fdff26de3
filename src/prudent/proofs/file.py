"""A proof as a file that others can check: models, policy, cuts, and values that prove every leaf's bound."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import InputError
from ..files import write_whole
from ..objectives import Boxes, BoxPlans
from ..risks import CVaR, Expectation, Mixture, Risk
from .proving import Proof
from .relaxation import judge_boxes, risk_of_least, shared
from .search import batches
from .tree import NONE, Cuts, Tree, tightened

# Up to here values keep all their digits; beyond, half of them, and the bound is what those prove.
DOUBLE_BYTES = 64 * 2**20

# What the verifier reads at most, less a little for the models; and what cuts take for each leaf.
MOST_BYTES, CUT_BYTES = 2**30 - 2**26, 64


def write_proof(proof: Proof, path: str | Path, digests: dict[str, str] | None = None) -> Path:
    """Write a proof for `prudent_verifier`, which shares no code with what found it.

    The claims in the file are what its own values prove; they may be below `proof.lower_bound` by their rounding. Of a
    search of very many boxes the file has as many as fit into 1 GiB, and claims what these prove.

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


def proof_file(proof: Proof, digests: dict[str, str] | None = None) -> bytes:
    """Return what `write_proof` writes."""
    from safetensors.numpy import save

    parts = _tails(proof.measure)
    boxes = proof.objective.boxes(proof.draws.thetas)
    listed = None if boxes is None else boxes.listed()
    if parts is None or boxes is None or listed is None:
        raise InputError(
            "only proofs of a loss that is linear in the occupancy, under the mean, CVaR or a mixture of these, can be "
            "written for the verifier, which knows no others"
        )
    share = np.asarray(proof.draws.probabilities)
    enough = min(proof.lower_bound, _fitting(proof.cuts, listed["cost"].shape[1], len(share)))
    tree = Tree(listed["cost"].shape[1:], proof.deterministic, proof.cuts).without(enough)
    bound, shown = _arrays(boxes, proof.measure, share, tree, enough, proof.deterministic)
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
        **shown,
        **{name: getattr(tree.cuts(), name) for name in ("child", "state", "action", "at")},
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


def _fitting(cuts: Cuts, states: int, draws: int) -> float:
    """The largest bound whose boxes fit into a file.

    A box is cut in the file if its bound is less, and no box has a smaller bound than the one it was cut from.
    """
    values = np.dtype(np.float32).itemsize * states * draws * 2 ** cuts.tolls.shape[1]
    most = MOST_BYTES // (values + 8 * draws + CUT_BYTES)
    inner = np.sort(cuts.bound[cuts.child != NONE])
    return np.inf if len(inner) < most else float(inner[max(most - 1, 0)])


class _Shown(NamedTuple):
    """What shows the bounds of N leaves to someone who believes nothing.

    Attributes:
        bound: of each.
        values, weights: behind it.
        charged: whether tolls are behind it, too.
        paid: the values of these.
    """

    bound: Float[np.ndarray, " N"]
    values: Float[np.ndarray, "N S R"]
    weights: Float[np.ndarray, "N R"]
    charged: Bool[np.ndarray, " N"]
    paid: Float[np.ndarray, "C V S R"]


def _arrays(
    boxes: Boxes, risk: Risk, share: Float[np.ndarray, " R"], tree: Tree, enough: float, deterministic: bool
) -> tuple[float, dict[str, np.ndarray]]:
    """The least bound of all leaves, and what shows it; tolls only of those whose bound is not enough without."""
    leaves, tolls = np.array(tree.leaves()), tree.cuts().tolls
    kind = np.float64 if 8 * len(leaves) * tree.shape[0] * len(share) <= DOUBLE_BYTES else np.float32
    # Every leaf's search begins where that of the box of all tables ended.
    shape = (1, *tree.shape)
    begin = boxes.relaxed(np.zeros(shape), np.ones(shape), np.zeros((*shape[:2], len(share)))).values

    def work(rows: np.ndarray) -> _Shown:
        """Return what shows the bounds of some leaves, in numbers of that kind."""
        state = tolls[leaves[rows]]
        low, high = tightened(*tree.boxes(leaves[rows]))
        found = boxes.relaxed(low, high, np.repeat(begin, len(rows), axis=0))
        values = found.values.astype(kind)
        least, quality = boxes.proved(low, high, values.astype(float))
        found = found._replace(least=least, values=values.astype(float), quality=quality)
        visits = np.zeros((*state.shape, len(share)))
        counted = judge_boxes(boxes, risk, share, deterministic, high, found).counted
        paid = np.zeros((len(low), 2 ** state.shape[1] - 1, *values.shape[1:]), kind)
        charges = boxes.tolls(low, high, values, state, counted)
        if charges is not None:
            paid = np.asarray(charges.paid, kind)
            again = boxes.tolls(low, high, values, state, counted, paid)
            assert again is not None
            visits = again.visits
        told, bound, weights = _bounds(risk, share, low, high, found, state, visits)
        charged = (told < enough) & (bound > told)
        bound = np.where(charged, bound, told)
        return _Shown(bound, values, weights, charged, paid[charged])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(work, batches(len(leaves))))
    shown = _Shown(*(np.concatenate(column) for column in zip(*found, strict=True)))
    which = np.flatnonzero(shown.charged)
    return float(shown.bound.min()), {
        "values": shown.values.swapaxes(1, 2),
        "weights": shown.weights,
        "toll_leaf": which.astype(np.int32),
        "toll_state": tolls[leaves[which]],
        "toll_values": shown.paid.swapaxes(2, 3),
    }


def _bounds(
    risk: Risk,
    share: Float[np.ndarray, " R"],
    low: Float[np.ndarray, "N S A"],
    high: Float[np.ndarray, "N S A"],
    found: BoxPlans,
    state: Int[np.ndarray, "N K"],
    visits: Float[np.ndarray, "N K R"],
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"], Float[np.ndarray, "N R"]]:
    """Return bounds of boxes without and with what sharing a table adds to them, and the weights behind the latter."""
    sharing, _, weights = shared(risk, share, low, high, found, state, visits)
    return risk_of_least(risk, share, found.least)[0], sharing, weights
