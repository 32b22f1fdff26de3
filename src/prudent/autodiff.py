"""JAX, for what it is needed for: functions that users write, networks, simulators, and derivatives of all of these.

It is an extra. Nothing here is imported before something asks for it, and no other module of the core imports JAX or
equinox. Here records become trees to JAX. It computes in float64 only where `jax_enable_x64` is on, a flag that belongs
to the user; so what is compiled here runs in `float64()`, whatever the flag says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from .arrays import as_float, float64, to_numpy
from .errors import InputError
from .records import OTHER_NODES, Node, layout_of, tell_of_kinds, tree_leaves, tree_map

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from jax import flatten_util, lax
except ModuleNotFoundError as error:
    raise InputError(
        f"users' functions, networks and simulators need JAX, and {error.name} is not installed; "
        'pip install "prudent[jax]"'
    ) from error

__all__ = ["as_floats", "each", "eqx", "float64", "jax", "jitted", "jnp", "lax", "mapped", "pull_back", "raveled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def jitted(function: Function) -> Function:
    """`equinox.filter_jit` in float64; what is handed back is NumPy's, but for what is still being traced."""
    compiled = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with float64():
            return to_numpy(compiled(*args, **kwargs))

    return call  # pyright: ignore[reportReturnType]


@jitted
def each(record: Any, methods: tuple[str, ...], batch: Any) -> tuple[Any, ...]:
    """What methods of a record make of each entry of a tree of arrays, along their first axis."""
    return tuple(jax.vmap(getattr(record, method))(batch) for method in methods)


@jitted
def mapped(function: Callable[..., Any], batch: Any) -> Any:
    """What a function makes of each entry of a tree of arrays, along their first axis."""
    return jax.vmap(lambda at: jnp.asarray(function(at)))(batch)


@jitted
def pull_back(record: Any, method: str, batch: Any, slopes: Any) -> Any:
    """Gradients by each entry of a tree, from those by what a method of a record makes of it."""
    return jax.vmap(lambda at, slope: jax.vjp(getattr(record, method), at)[1](slope)[0])(batch, slopes)


def as_floats(tree: Any, name: str = "") -> Any:
    """A list of numbers or an array as one array of float64; of another tree, every leaf."""
    plain = isinstance(tree, list) and all(np.ndim(leaf) == 0 for leaf in tree_leaves(tree))
    return as_float(tree, name) if plain else tree_map(lambda leaf: as_float(leaf, name), tree)


def raveled(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The leaves of a tree in a row, and what makes a tree of such a row; traced."""
    return flatten_util.ravel_pytree(tree)


_registered: set[type] = set()


def _register(kind: Any) -> None:
    """Tell JAX what a record is a tree of.

    The layout is asked for each time: cloudpickle makes a class first, and gives it its fields afterwards.
    """
    if kind in _registered:
        return
    _registered.add(kind)

    def flatten(record: Any) -> tuple[tuple, tuple]:
        own, known = record.__dict__, layout_of(kind)
        return tuple([own[name] for name in known.dynamic]), tuple([own[name] for name in known.static])

    def flatten_with_keys(record: Any) -> tuple[tuple, tuple]:
        children, rest = flatten(record)
        return tuple(zip(map(jax.tree_util.GetAttrKey, layout_of(kind).dynamic), children, strict=True)), rest

    def unflatten(rest: tuple, children: Iterable[Any]) -> Any:
        record = object.__new__(kind)
        own, known = record.__dict__, layout_of(kind)
        for name, value in zip(known.dynamic, children):  # noqa: B905 (a call of JAX's for every compiled function)
            own[name] = value
        for name, value in zip(known.static, rest):  # noqa: B905
            own[name] = value
        return record

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)


def _node(tree: Any) -> Node | None:
    """The node at the root of a tree whose kind only JAX knows, such as a module of equinox's."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    if jax.tree_util.treedef_is_leaf(structure):
        return None
    children = [child for _, child in paths]
    return Node(children, [jax.tree_util.keystr(path) for path, _ in paths], structure, structure.unflatten)


tell_of_kinds(_register)
OTHER_NODES.append(_node)
