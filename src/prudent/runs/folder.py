"""The files of a run: their names, the folder they may be written to, and how each kind is written and read back."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import InputError
from ..files import LARGEST_BESIDE, MANIFEST, Reading, read_manifest, read_members
from ..report import SolutionRecord, arrays_of, record_from
from ..solvers import Solution
from ..tables import LONGEST_NAME, Names, entries_of, guarded, read_table
from .tensors import check_tensors, packed, unpacked

POLICY = "policy.csv"
DETERMINISTIC = "policy-deterministic.csv"
SOLUTION = "solution.json"
WEIGHTS = "weights.csv"
CHECKPOINT = "checkpoint.safetensors"
UNFINISHED = "unfinished.safetensors"
ARRAYS = "report.safetensors"
REPORT = "report.html"
PROOF = "proof.safetensors"

# A run is written to this list of names, its manifest and its lock, and to no other.
FILES = (CHECKPOINT, UNFINISHED, POLICY, DETERMINISTIC, SOLUTION, ARRAYS, WEIGHTS, REPORT, PROOF)

KIND = "prudent report arrays, version 6"

# Probabilities written with a few digits sum to 1 only about.
ROUNDING = 1e-6

# Of a record: two million states with short names fit. Its texts are sentences, its tables are elsewhere.
LARGEST_RECORD, LONGEST_TEXT = 2**26, 10_000
MOST_PARTS = 2**22


def require_free(folder: Path, force: bool) -> None:
    """Refuse what is not a folder, and a folder that holds another run."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; choose another --out")
    require_plain(folder)
    there = [name for name in (MANIFEST, *FILES) if os.path.lexists(folder / name)]
    if there and not force:
        what = "an unfinished run" if _unfinished(folder) else f"another run ({there[0]})"
        raise InputError(
            f"{folder}: holds {what}; choose another --out, go on with prudent continue, or replace it with --force"
        )
    for name in there:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            raise InputError(f"{folder / name}: is a folder where a file is to be written; remove it")


def _unfinished(folder: Path) -> bool:
    """Whether all that a folder holds is a state to go on from; its manifest says so, whatever has its name yet."""
    try:
        manifest = read_manifest(folder)
    except InputError:
        return False
    return manifest is not None and UNFINISHED in manifest.files and CHECKPOINT not in manifest.files


def require_plain(path: Path) -> None:
    """Refuse a path whose name is not text: it could be neither printed nor kept in a record."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r}: has bytes in its name that are not UTF-8; rename it") from None


def prepare(folder: Path, force: bool) -> Path:
    """Make the folder; refuse one that holds another run. That it can be written to, its lock will tell."""
    require_free(folder, force)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def require_run(folder: Path) -> None:
    """Refuse what is not the folder of a run."""
    require_plain(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; name the --out folder of prudent solve")
    if read_manifest(folder) is None:
        raise InputError(f"{folder}: holds no run; there is no {MANIFEST} in it")


def read_run(folder: Path, names: Sequence[str], apart: Collection[str] = ()) -> Reading:
    """Files of a finished run, all of one state; what else is there has to fit, too, but for what is kept apart.

    A run that was interrupted has nothing to read yet.
    """
    require_run(folder)
    beside = [name for name in FILES if name not in names and name not in apart]
    read = read_members(folder, {name: _check_of(name) for name in names}, beside, lambda name: _repair(folder, name))
    for name in names:
        if name not in read.contents:
            if UNFINISHED in read.manifest.files:
                raise InputError(
                    f"{folder}: was interrupted, and has no {name} yet; go on with prudent continue {folder}"
                )
            raise InputError(f"{folder / name}: there is no such file in this run; {_repair(folder, name)}")
    return read


def read_states(folder: Path) -> dict[str, bytes]:
    """The states that a run can go on from, by file; nothing else has to fit, for all else can be written again."""
    checks = {name: _check_of(name) for name in (UNFINISHED, CHECKPOINT)}
    return read_members(folder, checks, (), lambda name: _repair(folder, name)).contents


def _repair(folder: Path, name: str) -> str:
    """What to do about a file of a run that is not what it was; all but two can be made again."""
    if name in (CHECKPOINT, UNFINISHED):
        return "solve again"
    again = {PROOF: f"prudent prove {folder}", REPORT: f"prudent report {folder}"}
    return f"write it again with {again.get(name, f'prudent continue {folder} --iterations 0')}"


def _check_of(name: str) -> Any:
    if name in (CHECKPOINT, UNFINISHED):
        return lambda file, size: check_tensors(file, size, largest_checkpoint)
    if name == SOLUTION:
        return _check_record
    # Draws and boxes may be many: the memory there is limits them, too.
    return lambda file, size: check_tensors(
        file, size, lambda _: LARGEST_BESIDE, "proof" if name == PROOF else "record"
    )


def largest_checkpoint(record: dict[str, Any]) -> int:
    """Bytes beyond which no solver of the problem leaves a checkpoint."""
    states, actions = (each if isinstance(each, int) else len(each) for each in (record["states"], record["actions"]))
    starts = record["file"].get("solver", {}).get("starts", 8)
    return 8 * (states * actions * (64 * (starts + 2) + 7 * states) + 3 * (record["iterations"] + 2)) + 2**26


def _check_record(file: BinaryIO, size: int) -> None:
    """Refuse a text that no record has: too large, or with so many parts that it would fill the memory when read."""
    if size > LARGEST_RECORD:
        raise InputError(f"{file.name}: is larger than {LARGEST_RECORD >> 20} MiB, as no record is; solve again")
    parts = sum(block.count(b"[") + block.count(b"{") for block in iter(lambda: file.read(2**20), b""))
    if parts > MOST_PARTS:
        raise InputError(f"{file.name}: has more parts than any record; solve again")


def record_files(record: SolutionRecord) -> dict[str, bytes]:
    """`solution.json`, and the arrays that it leaves out."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"
    return {SOLUTION: text.encode(), ARRAYS: packed(dict(arrays_of(record)), {"kind": KIND})}


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
    return record_of(read_run(folder, (SOLUTION, ARRAYS), apart=(REPORT,)), folder)


def record_of(read: Reading, folder: Path) -> SolutionRecord:
    """The record in the files of a run."""
    path = folder / SOLUTION
    arrays, _ = unpacked(read.contents[ARRAYS], KIND, str(folder / ARRAYS))
    try:
        said = json.loads(read.contents[SOLUTION])
        _refuse_texts(said, LONGEST_TEXT)
        for name in ("states", "actions"):
            _refuse_texts(said[name], LONGEST_NAME)
        return record_from(said, arrays)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:120]}); solve again") from None


def _refuse_texts(said: Any, longest: int) -> None:
    """Refuse texts that are longer than any of a record, or that are no Unicode."""
    texts = [said]
    while texts:
        each = texts.pop()
        if isinstance(each, dict):
            texts += [*each, *each.values()]
        elif isinstance(each, list):
            texts += each
        elif isinstance(each, str):
            if len(each) > longest:
                raise ValueError(f"a text of {len(each)} characters")
            each.encode()


def policy_files(record: SolutionRecord) -> dict[str, bytes]:
    """The policy of a record, and the best one found that leaves nothing to chance; numbers read back to the bit.

    A table has a row for each pair, a gain one for each action, with a column for each state.
    """
    gain = record.linear
    if gain is not None:
        heads = ("action", "bias", *map(guarded, gain.states))
        numbers = np.column_stack([gain.bias, gain.gain])
        rows = ([guarded(name), *map(_exact, row)] for name, row in zip(gain.actions, numbers, strict=True))
        return {POLICY: csv_text(heads, rows).encode()}
    states, actions = record.state_names, record.action_names
    found = {POLICY: policy_text(np.asarray(record.probabilities), states, actions).encode()}
    if record.deterministic is not None:
        chosen = np.asarray(record.deterministic.probabilities).argmax(axis=1)
        rows = ((guarded(state), guarded(actions[a])) for state, a in zip(states, chosen, strict=True))
        found[DETERMINISTIC] = csv_text(("state", "action"), rows).encode()
    return found


def policy_text(probabilities: np.ndarray, states: tuple[str, ...], actions: tuple[str, ...]) -> str:
    """`state,action,probability`, a row for each pair."""
    states, actions = tuple(map(guarded, states)), tuple(map(guarded, actions))
    rows = (
        (s, a, _exact(p))
        for s, row in zip(states, probabilities, strict=True)
        for a, p in zip(actions, row, strict=True)
    )
    return csv_text(("state", "action", "probability"), rows)


def weights_text(solution: Solution, unknowns: dict[str, int]) -> str:
    """The posterior draws the risk was taken on: number, probability, xi*, loss, and unknowns by name and place."""
    thetas = np.asarray(solution.thetas)
    flat = thetas.reshape(len(thetas), -1)[:, list(unknowns.values())]
    judged = [np.asarray(column) for column in (solution.probabilities, solution.weights, solution.losses)]
    rows = ([str(k), *map(_exact, row)] for k, row in enumerate(np.column_stack([*judged, flat])))
    return csv_text(("draw", "probability", "weight", "loss", *map(guarded, unknowns)), rows)


def _exact(value: float) -> str:
    return repr(float(value))


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
    if number == 1:
        return ""
    return " (nor has 1 more state)" if number == 2 else f" (nor have {number - 1} more states)"
