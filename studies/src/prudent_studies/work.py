"""Units of work, run here or fanned out to workers, and the run folder that keeps each as it finishes.

    manifest.json            config, versions, git state, map
    units/<unit>.json        what a unit of work gave, written whole or not at all
    <item>.json, .parquet    results, made of the units

A run that was stopped, however rudely, goes on from its records when it is asked for again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prudent import InputError
from prudent.files import write_whole
from prudent.report import versions


class RunFolder(NamedTuple):
    """An open run folder: its place, and the digest of the config that its records belong to."""

    path: Path
    digest: str

    def record(self, unit: str) -> dict[str, Any] | None:
        """What a finished unit gave; None if it has not finished."""
        path = self._record_path(unit)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
            if record["config"] == self.digest and isinstance(record["values"], dict):
                return record
        except (ValueError, KeyError, TypeError):
            pass
        raise InputError(f"{path} is not a record of this run; delete it and run the same command again")

    def values(self, unit: str) -> dict[str, Any]:
        """What a unit gave that must have finished."""
        record = self.record(unit)
        if record is None:
            raise InputError(f"{self._record_path(unit)} is missing; run the same command again to make it")
        return record["values"]

    def keep(self, unit: str, values: Mapping[str, Any], seconds: float) -> None:
        """Store what a unit gave. Floats are written with all their digits, so that reading repeats the bits."""
        record = {"unit": unit, "config": self.digest, "seconds": round(seconds, 3), "values": values}
        write_whole(self._record_path(unit), json.dumps(record, allow_nan=True))

    def write_results(self, item: str, records: list[dict[str, Any]]) -> None:
        """The records of an item as JSON and as Parquet; the same records give the same bytes."""
        write_whole(self.path / f"{item}.json", json.dumps(records, indent=1, allow_nan=False) + "\n")
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist(records)
        write_whole(self.path / f"{item}.parquet", lambda file: pyarrow.parquet.write_table(table, file))

    def _record_path(self, unit: str) -> Path:
        return self.path / "units" / f"{unit}.json"


def open_folder(path: str | Path, config: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[RunFolder, list[str]]:
    """Begin a run folder, or go on with one of the same config.

    Args:
        path: of the folder; made if there is none.
        config: everything the results depend on.
        about: what else the manifest says, such as the map.

    Returns:
        The folder, and warnings: versions that differ from those the folder was begun with.
    """
    path = Path(path)
    manifest_path = path / "manifest.json"
    path.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(config))
    folder = RunFolder(path, hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest())
    _clear_leftovers(path)
    if not manifest_path.exists():
        if any(path.iterdir()):
            raise InputError(
                f"{path} holds files but no manifest.json, so it is not a run folder; choose another with --out"
            )
        manifest = {"config": config, "versions": versions(), "git": git_state(), **about}
        write_whole(manifest_path, json.dumps(manifest, indent=1) + "\n")
        return folder, []
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        before, known = manifest["config"], manifest["versions"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{manifest_path} is not a manifest of a run; choose another folder with --out") from None
    changed = _differences(before, config)
    if changed:
        raise InputError(
            f"{path} was begun with another config: {'; '.join(changed)}. Give the old values, or another folder "
            "with --out"
        )
    differing = [
        f"{name} is {now}, the folder was begun with {known.get(name)}: finished units are kept, the bits of new ones "
        "may differ"
        for name, now in versions().items()
        if known.get(name, now) != now
    ]
    return folder, differing


def git_state() -> dict[str, Any] | None:
    """The commit the package's source is at, and whether it has changes; None outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "--", "."))}
    return None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`name: old, now new` for every entry that is not the same."""
    names = [*before, *(name for name in now if name not in before)]
    return [
        f"{name} was {json.dumps(before.get(name))}, now {json.dumps(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _clear_leftovers(path: Path) -> None:
    """Remove what killed processes left half-written; that of a living one is its own."""
    for partial in path.rglob(".*.partial"):
        process = partial.name.split(".")[-2]
        if process.isdigit() and not _alive(int(process)):
            partial.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Unit(NamedTuple):
    """A piece of work whose result depends on its arguments alone.

    Attributes:
        name: of its record in the run folder.
        function: of a module, so that workers can import it; gives plain numbers and lists.
        arguments: of the function, plain too.
        compiled: whether it runs replications in one compiled batch, which uses all cores by itself; other
            units are fanned out.
        cost: rough seconds, for the time left.
    """

    name: str
    function: Callable[..., dict[str, Any]]
    arguments: dict[str, Any]
    compiled: bool
    cost: float


class Backend(NamedTuple):
    """Where units that are not compiled go: a backend of joblib, and how many workers."""

    name: str = "loky"
    jobs: int = 2

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Workers on this machine only, bound to 127.0.0.1."""
        import joblib

        with contextlib.ExitStack() as stack:
            if self.name == "dask":
                stack.enter_context(_dask(self.jobs))
            elif self.name == "ray":
                stack.enter_context(_ray(self.jobs))
            stack.enter_context(joblib.parallel_config(self.name, n_jobs=self.jobs))
            yield

    def results(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, dict[str, Any], float]]:
        """Each unit with its values and seconds, as they finish; ray's backend hands back whole waves only."""
        import joblib

        tasks = [joblib.delayed(_run)(unit) for unit in units]
        if self.name == "ray":
            wave = 4 * self.jobs
            for first in range(0, len(tasks), wave):
                yield from joblib.Parallel(batch_size=1)(tasks[first : first + wave])  # pyright: ignore
        else:
            yield from joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks)  # pyright: ignore


BACKENDS = ("loky", "dask", "ray")


def run_units(
    units: Sequence[Unit],
    folder: RunFolder,
    backend: Backend,
    advance: Callable[[Unit], None] = lambda unit: None,
) -> None:
    """Run the units that have no record yet and keep each as it finishes.

    The order in which units finish does not matter: none sees another's result.
    """
    if backend.name not in BACKENDS:
        raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend.name!r}")
    left = []
    for unit in {unit.name: unit for unit in units}.values():
        if folder.record(unit.name) is None:
            left.append(unit)
        else:
            advance(unit)
    for unit in left:
        if unit.compiled:
            _, values, seconds = _run(unit)
            folder.keep(unit.name, values, seconds)
            advance(unit)
    fanned = [unit for unit in left if not unit.compiled]
    if not fanned:
        return
    # The longest first: none of them should be the one that is waited for.
    fanned.sort(key=lambda unit: -unit.cost)
    with backend.running():
        for unit, values, seconds in backend.results(fanned):
            folder.keep(unit.name, values, seconds)
            advance(unit)


def _run(unit: Unit) -> tuple[Unit, dict[str, Any], float]:
    clock = time.perf_counter()
    values = unit.function(**unit.arguments)
    return unit, values, time.perf_counter() - clock


@contextlib.contextmanager
def _dask(jobs: int) -> Iterator[None]:
    try:
        from dask.distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("the backend dask needs dask; install it with: pip install 'prudent-studies[dask]'") from None
    with (
        LocalCluster(n_workers=jobs, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,  # pyright: ignore[reportArgumentType]
        Client(cluster),
    ):
        yield


@contextlib.contextmanager
def _ray(jobs: int) -> Iterator[None]:
    try:
        import ray  # pyright: ignore[reportMissingImports]
        from ray.util.joblib import register_ray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("the backend ray needs ray; install it with: pip install 'prudent-studies[ray]'") from None
    register_ray()
    ray.init(
        address="local",
        num_cpus=jobs,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )
    try:
        yield
    finally:
        ray.shutdown()


class Progress:
    """A bar with the time left on a terminal; elsewhere a line when an item's table is printed is enough."""

    def __init__(self, units: Sequence[Unit]):
        unique = {unit.name: unit.cost for unit in units}
        self.total = sum(unique.values())
        self.seen: set[str] = set()
        self.bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )

    def __enter__(self) -> Any:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("starting", total=self.total)
        return self.advance

    def advance(self, unit: Unit) -> None:
        """A unit is done; items may share it."""
        if unit.name not in self.seen and self.bar is not None:
            self.bar.update(self.task, advance=unit.cost, description=unit.name)
        self.seen.add(unit.name)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
