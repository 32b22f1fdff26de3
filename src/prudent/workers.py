"""What is mapped over chunks of models and over runs: here, or on the workers of the caller's joblib backend.

Nothing in the library names a backend. Inside `with joblib.parallel_config("loky", n_jobs=4):`, or `"dask"`, or
`"ray"`, items go to its workers; elsewhere they are worked on one after the other, and joblib is not even imported.
What all items share is sent to a worker once and kept there. A worker that dies costs the wave of items it was in, two
for each worker, which is done again.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

logger = logging.getLogger("prudent")

# Times in a row that workers may die without anything having been finished.
ATTEMPTS = 3

# What backends raise when a worker has died, by name: none of them has to be installed.
LOST = {"TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "RayActorError", "ActorDiedError"}
LOST |= {"WorkerCrashedError", "CommClosedError", "CancelledError", "FutureCancelledError", "ObjectLostError"}

# Items of a wave for each worker.
WAVE = 2

# Shared parts that a worker keeps.
KEPT = 4


class _Here(threading.local):
    """Whether this thread is a worker's, which maps nothing further."""

    working = False


_here = _Here()
_unpacked: dict[str, Any] = {}


class Blob(NamedTuple):
    """What all items share, as bytes: an array, which backends send once, or a reference to it in ray's store."""

    digest: str
    content: Any

    def bytes(self) -> bytes:
        """As they were packed."""
        if isinstance(self.content, np.ndarray):
            return self.content.tobytes()
        import ray  # pyright: ignore[reportMissingImports]

        return np.asarray(ray.get(self.content)).tobytes()


def workers() -> int:
    """How many workers the caller's `joblib.parallel_config` names; 1 outside one.

    >>> import joblib
    >>> from prudent.workers import workers
    >>> with joblib.parallel_config("loky", n_jobs=2):
    ...     workers()
    2
    >>> workers()
    1
    """
    joblib = sys.modules.get("joblib")
    if joblib is None or _here.working:
        return 1
    backend, jobs = joblib.parallel.get_active_backend()
    return 1 if jobs in (None, 1) else int(backend.effective_n_jobs(jobs))


def mapped(function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> Iterator[Any]:
    """`function(shared, item)` of each item, in their order.

    Args:
        function: of a module, so that a worker can import it; of its arguments alone.
        shared: sent to a worker once.
        items: worked on by the workers of the active joblib backend where there are several of both.
    """
    if len(items) < 2 or workers() < 2:
        return (function(shared, item) for item in items)
    return iter(_fanned_out(function, shared, items))


def _fanned_out(function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> list[Any]:
    blob, found, failures = _blob((function, shared)), {}, 0
    while len(found) < len(items):
        left = [k for k in range(len(items)) if k not in found]
        before = len(found)
        try:
            for k, result in _results(blob, [(k, items[k]) for k in left]):
                found[k] = result
        except Exception as error:
            if not {kind.__name__ for kind in type(error).__mro__} & LOST:
                raise
            failures = failures + 1 if len(found) == before else 1
            if failures >= ATTEMPTS:
                raise
            again = [k for k in left if k not in found]
            logger.warning(
                "a worker died (%s); %d of %d items are done again: %s",
                type(error).__name__, len(again), len(items), ", ".join(map(str, again[:20])),
            )  # fmt: skip
    return [found[k] for k in range(len(items))]


def _blob(shared: Any) -> Blob:
    import cloudpickle

    content = np.frombuffer(cloudpickle.dumps(shared), np.uint8)
    digest = hashlib.sha256(content.tobytes()).hexdigest()
    if _backend().__module__.split(".")[0] == "ray":
        import ray  # pyright: ignore[reportMissingImports]

        return Blob(digest, ray.put(content))
    return Blob(digest, content)


def _backend() -> Any:
    import joblib.parallel

    return type(joblib.parallel.get_active_backend()[0])


def _results(blob: Blob, items: list[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Results wave by wave: a worker's death then ends its wave, and not the ones before it."""
    import joblib

    wave = WAVE * workers()
    for first in range(0, len(items), wave):
        now = items[first : first + wave]
        before = _present()
        yield from joblib.Parallel(batch_size=1)([joblib.delayed(_work)(*blob, *item) for item in now])  # pyright: ignore
        lost = before - _present()
        if lost:
            numbers = ", ".join(str(k) for k, _ in now)
            logger.warning("a worker died (%s) beside items %s; dask did its again", ", ".join(lost), numbers)


def _present() -> set[str]:
    """Addresses of dask's workers: dask gives the items of one that dies to another without raising anything."""
    import joblib.parallel

    client: Any = getattr(joblib.parallel.get_active_backend()[0], "client", None)
    return set(client.nthreads()) if hasattr(client, "nthreads") else set()


def _work(digest: str, content: Any, number: int, item: Any) -> tuple[int, Any]:
    function, shared = _shared(Blob(digest, content))
    _here.working = True
    try:
        return number, function(shared, item)
    finally:
        _here.working = False


def _shared(blob: Blob) -> Any:
    """What a blob holds, unpacked once by a worker, which keeps the last few."""
    import cloudpickle

    found = _unpacked.pop(blob.digest, None) or cloudpickle.loads(blob.bytes())
    _unpacked[blob.digest] = found
    while len(_unpacked) > KEPT:
        _unpacked.pop(next(iter(_unpacked)), None)
    return found
