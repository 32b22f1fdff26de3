"""A solver's state as named arrays and back, checked: what a checkpoint on disk holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..errors import InputError
from ..records import tree_map, tree_paths

Arrays = dict[str, np.ndarray]


def named_leaves(tree: Any) -> Arrays:
    """The leaves of a record by their paths, such as `.iterates.value`; what is None has no name."""
    return {path: np.asarray(leaf) for path, leaf in tree_paths(to_numpy(tree))}


def below(arrays: Arrays, name: str) -> Arrays:
    """The arrays whose names begin so, by the rest of their names."""
    return {place.removeprefix(name): array for place, array in arrays.items() if place.startswith(name)}


def filled(template: Any, arrays: Arrays, points: int | None = None) -> Any:
    """The template's tree with the arrays in it; the first axis of its arrays may have become `points` long.

    Arrays that the template could not have left are refused: each must have the name, the type and the shape of a leaf.
    """
    expected = named_leaves(template)

    def shape(leaf: np.ndarray) -> tuple[int, ...]:
        return leaf.shape if points is None or leaf.ndim == 0 else (points, *leaf.shape[1:])

    fits = expected.keys() == arrays.keys() and all(
        leaf.dtype == arrays[place].dtype and shape(leaf) == arrays[place].shape for place, leaf in expected.items()
    )
    if not fits:
        raise foreign()
    # A number comes back as Python's own where it was one.
    places = iter(expected)

    def value(leaf: Any) -> Any:
        array = arrays[next(places)]
        return array.item() if type(leaf) in (bool, int, float) else array

    return tree_map(value, template)


def foreign() -> InputError:
    """The refusal of arrays that no run of these settings could have left."""
    return InputError("holds the state of another solver, or of other settings, than this version of prudent has")
