"""Units of work: small enough to lose one, run here or fanned out to workers, kept as they finish."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from .folder import RunFolder


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
        raise InputError("the backend dask needs dask; install it with: pip install 'prudent[dask]'") from None
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
        raise InputError("the backend ray needs ray; install it with: pip install 'prudent[ray]'") from None
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
