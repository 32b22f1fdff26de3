"""The files of a run: their names, the folder they may be written to, and how each kind is written and read back."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import write_whole
from ..report import SolutionRecord, arrays_of, record_from
from ..tables import Names, entries_of, read_table

POLICY = "policy.csv"
DETERMINISTIC = "policy-deterministic.csv"
SOLUTION = "solution.json"
WEIGHTS = "weights.csv"
CHECKPOINT = "checkpoint.safetensors"
ARRAYS = "report.safetensors"
REPORT = "report.html"

# A run is written to this list of names and to no other.
FILES = (CHECKPOINT, POLICY, DETERMINISTIC, WEIGHTS, ARRAYS, REPORT, SOLUTION)

KIND = "prudent report arrays, version 5"

# Probabilities written with a few digits sum to 1 only about.
ROUNDING = 1e-6


def require_free(folder: Path, force: bool) -> None:
    """Refuse what is not a folder, and a folder that holds another run."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; choose another --out")
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if there and not force:
        raise InputError(
            f"{folder}: holds another run ({there[0]}); choose another --out, go on with prudent continue, or replace "
            "it with --force"
        )
    for name in there:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise InputError(f"{folder / name}: is a folder where a file is to be written; remove it")


def prepare(folder: Path, force: bool) -> Path:
    """Make the folder; refuse one that cannot be written to, or that holds another run."""
    require_free(folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written to; choose another --out")
    return folder


def remove_stale(folder: Path, written: set[str]) -> None:
    """Remove what is left of a run that this one has replaced."""
    for name in FILES:
        if name not in written:
            (folder / name).unlink(missing_ok=True)


def require_run(folder: Path) -> Path:
    """The checkpoint of a run's folder."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; name the --out folder of prudent solve")
    if not (folder / CHECKPOINT).is_file():
        raise InputError(f"{folder}: holds no run; there is no {CHECKPOINT} in it")
    return folder / CHECKPOINT


def write_tensors(path: Path, arrays: dict[str, np.ndarray], record: dict[str, Any]) -> Path:
    """Write arrays and record; what is read back is these bits or nothing."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    return write_whole(path, save(arrays, {"record": text, "digest": _digest(arrays, text)}))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and record of a file of this kind; a damaged file, or one of another kind, is refused."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata["record"]
        record = json.loads(text)
    except (SafetensorError, KeyError, ValueError, TypeError, OSError, RecursionError, MemoryError, AttributeError):
        raise InputError(f"{path}: is not a file that prudent has written, or is damaged; solve again") from None
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise InputError(f"{path}: does not hold a {kind}; name another file")
    if metadata.get("digest") != _digest(arrays, text):
        raise InputError(f"{path}: is damaged (its digest does not fit its content); solve again")
    return arrays, record


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"|{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_record(folder: Path, record: SolutionRecord) -> list[Path]:
    """Write `solution.json`, and beside it the arrays that it leaves out, which know the text they belong to."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
    head = {"kind": KIND, "solution": hashlib.sha256(text.encode()).hexdigest()}
    arrays = write_tensors(folder / ARRAYS, dict(arrays_of(record)), head)
    return [arrays, write_whole(folder / SOLUTION, text)]


def read_record(folder: str | Path) -> SolutionRecord:
    """The record of a run, checked as if it came from anyone.

    Args:
        folder: of the run.

    >>> import prudent as pr, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     problem = pr.write_example(folder)[0]
    ...     run = pr.solve_problem(problem, f"{folder}/run", report=False, changes={"solver.iterations": 3})
    ...     pr.read_record(run.folder).risk == run.record.risk
    True
    """
    folder = Path(folder)
    require_run(folder)
    path = folder / SOLUTION
    arrays, head = read_tensors(folder / ARRAYS, KIND)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    content = path.read_bytes()
    if head.get("solution") != hashlib.sha256(content).hexdigest():
        raise InputError(f"{path}: is damaged, or was changed after the run; solve again")
    try:
        return record_from(json.loads(content), arrays)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:120]}); solve again") from None


def policy_text(probabilities: np.ndarray, states: tuple[str, ...], actions: tuple[str, ...]) -> str:
    """`state,action,probability`, a row for each pair; the numbers read back to the bit."""
    rows = (
        (s, a, repr(float(p)))
        for s, row in zip(states, probabilities, strict=True)
        for a, p in zip(actions, row, strict=True)
    )
    return csv_text(("state", "action", "probability"), rows)


def deterministic_text(probabilities: np.ndarray, states: tuple[str, ...], actions: tuple[str, ...]) -> str:
    """`state,action`, of a policy that is certain of its action in each state."""
    return csv_text(("state", "action"), zip(states, (actions[a] for a in probabilities.argmax(axis=1)), strict=True))


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def read_policy(path: str | Path, states: Names, actions: Names) -> np.ndarray:
    """`[S, A]` from a file with `state`, `action` and `probability`; without the last, each action is certain."""
    table = read_table(path, {"state": states, "action": actions}, ["probability"], ["probability"])
    place = entries_of(table, ("state", "action"), (len(states), len(actions)))
    probability = table.numbers.get("probability", np.ones(len(place)))
    bad = (probability < 0) | (probability > 1 + ROUNDING)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{table.place(row)}: probability {probability[row]:g} lies outside [0, 1]")
    policy = np.zeros((len(states), len(actions)))
    policy.ravel()[place] = probability
    total = policy.sum(axis=1)
    off = np.abs(total - 1.0) > ROUNDING
    if off.any():
        state = int(np.argmax(off))
        what = "has no row" if total[state] == 0 else f"has probabilities that sum to {total[state]:.9g}, not to 1"
        raise InputError(f"{table.source}: state {states[state]} {what}{_others(int(off.sum()))}")
    # Only what is off is divided: a policy written by prudent comes back to the bit.
    exact = np.abs(total - 1.0) <= 1e-9
    return np.where(exact[:, None], policy, policy / total[:, None])


def _others(number: int) -> str:
    return f" (nor have {number - 1} more states)" if number > 1 else ""
