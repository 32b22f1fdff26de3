"""Minari datasets as logs: observations and actions that are whole numbers, or vectors of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .names import suggest
from .reading import BATCH_ROWS, Batch


def minari_batches(name: str, names: Sequence[str], numbers: Sequence[str]) -> Iterator[Batch]:
    """The steps of a dataset that is on this machine, episode by episode; a reward is a negative cost."""
    if list(names[:3]) != ["state", "action", "next_state"]:
        raise InputError(f"minari:{name}: a dataset is a log of transitions; give this table as a file")
    dataset = _load(name)
    source, rows = f"minari:{name}", 0
    pending: list[dict[str, np.ndarray]] = []
    waiting = 0
    for episode in dataset.iterate_episodes():
        columns = _columns(source, episode)
        pending.append({column: columns[column] for column in (*names, *numbers) if column in columns})
        waiting += len(columns["state"])
        if waiting >= BATCH_ROWS:
            yield _joined(source, rows, pending)
            rows, waiting, pending = rows + waiting, 0, []
    if waiting:
        yield _joined(source, rows, pending)


def minari_walks(name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Observations `[T + 1, n]` and actions `[T, m]` of each episode of a dataset that is on this machine."""
    for episode in _load(name).iterate_episodes():
        where = f"minari:{name}, episode {episode.id}"
        walk = []
        for what, part in (("observations", episode.observations), ("actions", episode.actions)):
            array = np.asarray(part)
            if array.dtype.kind != "f":
                raise InputError(f"{where}: {what} are not vectors of numbers (Box); read it with read_log")
            walk.append(array.astype(np.float64).reshape(len(array), -1))
        _require_last(where, *walk)
        yield walk[0], walk[1]


def _require_last(where: str, observations: np.ndarray, actions: np.ndarray) -> None:
    if len(observations) != len(actions) + 1:
        raise InputError(
            f"{where}: has {len(observations)} observations for {len(actions)} actions; the last next state is missing"
        )


def _load(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise InputError("Minari datasets need the extra gym: pip install 'prudent[gym]'") from None
    try:
        known = minari.list_local_datasets()
    except Exception as error:
        raise InputError(f"minari:{name}: the local datasets cannot be listed: {error}") from None
    if name not in known:
        raise InputError(
            f"minari:{name}: there is no such dataset on this machine"
            + (suggest(name, known) or f"; download it first: minari download {name}")
        )
    try:
        return minari.load_dataset(name)
    except Exception as error:
        raise InputError(f"minari:{name}: cannot be loaded: {' '.join(str(error).split())[:200]}") from None


def _columns(source: str, episode: Any) -> dict[str, np.ndarray]:
    where = f"{source}, episode {episode.id}"
    observations, actions = np.asarray(episode.observations), np.asarray(episode.actions)
    for what, array in (("observations", observations), ("actions", actions)):
        if array.dtype.kind not in "iu" or array.reshape(len(array), -1).shape[1] != 1:
            raise InputError(
                f"{where}: {what} are not whole numbers, as a table of states needs; vectors of numbers are read "
                "with read_vector_log"
            )
    observations, actions = observations.reshape(-1), actions.reshape(-1)
    _require_last(where, observations, actions)
    return {
        "state": observations[:-1],
        "action": actions,
        "next_state": observations[1:],
        "cost": -np.asarray(episode.rewards, np.float64).reshape(-1),
        "unit": np.full(len(actions), episode.id),
    }


def _joined(source: str, rows: int, episodes: list[dict[str, np.ndarray]]) -> Batch:
    columns = {name: pa.array(np.concatenate([episode[name] for episode in episodes])) for name in episodes[0]}
    return Batch(source, rows + 1, columns)
