"""A proof as a file that others can check: models, policy, cuts, and values that prove every leaf's bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..arrays import Array, in_float64, to_numpy
from ..errors import InputError
from ..files import write_whole
from ..objectives import Boxes
from ..risks import CVaR, Expectation, Mixture, Risk
from .prove import Proof
from .relaxation import risk_of_least, shared
from .search import batches
from .tree import Tree, tightened

# Pairs of a box and a state whose visits are found together.
PAIRS = 4096

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
    tree = Tree(listed["cost"].shape[1:], proof.deterministic, proof.cuts).without(proof.lower_bound)
    share = np.asarray(proof.draws.probabilities)
    bound, shown = _Shown(boxes, proof.measure, share, tree).arrays()
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


class _Visits(NamedTuple):
    """Pairs of a node and a state that its tables meet so often at least, and the values that show it."""

    node: Int[np.ndarray, " J"]
    state: Int[np.ndarray, " J"]
    least: Float[np.ndarray, "J R"]
    values: Float[np.ndarray, "J S R"]


class _Shown:
    """What shows the bounds of a tree's leaves to someone who believes nothing."""

    def __init__(self, boxes: Boxes, risk: Risk, share: Float[np.ndarray, " R"], tree: Tree):
        self.boxes, self.risk, self.share, self.tree = boxes, risk, share, tree
        self.leaves, self.size = np.array(tree.leaves()), (tree.shape[0], share.size)
        self.kind = np.float64 if 8 * len(self.leaves) * np.prod(self.size) <= DOUBLE_BYTES else np.float32

    def arrays(self) -> tuple[float, dict[str, np.ndarray]]:
        """The least bound of all leaves; their values and weights, and visits of nodes that leaves lie below."""
        above = np.array([self.tree.visits_above(leaf) for leaf in self.leaves])
        visits = self._visits(above)
        bound, values, weights = zip(*(self._leaves(rows, above, visits) for rows in batches(len(above))), strict=True)
        return min(bound), {
            "values": np.concatenate(values)[: len(above)].swapaxes(1, 2),
            "weights": np.concatenate(weights)[: len(above)],
            "visits_node": visits.node.astype(np.int32),
            "visits_state": visits.state.astype(np.int32),
            "visits_values": visits.values.swapaxes(1, 2),
        }

    def _visits(self, above: Int[np.ndarray, " L"]) -> _Visits:
        """Of the nodes that leaves lie below, in their order."""
        cuts = self.tree.cuts()
        used = np.isin(cuts.visits_node, above)
        nodes, states = cuts.visits_node[used], cuts.visits_state[used]
        none = np.zeros((0, *self.size), self.kind)
        found = [_Visits(nodes[:0], states[:0], np.zeros((0, self.size[1])), none)]
        for first in range(0, len(nodes), PAIRS):
            node, state = (part[first : first + PAIRS] for part in (nodes, states))
            low, high = tightened(*self.tree.boxes(node))
            visits = self.boxes.met(low, high, state)
            if visits is not None:
                values = np.asarray(visits[1], self.kind)
                proved = self.boxes.met(low, high, state, values)
                assert proved is not None
                found.append(_Visits(node, state, np.asarray(proved[0]), values))
        return _Visits(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _leaves(
        self, rows: Int[np.ndarray, " N"], above: Int[np.ndarray, " L"], visits: _Visits
    ) -> tuple[float, Float[np.ndarray, "N S R"], Float[np.ndarray, "N R"]]:
        """The least bound of some leaves, their values and weights."""
        low, high = tightened(*self.tree.boxes(self.leaves[rows]))
        found = self.boxes.relaxed(low, high, np.zeros((len(low), *self.size)))
        values = np.asarray(found.values).astype(self.kind)
        met = np.zeros((len(rows), *self.size))
        ends = np.searchsorted(visits.node, above[rows]), np.searchsorted(visits.node, above[rows], side="right")
        for row, (first, last) in enumerate(zip(*ends, strict=True)):
            met[row, visits.state[first:last]] = visits.least[first:last]
        least, quality = self.boxes.proved(low, high, values.astype(float))
        bound, weights = to_numpy(_risks(self.risk, self.share, low, high, least, values, quality, met))
        return float(bound.min()), values, weights


@eqx.filter_jit
def _risks(
    risk: Risk,
    share: Array,
    low: Array,
    high: Array,
    least: Array,
    values: Array,
    quality: Array,
    met: Array,
) -> tuple[Float[Array, " N"], Float[Array, "N R"]]:
    """Bounds of boxes, and the weights behind what sharing a table adds to them."""
    sharing, _, weights = shared(risk, share, low, high, least, values.astype(least.dtype), quality, met)
    return jnp.maximum(sharing, risk_of_least(risk, share, least)[0]), weights
