"""What a solution that was found in Python is asked for: its page, its picture, its frame, and its file.

A file holds arrays and plain values, from which nothing but the records named here is made.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..advice import risk_words
from ..arrays import is_jax_array, to_numpy
from ..errors import InputError
from ..evaluation import Evaluation
from ..files import write_whole
from ..linear import LinearGaussianPolicy, Share, Stability
from ..objectives import Evidence, OtherPrior, Soundness, ThinPair
from ..plots import loss_distributions
from ..policies import NeuralPolicy, TabularPolicy
from ..posteriors import WeightedDraws
from ..report import write_report
from ..solvers import Certificate, Driver, History, Solution, Status
from ..tables import frame_of
from ..tabular import TriedCaveats
from .reporting import record_solution, require_report
from .tensors import check_tensors, packed, unpacked

MOST_UNKNOWNS = 200


def _asked(solution: Solution) -> Any:
    if solution.asked is None:
        raise InputError(
            "this solution does not know what was asked, because it was loaded from a file or made by hand; "
            "use pr.record_solution(solution, model, belief), and prudent.report.write_report"
        )
    return solution.asked


def report_solution(
    solution: Solution, path: str | Path, *, rivals: Mapping[str, Solution] | None = None, **shown: Any
) -> Path:
    """`solution.report`."""
    asked = _asked(solution)
    require_report()
    record = record_solution(
        solution, asked.objective, asked.belief, risk=asked.risk, seed=asked.seed, rivals=rivals, **shown
    )
    return write_report(record, path)


def plot_solution(solution: Solution, path: str | Path | None = None) -> Any:
    """`solution.plot`."""
    marks = {"mean": solution.evaluation.mean}
    marks["risk" if solution.asked is None else risk_words(solution.asked.risk)] = solution.risk
    losses = np.asarray(solution.losses)
    if not np.all(np.isfinite(losses)):
        raise InputError("some losses are infinite, and there is no picture of them; look at solution.losses")
    return loss_distributions({"policy": losses}, path, marks={"policy": marks}, label="loss")


def solution_frame(solution: Solution, backend: str | None = None) -> Any:
    """`solution.to_frame`."""
    columns: dict[str, Any] = {
        "probability": np.asarray(solution.probabilities),
        "weight": np.asarray(solution.weights),
        "loss": np.asarray(solution.losses),
    }
    thetas = np.asarray(solution.thetas)
    shape = thetas.shape[1:]
    if math.prod(shape) <= MOST_UNKNOWNS:
        for place in np.ndindex(*shape):
            name = f"theta{list(place)}" if solution.asked is None else solution.asked.objective.name_of(place, shape)
            columns[name] = thetas[(slice(None), *place)]
    return frame_of(columns, backend)


KIND = "solution"

# Policies have a content of their own, which their own files hold, too.
POLICIES = {kind.__name__: kind for kind in (LinearGaussianPolicy, NeuralPolicy, TabularPolicy)}
RECORDS = {
    kind.__name__: kind
    for kind in (
        Certificate,
        Driver,
        Evaluation,
        Evidence,
        History,
        OtherPrior,
        Share,
        Solution,
        Stability,
        ThinPair,
        TriedCaveats,
        WeightedDraws,
    )
}
ENUMS = {kind.__name__: kind for kind in (Soundness, Status)}

# Of a solution, what is not kept.
LEFT_OUT = ("asked", "checkpoint", "plan")


def save_solution(solution: Solution, path: str | Path) -> Path:
    """`solution.save`."""
    arrays: dict[str, np.ndarray] = {}
    record = _encoded(solution, arrays)
    content = packed(arrays, {"kind": KIND, "solution": record, "digest": _digest(record, arrays)})
    return write_whole(path, content)


def load_solution(path: str | Path) -> Solution:
    """`Solution.load`."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    size = path.stat().st_size
    with path.open("rb") as file:
        check_tensors(file, size, lambda _: size)
        file.seek(0)
        arrays, record = unpacked(file.read(), KIND, str(path))
    if record.get("digest") != _digest(record.get("solution"), arrays):
        raise InputError(f"{path}: is damaged; solve again")
    try:
        solution = _decoded(record["solution"], arrays)
        if not isinstance(solution, Solution):
            raise TypeError(f"a {type(solution).__name__} in the place of a solution")
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise InputError(f"{path}: is no solution that prudent has written ({reason}); solve again") from None
    return solution


def _digest(record: Any, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"|{name}|{arrays[name].dtype.str}|{arrays[name].shape}|".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def _encoded(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Plain values for JSON; arrays are put aside under numbers."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return {"enum": [type(value).__name__, value.name]}
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        # JSON has neither NaN nor infinities.
        return {"number": float(value).hex()}
    if isinstance(value, np.ndarray) or is_jax_array(value):
        name = str(len(arrays))
        arrays[name] = np.array(to_numpy(value))
        return {"array": name}
    kind = type(value).__name__
    if kind in POLICIES and isinstance(value, POLICIES[kind]):
        return {"policy": kind, "content": value.content()}
    if kind in RECORDS and isinstance(value, RECORDS[kind]):
        if is_dataclass(value):
            said = {field.name: getattr(value, field.name) for field in fields(value)}
        else:
            said = value._asdict()
        if kind == "Solution":
            said = {name: part for name, part in said.items() if name not in LEFT_OUT} | {"checkpoint": None}
            said["parameters"] = _of_arrays(said["parameters"])
            said["iterates"] = _of_arrays(said["iterates"])
        return {"record": kind, "fields": {name: _encoded(part, arrays) for name, part in said.items()}}
    if isinstance(value, tuple | list):
        return {"tuple": [_encoded(part, arrays) for part in value], "list": isinstance(value, list)}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _encoded(part, arrays) for name, part in value.items()}}
    raise InputError(f"a {kind} cannot be saved; save what you need of the solution, such as solution.policy")


def _of_arrays(tree: Any) -> Any:
    """Parameters made of arrays, lists and dictionaries; None for those of another class, such as a network's."""
    if isinstance(tree, dict):
        return {name: _of_arrays(part) for name, part in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_of_arrays(part) for part in tree)
    return tree if is_jax_array(tree) or isinstance(tree, np.ndarray | float | int | None) else None


def _decoded(said: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value that was encoded."""
    if said is None or isinstance(said, bool | str | int):
        return said
    if "array" in said:
        array = arrays[said["array"]]
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of {array.dtype}")
        return array
    if "number" in said:
        return float.fromhex(said["number"])
    if "enum" in said:
        kind, name = said["enum"]
        return ENUMS[kind][name]
    if "policy" in said:
        return POLICIES[said["policy"]].from_content(said["content"])
    if "record" in said:
        return RECORDS[said["record"]](**{name: _decoded(part, arrays) for name, part in said["fields"].items()})
    if "tuple" in said:
        parts = [_decoded(part, arrays) for part in said["tuple"]]
        return parts if said["list"] else tuple(parts)
    return {name: _decoded(part, arrays) for name, part in said["dict"].items()}
