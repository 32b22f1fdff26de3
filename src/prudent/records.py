"""Immutable records, and trees of arrays that are made of them.

Each part that can vary, and each result, is a `Record`: a dataclass that is either abstract or final.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import inspect
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform

import numpy as np

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


def _is_abstract(kind: Any) -> bool:
    """Whether an annotation is `AbstractVar`, or one of equinox's of that meaning."""
    name = kind if isinstance(kind, str) else getattr(getattr(kind, "__origin__", kind), "__name__", "")
    return name.split("[")[0].split(".")[-1] in ("AbstractVar", "AbstractClassVar")


# What is told of every kind of records.
_told: list[Callable[[type], None]] = []


def tell_of_kinds(function: Callable[[type], None]) -> None:
    """Call a function with each kind of records that there is, and with each that is made later."""
    _told.append(function)
    kinds = Record.__subclasses__()
    while kinds:
        kind = kinds.pop()
        function(kind)
        kinds += kind.__subclasses__()


@dataclass_transform(field_specifiers=(dataclasses.field, field))
class Record(abc.ABC):
    """An immutable record: every subclass is a dataclass, whose instances are converted, checked, and never change.

    >>> import prudent as pr
    >>> pr.CVaR(0.9)
    CVaR(level=0.9)
    """

    _layout: ClassVar[RecordLayout]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        annotations = inspect.get_annotations(cls)
        asked = {each for each, kind in annotations.items() if _is_abstract(kind)}
        cls.__annotations__ = {each: kind for each, kind in annotations.items() if each not in asked}
        # A subclass keeps the constructor that was written for its parent.
        written = next(each for each in cls.__mro__ if "__init__" in vars(each))
        known = vars(written).get("_layout")
        generated = written is object or (known is not None and known.generated)
        dataclasses.dataclass(eq=False, repr=False, init=generated)(cls)
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        if generated:
            # What a converter is given need not be what it makes, to those who check calls against annotations.
            given = {each.name: Any for each in fields if each.init and "converter" in each.metadata}
            cls.__init__.__annotations__.update(given)
        if generated or known is None:
            cls.__init__ = _finishing(cls.__init__)
        asked = asked.union(*(layout_of(base).missing for base in cls.__bases__ if hasattr(base, "_layout")))
        names = tuple(each.name for each in fields)
        static = tuple(each.name for each in fields if each.metadata.get("static", False))
        cls._layout = RecordLayout(
            names=names,
            static=static,
            dynamic=tuple(each for each in names if each not in static),
            converters=tuple(
                (each.name, each.metadata["converter"]) for each in fields if "converter" in each.metadata
            ),
            checks=tuple(vars(each)["__check_init__"] for each in cls.__mro__ if "__check_init__" in vars(each)),
            missing=frozenset(each for each in asked if each not in names and not hasattr(cls, each)),
            generated=generated,
        )
        for function in tuple(_told):
            function(cls)

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


def _finishing(construct: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor that fills, converts and checks the fields after another one, and closes the record."""

    @functools.wraps(construct)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        kind, own = type(self), self.__dict__
        if OPEN in own:  # called by the constructor of a subclass
            construct(self, *args, **kwargs)
            return
        known = layout_of(kind)
        if known.missing:
            raise TypeError(f"{kind.__name__} is abstract: it has no {', '.join(sorted(known.missing))}")
        own[OPEN] = True
        construct(self, *args, **kwargs)
        for name in known.names:
            if name not in own:
                if not hasattr(kind, name):
                    raise TypeError(f"{kind.__name__}.__init__ gave its field {name} no value")
                own[name] = getattr(kind, name)
        for name, converter in known.converters:
            own[name] = converter(own[name])
        for check in known.checks:
            check(self)
        del own[OPEN]

    return made


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


class Node(NamedTuple):
    """A node of a tree: its children with their names in a path, what it says besides, what makes one of others."""

    children: list[Any]
    names: list[str]
    rest: Any
    rebuilt: Callable[[list[Any]], Any]


# How nodes come apart that are none of these: JAX's, once it is there.
OTHER_NODES: list[Callable[[Any], Node | None]] = []


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree: of records, dictionaries, lists, tuples and None, and what JAX knows besides."""
    node = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    return [tree] if node is None else [leaf for part in node.children for leaf in tree_leaves(part, is_leaf)]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with what a function makes of each leaf and those of other trees."""
    node = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    if node is None:
        return function(tree, *others)
    theirs = []
    for other in others:
        found = _node(other)
        if found is None or not _alike(tree, node, other, found):
            raise ValueError(f"trees differ: {type(tree).__name__} and {type(other).__name__}")
        theirs.append(found.children)
    several = zip(node.children, *theirs, strict=True)
    return node.rebuilt([tree_map(function, *each, is_leaf=is_leaf) for each in several])


def tree_paths(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree with their paths, such as `.iterates.value`."""
    node = _node(tree)
    if node is None:
        return [("", tree)]
    named = zip(node.names, node.children, strict=True)
    return [(f"{name}{path}", leaf) for name, child in named for path, leaf in tree_paths(child)]


def same_structure(one: Any, other: Any) -> bool:
    """Whether two trees differ in their leaves only."""
    node, theirs = _node(one), _node(other)
    if node is None or theirs is None:
        return node is theirs
    return _alike(one, node, other, theirs) and all(map(same_structure, node.children, theirs.children))


def _alike(one: Any, node: Node, other: Any, theirs: Node) -> bool:
    """Whether two nodes differ in their children only."""
    return type(one) is type(other) and len(node.children) == len(theirs.children) and same(node.rest, theirs.rest)


def _node(tree: Any) -> Node | None:
    """The node at the root of a tree; None of a leaf."""
    if tree is None:
        return Node([], [], None, lambda children: None)
    if isinstance(tree, np.ndarray | np.generic | float | int | str):
        return None
    if isinstance(tree, Record):
        own, known = tree.__dict__, layout_of(type(tree))
        return Node(
            [own[name] for name in known.dynamic],
            [f".{name}" for name in known.dynamic],
            [own[name] for name in known.static],
            lambda new: changed(tree, **dict(zip(known.dynamic, new, strict=True))),
        )
    if type(tree) in (dict, OrderedDict, defaultdict):
        keys = list(tree) if isinstance(tree, OrderedDict) else sorted(tree)

        def rebuilt(new: list[Any]) -> Any:
            made = copy.copy(tree)
            made.update(zip(keys, new, strict=True))
            return made

        return Node([tree[key] for key in keys], [f"[{key!r}]" for key in keys], keys, rebuilt)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        named: Any = tree
        # One may have a length of its own, as a sample has.
        children = list(tuple.__iter__(tree))
        return Node(children, [f".{name}" for name in named._fields], None, lambda new: type(tree)(*new))
    if type(tree) in (list, tuple):
        return Node(list(tree), [f"[{place}]" for place in range(len(tree))], None, type(tree))
    found = (other(tree) for other in OTHER_NODES)
    return next((node for node in found if node is not None), None)


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
    node, theirs = _node(one), _node(other)
    if node is None or theirs is None:
        return bool(one == other) or bool(one != one and other != other)
    return _alike(one, node, other, theirs) and all(map(same, node.children, theirs.children))
