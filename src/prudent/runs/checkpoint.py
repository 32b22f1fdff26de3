"""A run on disk: the problem itself and the solver's state, enough to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..arrays import as_key
from ..errors import InputError
from ..evaluation import Evaluation
from ..policies import TabularPolicy
from ..problems import Case, Counted, Facts, Outcomes, case_of, import_family, parse
from ..report import FitRecord
from ..solvers import Checkpoint, History, Solution, Status, named_leaves
from ..tables import LogCounts, Names
from .folder import CHECKPOINT, FILES, read_run
from .tensors import packed, unpacked

KIND = "prudent checkpoint, version 6"
LOG = ("state", "action", "next_state", "count", "cost_count", "cost_total", "cost_square")
TREES = ("state", "parameters", "history")

# Far more than any run makes; what lies beyond was not written by one.
MOST_STEPS = 2**30


@dataclass(frozen=True)
class Saved:
    """A checkpoint read back.

    Attributes:
        case: the problem with all that had been observed.
        policy: `[S, A]` the answer.
        trees: by name, the arrays of the solver's state, of the parameters and of the history.
        key: the words of the random key of the run.
        episode: how often more had been observed.
        start: the parameters that the episode began at; None where the solver chose.
        left: iterations that were still to be made where the run was interrupted; None where it ended by itself.
        fit: what was found of the log when it was read.
        record: the rest, as it was written.
    """

    case: Case
    policy: np.ndarray
    trees: dict[str, dict[str, np.ndarray]]
    key: tuple[int, ...]
    episode: int
    start: np.ndarray | None
    left: int | None
    fit: FitRecord | None
    record: dict[str, Any]


def checkpoint_file(
    case: Case,
    solution: Solution,
    episode: int,
    start: np.ndarray | None = None,
    left: int | None = None,
    fit: FitRecord | None = None,
) -> bytes:
    """What `read_checkpoint` and `restored` need, as a file; the arguments are those of `Saved`."""
    facts = case.facts
    arrays: dict[str, np.ndarray] = {"policy": np.asarray(solution.policy.probabilities)}
    if facts.log is not None:
        arrays |= {f"log.{name}": getattr(facts.log, name) for name in LOG}
    for name in ("listed", "costs", "cost_values", "target"):
        if getattr(facts, name) is not None:
            arrays[f"facts.{name}"] = getattr(facts, name)
    arrays |= {f"limits.{number}": table for number, table in enumerate(facts.limits)}
    shared = facts.outcomes
    if shared is not None:
        arrays |= {"facts.outcomes": shared.moves}
        arrays |= {} if shared.seen is None else {"facts.outcomes_seen": shared.seen}
        arrays |= {} if shared.costs is None else {"facts.outcomes_costs": shared.costs}
    if start is not None:
        arrays["start"] = np.asarray(start)
    assert solution.checkpoint is not None
    trees = {"state": solution.checkpoint.state, "parameters": solution.parameters, "history": solution.history}
    for name, tree in trees.items():
        arrays |= {f"{name}{place}": leaf for place, leaf in named_leaves(tree).items()}
    record = {
        "kind": KIND,
        "file": facts.file.model_dump(mode="json", exclude_unset=True),
        "source": facts.source,
        "states": _names(facts.states),
        "actions": _names(facts.actions),
        "outcomes": None if shared is None else [list(shared.outcomes.all()), list(shared.laws.all())],
        "rows": 0 if facts.log is None else facts.log.rows,
        "sources": [] if facts.log is None else list(facts.log.sources),
        "counted": [dataclasses.asdict(each) for each in facts.counted],
        "key": list(solution.checkpoint.key),
        "episode": episode,
        "left": left,
        "fit": None if fit is None else fit.model_dump(mode="json"),
        "problem": case.digest(),
        "iterations": solution.iterations,
        "status": solution.status.name,
    }
    return packed(arrays, record)


def _names(names: Names) -> int | list[str]:
    return len(names) if names.numbered else list(names.all())


def read_checkpoint(folder: Path, trust: bool = False) -> Saved:
    """The problem and the state of a finished run."""
    read = read_run(folder, (CHECKPOINT,), apart=FILES)
    return checkpoint_from(read.contents[CHECKPOINT], folder / CHECKPOINT, trust)


def checkpoint_from(data: bytes, path: Path, trust: bool = False) -> Saved:
    """The problem and the state of a run; everything is checked again as if it came from files."""
    arrays, record = unpacked(data, KIND, str(path))
    try:
        case = _case(arrays, record, str(path), trust)
        policy = _finite(arrays["policy"], 2)
        key = tuple(int(word) for word in record["key"])
        episode = _whole(record["episode"])
        _whole(record["iterations"])
        left = None if record["left"] is None else _whole(record["left"])
        start = _finite(arrays["start"], 2) if "start" in arrays else None
        fit = None if record["fit"] is None else FitRecord(**record["fit"])
        if not isinstance(record["status"], str):
            raise ValueError("a status that is not text")
    except InputError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:80]}); solve again") from None
    if any(table is not None and table.shape != case.shape[:2] for table in (policy, start)):
        raise InputError(f"{path}: is damaged (its policy has shape {policy.shape}); solve again")
    if case.digest() != record.get("problem"):
        raise InputError(f"{path}: is for another problem than the one in it; solve again")
    trees = {name: {k.removeprefix(name): v for k, v in arrays.items() if _within(k, name)} for name in TREES}
    return Saved(case, policy, trees, key, episode, start, left, fit, record)


def _within(name: str, tree: str) -> bool:
    return name == tree or (name.startswith(tree) and name[len(tree)] in ".[")


def _case(arrays: dict[str, np.ndarray], record: dict[str, Any], source: str, trust: bool) -> Case:
    file = parse(record["file"], source)
    states, actions = _known("state", record["states"], file.states), _known("action", record["actions"], file.actions)
    sizes = (len(states), len(actions), len(states))
    log = None
    if "log.state" in arrays:
        columns = {name: arrays[f"log.{name}"] for name in LOG}
        for name, size in zip(LOG[:3], sizes, strict=True):
            _index(columns[name], size)
        for name in LOG[3:]:
            _finite(columns[name], 1)
        if len({column.shape for column in columns.values()}) != 1:
            raise ValueError("columns of several lengths")
        if any(np.any(columns[name] < 0) for name in ("count", "cost_count", "cost_square")):
            raise ValueError("negative counts")
        log = LogCounts(**columns, rows=int(record["rows"]), sources=tuple(map(str, record["sources"])))
    listed, costs = (arrays.get(f"facts.{name}") for name in ("listed", "costs"))
    for table, columns in ((listed, (3,)), (costs, (2, 3))):
        if table is not None:
            if table.ndim != 2 or table.shape[1] not in columns or len(table) == 0:
                raise ValueError("a table of the wrong shape")
            for k in range(table.shape[1]):
                _index(table[:, k], sizes[k])
    values, target = (arrays.get(f"facts.{name}") for name in ("cost_values", "target"))
    if (costs is None) != (values is None) or (costs is not None and values.shape != (len(costs),)):  # pyright: ignore[reportOptionalMemberAccess]
        raise ValueError("costs without values")
    if (file.posterior.successors is None) != (listed is None):
        raise ValueError("successors without lists")
    for table in (values, target):
        if table is not None:
            _finite(table)
    if target is not None and target.shape not in (sizes[:1], sizes[:2]):
        raise ValueError("a target of the wrong shape")
    counted = tuple(_counted(each) for each in record["counted"])
    facts = Facts(
        file,
        states,
        actions,
        log,
        listed,
        costs,
        values,
        target,
        str(record["source"]),
        counted,
        _outcomes(arrays, record, sizes),
        tuple(_limit_table(arrays[f"limits.{number}"], sizes[:2]) for number in range(len(file.limit))),
    )
    if file.family is None:
        return case_of(facts)
    family = import_family(file.family, file.options, Path(facts.source).parent, trust)
    if family.model.support.shape[:2] != sizes[:2]:
        raise InputError(f"{source}: family {file.family!r} has other sizes than when the run was made")
    return case_of(facts, family)


def _limit_table(table: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    if _finite(table, 2).shape != sizes:
        raise ValueError("a limit of the wrong shape")
    return table


def _outcomes(arrays: dict[str, np.ndarray], record: dict[str, Any], sizes: tuple[int, int, int]) -> Outcomes | None:
    """Where outcomes lead, with every number in range."""
    if record["outcomes"] is None:
        return None
    outcomes, laws = (Names(*each) for each in zip(("outcome", "law"), record["outcomes"], strict=True))
    moves, seen = arrays["facts.outcomes"], arrays.get("facts.outcomes_seen")
    ranges = (*sizes[:2], len(outcomes), sizes[2], len(laws))
    for column, size in zip(moves.T, ranges, strict=True):
        _index(np.ascontiguousarray(column), size)
    if seen is not None:
        _finite(seen, 2)
        for column, size in zip(seen.T[:2], (len(laws), len(outcomes)), strict=True):
            _index(column.astype(np.int64), size)
        if seen.shape[1] != 3 or np.any(seen[:, 2] < 0):
            raise ValueError("outcomes that were seen in part")
    paid = arrays.get("facts.outcomes_costs")
    if paid is not None and _finite(paid).shape != (len(moves),):
        raise ValueError("costs of other outcomes")
    return Outcomes(moves, seen, outcomes, laws, paid)


def _counted(said: Any) -> Counted:
    if not all(isinstance(text, str) or (name == "path" and text is None) for name, text in said.items()):
        raise ValueError("a log that is not named by text")
    return Counted(**said)


def _declared(names: Any) -> Any:
    if isinstance(names, bool) or not (isinstance(names, int) or all(isinstance(name, str) for name in names)):
        raise ValueError("names that are not text")
    return names


def _known(kind: str, names: Any, said: Any) -> Names:
    """Names as they were, with the codes that tables have for them."""
    codes = {name: code for code, name in said.items()} if isinstance(said, dict) else None
    return Names(kind, _declared(names), codes)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STEPS:
        raise ValueError("a number that is not whole")
    return value


def _index(array: np.ndarray, size: int) -> None:
    if array.dtype != np.int64 or array.ndim != 1 or np.any((array < 0) | (array >= size)):
        raise ValueError("indices out of range")


def _finite(array: np.ndarray, axes: int | None = None) -> np.ndarray:
    if array.dtype != np.float64 or (axes is not None and array.ndim != axes) or not np.all(np.isfinite(array)):
        raise ValueError("numbers that are not finite")
    return array


def restored(saved: Saved, path: Path) -> Solution:
    """The solution to resume from. What it said of the policy's risk is not kept; no solver looks at that."""
    states, actions, _ = saved.case.shape
    arguments = saved.case.arguments()
    objective, theta = arguments["model"].objective(loss=arguments["loss"]), arguments["belief"].sample(0, 1)[0]
    try:
        limited = bool(saved.case.facts.file.limit)  # begins again at its policy, and has no state to go on from
        state = None if limited else arguments["solver"].state_from(saved.trees["state"], objective, theta)
        parameters = _finite(saved.trees["parameters"][""], 2)
        columns = {name.removeprefix("."): _column(column) for name, column in saved.trees["history"].items()}
        history = History(**columns)
        if parameters.shape != (states, actions) or len({len(column) for column in columns.values()}) != 1:
            raise ValueError("arrays of the wrong shape")
        # A run that ended early looked once more than it stepped.
        if len(history) - int(saved.record["iterations"]) not in (0, 1):
            raise ValueError("a history of another length than the run")
    except InputError as error:
        raise InputError(f"{path}: {error}; solve again") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:80]}); solve again") from None
    return Solution(
        status=Status.ITERATION_LIMIT,
        policy=TabularPolicy(saved.policy),
        evaluation=Evaluation.none(),
        history=history,
        iterations=int(saved.record["iterations"]),
        seconds=0.0,
        parameters=parameters,
        checkpoint=Checkpoint(state, saved.key),
    )


def episode_seed(seed: Any, episode: int) -> Any:
    """The seed of an episode: the file's own at first, then keys that follow from it."""
    return seed if episode == 0 else jax.random.fold_in(as_key(seed), episode)


def _column(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float64 or array.ndim != 1:
        raise ValueError("a history that is no list of numbers")
    return array
