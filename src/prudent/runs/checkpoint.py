"""A run on disk: the problem itself and the solver's state, enough to go on as if it had never stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..evaluation import Evaluation
from ..files import commit, read_manifest
from ..objectives import objective_of
from ..policies import TabularPolicy
from ..problems import AbstractCase, Case, Counted, Facts, Outcomes, case_of, import_family, parse
from ..report import FitRecord
from ..seeds import as_seed, child
from ..solvers import Checkpoint, History, Solution, Status, named_leaves
from ..tables import LogCounts, Names, RowDigests
from .folder import FILES, UNFINISHED
from .tensors import kind_of, packed, unpacked

KIND, LINEAR = "prudent checkpoint, version 7", "prudent linear checkpoint, version 2"
LOG = ("state", "action", "next_state", "count", "cost_count", "cost_total", "cost_square")
TREES = ("state", "parameters", "history")

# Far more than any run makes; what lies beyond was not written by one.
MOST_STEPS = 2**30

# A checkpoint is written at most this often, and at most this share of the time goes into it.
SECONDS, SHARE = 2.0, 0.05


@dataclass(frozen=True)
class Saved:
    """A checkpoint read back.

    Attributes:
        case: the problem with all that had been observed.
        policy: `[S, A]` the answer; None where it is no table.
        trees: by name, the arrays of the solver's state, of the parameters and of the history.
        seed: of the run.
        episode: how often more had been observed.
        start: the parameters that the episode began at; None where the solver chose.
        left: iterations that were still to be made where the run was interrupted; None where it ended by itself.
        fit: what was found of the log when it was read.
        iterations: that had been made.
    """

    case: AbstractCase
    policy: np.ndarray | None
    trees: dict[str, dict[str, np.ndarray]]
    seed: int
    episode: int
    start: np.ndarray | None
    left: int | None
    fit: FitRecord | None
    iterations: int


def checkpoint_file(
    case: AbstractCase,
    solution: Solution,
    episode: int,
    start: np.ndarray | None = None,
    left: int | None = None,
    fit: FitRecord | None = None,
) -> bytes:
    """What `checkpoint_from` and `restored` need, as a file; the arguments are those of `Saved`."""
    table, log = case.table(), case.log
    arrays = (
        {} if log is None else {f"log.{name}": np.asarray(getattr(log, name)) for name in LOG if hasattr(log, name)}
    )
    arrays |= {} if start is None else {"start": np.asarray(start)}
    record: dict[str, Any] = {
        "kind": LINEAR if table is None else KIND,
        "file": case.file.model_dump(mode="json", exclude_unset=True),
        "source": case.source,
        "states": list(case.states),
        "actions": list(case.actions),
    }
    if table is not None:
        more, said = _tables(table.facts)
        arrays |= more | {"policy": np.asarray(solution.policy.probabilities)}
        record |= said
    assert solution.checkpoint is not None
    trees = (solution.checkpoint.state, solution.parameters, solution.history)
    for name, tree in zip(TREES, trees, strict=True):
        arrays |= {f"{name}{place}": leaf for place, leaf in named_leaves(tree).items()}
    record |= {
        "counted": [dataclasses.asdict(each) for each in case.facts.counted],
        "seed": solution.checkpoint.seed,
        "episode": episode,
        "left": left,
        **({} if table is None else {"fit": None if fit is None else fit.model_dump(mode="json")}),
        "problem": case.digest(),
        "iterations": solution.iterations,
        **({} if table is None else {"status": solution.status.name}),
    }
    return packed(arrays, record)


def _tables(facts: Facts) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What a problem of states and actions has beside its log: arrays, and the rest."""
    shared = facts.outcomes
    tables = {name: getattr(facts, name) for name in ("listed", "costs", "cost_values", "target")}
    if shared is not None:
        tables |= {"outcomes": shared.moves, "outcomes_seen": shared.seen, "outcomes_costs": shared.costs}
    arrays = {f"facts.{name}": table for name, table in tables.items() if table is not None}
    arrays |= {f"limits.{number}": table for number, table in enumerate(facts.limits)}
    return arrays, {
        "states": _names(facts.states),
        "actions": _names(facts.actions),
        "outcomes": None if shared is None else [list(shared.outcomes.all()), list(shared.laws.all())],
        "rows": 0 if facts.log is None else facts.log.rows,
        "sources": [] if facts.log is None else list(facts.log.sources),
    }


def _names(names: Names) -> int | list[str]:
    return len(names) if names.numbered else list(names.all())


def checkpoint_from(data: bytes, path: Path, trust: bool = False) -> Saved:
    """The problem and the state of a run; everything is checked again as if it came from files."""
    kind = LINEAR if kind_of(data) == LINEAR else KIND
    arrays, record = unpacked(data, kind, str(path))
    policy = fit = None
    with _damage(path):
        start = _finite(arrays["start"]) if "start" in arrays else None
        if kind == LINEAR:
            case = _linear_case(arrays, record, str(path))
        else:
            case = _case(arrays, record, str(path), trust)
            policy = _finite(arrays["policy"], case.shape[:2])
            start = None if start is None else _finite(start, case.shape[:2])
            fit = None if record["fit"] is None else FitRecord(**record["fit"])
            if not isinstance(record["status"], str):
                raise ValueError("a status that is not text")
        seed = as_seed(record["seed"])
        episode, iterations = _whole(record["episode"]), _whole(record["iterations"])
        left = None if record["left"] is None else _whole(record["left"])
    if case.digest() != record.get("problem"):
        raise InputError(f"{path}: is for another problem than the one in it; solve again")
    trees = {name: {k.removeprefix(name): v for k, v in arrays.items() if _within(k, name)} for name in TREES}
    return Saved(case, policy, trees, seed, episode, start, left, fit, iterations)


@contextlib.contextmanager
def _damage(path: Path, told: Callable[[InputError], str] = str) -> Iterator[None]:
    """What cannot be read is refused as damaged; what is wrong with a problem is told."""
    try:
        yield
    except InputError as error:
        raise InputError(told(error)) from None
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({' '.join(str(error).split())[:80]}); solve again") from None


def _within(name: str, tree: str) -> bool:
    return name == tree or (name.startswith(tree) and name[len(tree)] in ".[")


def _linear_case(arrays: dict[str, np.ndarray], record: dict[str, Any], source: str) -> AbstractCase:
    """A problem of a linear system; these are slow to import, and few have them."""
    from ..problems import LinearCase, LinearFacts, LinearFile
    from ..vector_log import VectorLog

    log = VectorLog(*(np.array(arrays[f"log.{name}"]) for name in LOG[:3])) if "log.state" in arrays else None
    counted = tuple(_counted(each) for each in record["counted"])
    file = parse(record["file"], source, kind=LinearFile)
    return LinearCase(LinearFacts(file, str(record["source"]), log, counted))


def _case(arrays: dict[str, np.ndarray], record: dict[str, Any], source: str, trust: bool) -> Case:
    file = parse(record["file"], source)
    states, actions = _known("state", record["states"], file.states), _known("action", record["actions"], file.actions)
    sizes = (len(states), len(actions), len(states))
    tables: dict[str, Any] = {
        name: arrays.get(f"facts.{name}") for name in ("listed", "costs", "cost_values", "target")
    }
    listed, costs, values, target = tables.values()
    for table, columns in ((listed, (3,)), (costs, (2, 3))):
        if table is not None:
            if table.ndim != 2 or table.shape[1] not in columns or len(table) == 0:
                raise ValueError("a table of the wrong shape")
            _indices(table.T, sizes)
    if (costs is None) != (values is None):
        raise ValueError("costs without values")
    if (file.posterior.successors is None) != (listed is None):
        raise ValueError("successors without lists")
    if costs is not None and values is not None:
        _finite(values, (len(costs),))
    if target is not None:
        _finite(target, sizes[:1], sizes[:2])
    facts = Facts(
        file=file,
        states=states,
        actions=actions,
        log=_log(arrays, record, sizes),
        **tables,
        source=str(record["source"]),
        counted=tuple(_counted(each) for each in record["counted"]),
        outcomes=_outcomes(arrays, record, sizes),
        limits=tuple(_finite(arrays[f"limits.{number}"], sizes[:2]) for number in range(len(file.limit))),
    )
    if file.family is None:
        return case_of(facts)
    family = import_family(file.family, file.options, Path(facts.source).parent, trust)
    if family.model.support.shape[:2] != sizes[:2]:
        raise InputError(f"{source}: family {file.family!r} has other sizes than when the run was made")
    return case_of(facts, family)


def _log(arrays: dict[str, np.ndarray], record: dict[str, Any], sizes: tuple[int, int, int]) -> LogCounts | None:
    if "log.state" not in arrays:
        return None
    columns = {name: arrays[f"log.{name}"] for name in LOG}
    _indices([columns[name] for name in LOG[:3]], sizes)
    for name in LOG[3:]:
        _finite(columns[name], columns["state"].shape)
    if len({column.shape for column in columns.values()}) != 1:
        raise ValueError("columns of several lengths")
    if any(np.any(columns[name] < 0) for name in ("count", "cost_count", "cost_square")):
        raise ValueError("negative counts")
    return LogCounts(**columns, rows=int(record["rows"]), sources=tuple(map(str, record["sources"])))


def _outcomes(arrays: dict[str, np.ndarray], record: dict[str, Any], sizes: tuple[int, int, int]) -> Outcomes | None:
    """Where outcomes lead, with every number in range."""
    if record["outcomes"] is None:
        return None
    outcomes, laws = (Names(*each) for each in zip(("outcome", "law"), record["outcomes"], strict=True))
    moves, seen = arrays["facts.outcomes"], arrays.get("facts.outcomes_seen")
    _indices(moves.T, (*sizes[:2], len(outcomes), sizes[2], len(laws)), whole=True)
    if seen is not None:
        _finite(seen, (len(seen), 3))
        _indices(seen.T[:2].astype(np.int64), (len(laws), len(outcomes)))
        if np.any(seen[:, 2] < 0):
            raise ValueError("outcomes that were seen in part")
    paid = arrays.get("facts.outcomes_costs")
    return Outcomes(moves, seen, outcomes, laws, None if paid is None else _finite(paid, (len(moves),)))


def _counted(said: Any) -> Counted:
    kept = said["order"]
    order = RowDigests(int(kept["rows"]), kept["whole"], tuple(kept["first"]))
    texts = [said["name"], said["digest"], said["path"] or "", order.whole, *order.first]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a log that is not named by text")
    return Counted(**said | {"order": order, "new": int(said["new"])})


def _known(kind: str, names: Any, said: Any) -> Names:
    """Names as they were, with the codes that tables have for them."""
    if isinstance(names, bool) or not (isinstance(names, int) or all(isinstance(name, str) for name in names)):
        raise ValueError("names that are not text")
    return Names(kind, names, {name: code for code, name in said.items()} if isinstance(said, dict) else None)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STEPS:
        raise ValueError("a number that is not whole")
    return value


def _indices(columns: Any, sizes: tuple[int, ...], whole: bool = False) -> None:
    """Refuse columns that are no numbers below these sizes; `whole` if there has to be one for each."""
    for array, size in zip(columns, sizes, strict=whole):
        if array.dtype != np.int64 or array.ndim != 1 or np.any((array < 0) | (array >= size)):
            raise ValueError("indices out of range")


def _finite(array: np.ndarray, *shapes: tuple[int, ...]) -> np.ndarray:
    if array.dtype != np.float64 or not np.all(np.isfinite(array)):
        raise ValueError("numbers that are not finite")
    if shapes and array.shape not in shapes:
        raise ValueError(f"an array of shape {array.shape}")
    return array


def restored(saved: Saved, path: Path) -> Solution:
    """The solution to resume from. What it said of the policy's risk is not kept; no solver looks at that."""
    arguments = saved.case.arguments()
    objective = objective_of(arguments["model"], arguments.get("loss"), occupancy=arguments.get("occupancy"))
    theta = arguments["belief"].sample(0, 1)[0]
    with _damage(path, lambda error: f"{path}: {error}; solve again"):
        limits = len(arguments.get("subject_to", ()))
        state = arguments["solver"].state_from(saved.trees["state"], objective, theta, limits)
        parameters = _finite(saved.trees["parameters"][""], objective.initial().shape)
        columns = {name.removeprefix("."): column for name, column in saved.trees["history"].items()}
        if any(column.dtype != np.float64 or column.ndim != 1 for column in columns.values()):
            raise ValueError("a history that is no list of numbers")
        history = History(**columns)
        # A run that ended early looked once more than it stepped.
        if len({len(column) for column in columns.values()}) != 1 or len(history) - saved.iterations not in (0, 1):
            raise ValueError("a history of another length than the run")
    point = objective.points(parameters[None])[0]
    return Solution(
        status=Status.ITERATION_LIMIT,
        policy=objective.policy(point) if saved.policy is None else TabularPolicy(saved.policy),
        evaluation=Evaluation.none(),
        history=history,
        iterations=saved.iterations,
        seconds=0.0,
        parameters=parameters,
        checkpoint=Checkpoint(state, saved.seed),
    )


def episode_seed(seed: Any, episode: int) -> Any:
    """The seed of an episode: the file's own at first, then such that follow from it."""
    return seed if episode == 0 else child(seed, episode)


class CheckpointWriter:
    """Writes a checkpoint after the first iteration, and now and then from there on.

    Args:
        target: folder of the run, whose lock the caller holds.
        state: the file of a solution, and of how many iterations are left.
        iterations: how many it makes at most in this call.
        resume: what it goes on from.
    """

    def __init__(
        self,
        target: Path,
        state: Callable[[Solution, int], bytes],
        iterations: int,
        resume: Solution | None,
    ):
        self.target, self.state = target, state
        self.end = iterations + (0 if resume is None else resume.iterations)
        self.next = 0.0

    def __call__(self, so_far: Callable[[], Solution]) -> None:
        """Keep the solution so far, if it is time."""
        began = time.monotonic()
        if began < self.next:
            return
        solution = so_far()
        left = max(0, self.end - solution.iterations)
        try:
            commit(
                self.target,
                {UNFINISHED: self.state(solution, left)},
                FILES,
                keep=FILES,
                note={"iterations": solution.iterations, "left": left},
            )
        except OSError as error:
            # The first tells before there is work to lose; what fails later is tried again, at the end at last.
            if self.next == 0.0:
                raise not_written(self.target, error, [UNFINISHED]) from error
        ended = time.monotonic()
        self.next = ended + max(SECONDS, (ended - began) / SHARE)


def not_written(target: Path, error: OSError, names: list[str]) -> InputError:
    """What is there and what is not, after a write that failed."""
    manifest = read_manifest(target)
    files = {} if manifest is None else manifest.files
    there = "nothing is there"
    if files:
        there = f"what was there is as it was ({', '.join(files)})"
    where = f" at {Path(error.filename).name}" if error.filename else ""
    said = f"{target}: {', '.join(names)} could not be written ({error.strerror}{where}); {there}"
    if UNFINISHED in files and manifest is not None:
        kept = f"iteration {manifest.note.get('iterations', 0)} is kept"
        return InputError(f"{said}, and {kept}: make room, then go on with prudent continue {target}")
    return InputError(f"{said}; make room, or choose another --out")
