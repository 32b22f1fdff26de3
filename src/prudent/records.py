"""Immutable records that JAX sees as trees of arrays, and such trees while JAX is not there.

Each part that can vary, and each result, is a `Record`: a dataclass that is either abstract or final.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from .deferred import flatten_util, jax, loaded, when_loaded

# In the fields of a record while it is constructed.
OPEN = "_open"

Kind = TypeVar("Kind")
Value = TypeVar("Value")

if TYPE_CHECKING:
    AbstractVar: TypeAlias = Annotated[Value, "AbstractVar"]
else:

    class AbstractVar:
        """Annotation of what every final subclass has to have, as a field or otherwise."""

        def __class_getitem__(cls, kind):
            return cls


def field(
    *, converter: Callable[[Any], Any] | None = None, static: bool = False, metadata: Any = None, **options: Any
) -> Any:
    """A field of a record.

    Args:
        converter: applied to what is given.
        static: whether it belongs to the shape of the tree; JAX compiles a function again where another is given.
        metadata: of `dataclasses.field`.
        **options: of `dataclasses.field`.
    """
    own = {"converter": converter} if converter else {}
    return dataclasses.field(metadata={**(metadata or {}), **own, "static": static}, **options)


class RecordLayout(NamedTuple):
    """What is known of a kind of records: its fields, and what its instances are put through."""

    names: tuple[str, ...]
    static: tuple[str, ...]
    dynamic: tuple[str, ...]
    converters: tuple[tuple[str, Callable[[Any], Any]], ...]
    checks: tuple[Callable[[Any], None], ...]
    missing: frozenset[str]
    generated: bool


def layout_of(kind: type) -> RecordLayout:
    """The layout of a kind of records."""
    return kind._layout  # pyright: ignore[reportAttributeAccessIssue]


@dataclass_transform(field_specifiers=(dataclasses.field, field))
class _RecordType(abc.ABCMeta):
    """Makes dataclasses of subclasses, and finishes their instances: converted, checked, never changed again."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        made: Any = super().__new__(cls, name, bases, namespace, **options)
        annotations = inspect.get_annotations(made)
        asked = {each for each, kind in annotations.items() if _is_abstract(kind)}
        made.__annotations__ = {each: kind for each, kind in annotations.items() if each not in asked}
        # A subclass keeps the constructor that was written for its parent.
        written = next((each for each in made.__mro__ if "__init__" in vars(each)), object)
        generated = written is object or (
            written is not made and isinstance(written, _RecordType) and layout_of(written).generated
        )
        made = dataclasses.dataclass(eq=False, repr=False, init=generated)(made)
        fields = dataclasses.fields(made)
        if generated:
            # What a converter is given need not be what it makes, to those who check calls against annotations.
            given = {each.name: Any for each in fields if each.init and "converter" in each.metadata}
            made.__init__.__annotations__.update(given)
        asked = asked.union(*(layout_of(base).missing for base in bases if isinstance(base, _RecordType)))
        names = tuple(each.name for each in fields)
        static = tuple(each.name for each in fields if each.metadata.get("static", False))
        made._layout = RecordLayout(
            names=names,
            static=static,
            dynamic=tuple(each for each in names if each not in static),
            converters=tuple(
                (each.name, each.metadata["converter"]) for each in fields if "converter" in each.metadata
            ),
            checks=tuple(vars(each)["__check_init__"] for each in made.__mro__ if "__check_init__" in vars(each)),
            missing=frozenset(each for each in asked if each not in names and not hasattr(made, each)),
            generated=generated,
        )
        when_loaded(lambda: _register(made))
        return made

    # Hidden from type checkers, which read from the fields what a call takes and gives.
    if not TYPE_CHECKING:

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            known = cls._layout
            if known.missing:
                raise TypeError(f"{cls.__name__} is abstract: it has no {', '.join(sorted(known.missing))}")
            made = cls.__new__(cls, *args, **kwargs)
            own = made.__dict__
            own[OPEN] = True
            made.__init__(*args, **kwargs)
            for name in known.names:
                if name not in own:
                    if not hasattr(cls, name):
                        raise TypeError(f"{cls.__name__}.__init__ gave its field {name} no value")
                    own[name] = getattr(cls, name)
            for name, converter in known.converters:
                own[name] = converter(own[name])
            for check in known.checks:
                check(made)
            del own[OPEN]
            return made

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _is_abstract(kind: Any) -> bool:
    """Whether an annotation is `AbstractVar`, or one of equinox's of that meaning."""
    name = kind if isinstance(kind, str) else getattr(getattr(kind, "__origin__", kind), "__name__", "")
    return name.split("[")[0].split(".")[-1] in ("AbstractVar", "AbstractClassVar")


def _register(kind: Any) -> None:
    """Tell JAX what a record is a tree of.

    The layout is asked for each time: cloudpickle makes a class first, and gives it its fields afterwards.
    """
    from jax.tree_util import GetAttrKey, register_pytree_with_keys

    def flatten(record: Any) -> tuple[tuple, tuple]:
        own, known = record.__dict__, kind._layout
        return tuple([own[name] for name in known.dynamic]), tuple([own[name] for name in known.static])

    def flatten_with_keys(record: Any) -> tuple[tuple, tuple]:
        children, rest = flatten(record)
        return tuple(zip(map(GetAttrKey, kind._layout.dynamic), children, strict=True)), rest

    def unflatten(rest: tuple, children: Iterable[Any]) -> Any:
        record = object.__new__(kind)
        own, known = record.__dict__, kind._layout
        for name, value in zip(known.dynamic, children):  # noqa: B905 (a call of JAX's for every compiled function)
            own[name] = value
        for name, value in zip(known.static, rest):  # noqa: B905
            own[name] = value
        return record

    register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)


class Record(metaclass=_RecordType):
    """An immutable record, which is also a tree of the arrays in its fields.

    >>> import prudent as pr
    >>> pr.CVaR(0.9)
    CVaR(level=0.9)
    """

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if OPEN not in self.__dict__ or name not in layout_of(type(self)).names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__name__}")
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        return same(self, other)

    def __hash__(self) -> int:
        return hash((type(self), *(self.__dict__[name] for name in layout_of(type(self)).names)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={_short(self.__dict__.get(name))}" for name in layout_of(type(self)).names)
        return f"{type(self).__name__}({inside})"


# Of an array, as many numbers are shown as can be read.
MOST_SHOWN = 8


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.tolist()) if value.size <= MOST_SHOWN else f"{value.dtype}{list(value.shape)}"
    return repr(value)


def changed(record: Kind, **fields: Any) -> Kind:
    """The same record with other values in some fields, which are neither converted nor checked."""
    kind: Any = type(record)
    unknown = fields.keys() - set(layout_of(kind).names)
    if unknown:
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    made, own = object.__new__(kind), record.__dict__
    made.__dict__.update({name: own[name] for name in layout_of(kind).names} | fields)
    return made


IsLeaf: TypeAlias = Callable[[Any], bool] | None


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, as `jax.tree.leaves` has them."""
    if loaded():
        return jax.tree.leaves(tree, is_leaf=is_leaf)
    parts = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    return [tree] if parts is None else [leaf for part in parts[0] for leaf in tree_leaves(part, is_leaf)]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with what a function makes of each leaf and those of other trees, as `jax.tree.map` does."""
    if loaded():
        return jax.tree.map(function, tree, *others, is_leaf=is_leaf)
    parts = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    if parts is None:
        return function(tree, *others)
    children, rebuilt, _ = parts
    theirs = []
    for other in others:
        found = _parts(other)
        if found is None or not _alike(tree, other) or len(found[0]) != len(children):
            raise ValueError(f"trees differ: {type(tree).__name__} and {type(other).__name__}")
        theirs.append(found[0])
    return rebuilt([tree_map(function, *several, is_leaf=is_leaf) for several in zip(children, *theirs, strict=True)])


def tree_paths(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree with their paths, such as `.iterates.value`."""
    if loaded():
        return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    parts = _parts(tree)
    if parts is None:
        return [("", tree)]
    return [
        (f"{name}{path}", leaf)
        for name, child in zip(parts[2], parts[0], strict=True)
        for path, leaf in tree_paths(child)
    ]


def same_structure(one: Any, other: Any) -> bool:
    """Whether two trees differ in their leaves only."""
    if loaded():
        return jax.tree.structure(one) == jax.tree.structure(other)
    parts, theirs = _parts(one), _parts(other)
    if parts is None or theirs is None:
        return parts is theirs
    return _alike(one, other) and len(parts[0]) == len(theirs[0]) and all(map(same_structure, parts[0], theirs[0]))


def _alike(one: Any, other: Any) -> bool:
    """Whether two nodes differ in their children only."""
    if type(one) is not type(other) or (isinstance(one, dict) and one.keys() != other.keys()):
        return False
    static = layout_of(type(one)).static if isinstance(one, Record) else ()
    return all(same(one.__dict__[name], other.__dict__[name]) for name in static)


def raveled(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The leaves of a tree in a row, and what makes a tree of such a row; traced."""
    return flatten_util.ravel_pytree(tree)


def _parts(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any], list[str]] | None:
    """The children of a node, what makes a node of others, and their names in a path; None of a leaf."""
    if tree is None:
        return [], lambda children: None, []
    if isinstance(tree, Record):
        names = layout_of(type(tree)).dynamic
        children = [tree.__dict__[name] for name in names]
        return children, lambda new: changed(tree, **dict(zip(names, new, strict=True))), [f".{each}" for each in names]
    if type(tree) in (dict, OrderedDict, defaultdict):
        keys = list(tree) if isinstance(tree, OrderedDict) else sorted(tree)

        def rebuilt(new: list[Any]) -> Any:
            made = copy.copy(tree)
            made.update(zip(keys, new, strict=True))
            return made

        return [tree[key] for key in keys], rebuilt, [f"[{key!r}]" for key in keys]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        named: Any = tree
        return list(tree), named._make, [f".{name}" for name in named._fields]
    if type(tree) in (list, tuple):
        return list(tree), type(tree), [f"[{place}]" for place in range(len(tree))]
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two trees are of one structure and have equal leaves; NaN equals NaN."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Record):
        return all(same(one.__dict__[name], other.__dict__[name]) for name in layout_of(type(one)).names)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "dtype"):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    parts, theirs = _parts(one), _parts(other)
    if parts is None or theirs is None:
        return bool(one == other) or bool(one != one and other != other)
    return _alike(one, other) and len(parts[0]) == len(theirs[0]) and all(map(same, parts[0], theirs[0]))
