"""A solver's state as named arrays and back, checked: what a checkpoint on disk holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..arrays import in_float64, to_numpy
from ..errors import InputError
from ..objectives import Objective
from ..parameter_sets import projected
from . import brpg
from .brpg import BRPG
from .descent import GOING, Iterates, Space, begin
from .natural import NaturalGradient
from .optimiser import Optimiser
from .prox_linear import ProxLinear
from .quasi_newton import LBFGS
from .sample_average import SampleAverage, space_of
from .search import HELD_OUT, Incumbent, Search

Arrays = dict[str, np.ndarray]

# Whole numbers of a search, with the least that is too large; codes of how points and runs end are few.
CODES = 16
NUMBERS = {"stage": 32, "kind": 2, "done": CODES, "iterations": 2**31, "models": 2**62}


def named_leaves(tree: Any) -> Arrays:
    """The leaves of a record by their paths, such as `.iterates.value`; what is None has no name."""
    leaves = jax.tree_util.tree_flatten_with_path(to_numpy(tree))[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


@in_float64
def state_from(arrays: Arrays, settings: Optimiser, objective: Objective, theta: np.ndarray) -> Any:
    """The state whose leaves were `named_leaves(state)`, for the same settings and an objective of the same kind.

    Arrays that no run of these settings could have left are refused: every one must have the name, the type and the
    shape that it would have had.
    """
    initial = to_numpy(projected(objective.within, objective.initial()))
    if isinstance(settings, BRPG):
        fresh = brpg.begin(settings.for_loop(), _repeated(initial, 1), 1)
        state = _filled(jax.tree.map(lambda leaf: np.asarray(leaf)[0], fresh), arrays)
        if not (0 <= state.steps < 2**30 and brpg.GOING <= state.finished <= brpg.NON_FINITE):
            raise _foreign()
        return state
    if isinstance(settings, SampleAverage):
        return _search(arrays, settings, space_of(objective, theta), _repeated(initial, 1))
    raise InputError(f"a state of {type(settings).__name__} cannot be read back from arrays")


def _search(arrays: Arrays, settings: SampleAverage, space: Space, initial: Any) -> Search:
    numbers = {name: _whole(arrays, f".{name}", limit) for name, limit in NUMBERS.items()}
    switches = {name: _switch(arrays, f".{name}") for name in ("scoring", "moved")}
    rounds = _whole(arrays, ".iterates.rounds", 2**31)
    points = np.shape(_one(arrays, ".iterates.value"))
    if len(points) != 1 or not 1 <= points[0] <= settings.starts or numbers["stage"] >= settings.stages():
        raise _foreign()
    # Before the first evaluation a step has nothing to remember.
    iterates = begin(space, initial)
    if rounds:
        iterates = dataclasses.replace(iterates, memory=_blank(arrays, settings, iterates))
    iterates = _filled(iterates, _below(arrays, ".iterates"), points[0])
    incumbent = None
    if any(name.startswith(".incumbent") for name in arrays):
        answer = _filled(Incumbent(initial, 0.0, 0, np.zeros(HELD_OUT)), _below(arrays, ".incumbent"))
        code = _whole(arrays, ".incumbent.code", CODES)
        incumbent = dataclasses.replace(answer, in_sample=float(answer.in_sample), code=code)
    floor = _one(arrays, ".floor")
    if floor.shape != () or floor.dtype != np.float64:
        raise _foreign()
    search = Search(
        iterates=dataclasses.replace(iterates, rounds=rounds),
        floor=float(floor),
        incumbent=incumbent,
        **numbers,
        **switches,
    )
    if named_leaves(search).keys() != arrays.keys() or not _possible(search):
        raise _foreign()
    return search


def _blank(arrays: Arrays, settings: SampleAverage, iterates: Iterates) -> Any:
    """The empty memory of the step that left these arrays."""
    steps = (ProxLinear(), NaturalGradient(), LBFGS()) if settings.step is None else (settings.step,)
    there = {name for name in arrays if name.startswith(".iterates.memory")}
    for step in steps:
        memory = step.blank(iterates)
        if {f".iterates.memory{name}" for name in named_leaves(memory)} == there:
            return memory
    raise _foreign()


def _possible(search: Search) -> bool:
    """Whether a run could have come here."""
    iterates: Iterates = search.iterates
    codes = np.asarray(iterates.finished)
    return bool(
        np.all((codes >= GOING) & (codes < CODES))
        and np.all(np.isfinite(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(iterates.parameters)])))
        and np.all(np.asarray(iterates.idle) >= 0)
        and (search.stage == 0 or search.incumbent is not None)
        and (iterates.rounds > 0 or not search.scoring)
        and not (search.scoring and search.done != GOING)
    )


def _repeated(parameters: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, axis=0), parameters)


def _below(arrays: Arrays, name: str) -> Arrays:
    return {place.removeprefix(name): array for place, array in arrays.items() if place.startswith(name)}


def _one(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays:
        raise _foreign()
    return arrays[name]


def _whole(arrays: Arrays, name: str, limit: int) -> int:
    value = _one(arrays, name)
    if value.shape != () or value.dtype != np.int64 or not 0 <= value < limit:
        raise _foreign()
    return int(value)


def _switch(arrays: Arrays, name: str) -> bool:
    value = _one(arrays, name)
    if value.shape != () or value.dtype != np.bool_:
        raise _foreign()
    return bool(value)


def _filled(template: Any, arrays: Arrays, points: int | None = None) -> Any:
    """The template's tree with the arrays in it; the first axis of its arrays may have become `points` long."""
    expected = named_leaves(template)

    def shape(leaf: np.ndarray) -> tuple[int, ...]:
        return leaf.shape if points is None or leaf.ndim == 0 else (points, *leaf.shape[1:])

    fits = expected.keys() == arrays.keys() and all(
        leaf.dtype == arrays[place].dtype and shape(leaf) == arrays[place].shape for place, leaf in expected.items()
    )
    if not fits:
        raise _foreign()
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[place] for place in expected])


def _foreign() -> InputError:
    return InputError("holds the state of another solver, or of other settings, than this version of prudent has")
