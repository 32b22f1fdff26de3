"""Records, their trees and the random keys are the same whether JAX is imported or not, which `solve` may not need."""

import copy
import dataclasses
import functools
import itertools
import json
import os
import pickle
import subprocess
import sys
import textwrap
import typing
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prudent as pr
from prudent import records
from prudent.arrays import as_float
from prudent.records import (
    AbstractVar,
    Record,
    changed,
    field,
    raveled,
    same,
    same_structure,
    tree_leaves,
    tree_map,
    tree_paths,
)
from prudent.seeds import as_key, fold_in, generator, jax_key


class Part(Record):
    """A record with something of each kind."""

    weights: object = field(converter=as_float)
    name: str = field(static=True, default="part")
    inside: object = None

    def __check_init__(self):
        if np.ndim(self.weights) != 1:
            raise ValueError("one axis")


class Pair(NamedTuple):
    first: object
    second: object


class Abstract(Record):
    size: AbstractVar[int]


class Sized(Abstract):
    size: int


class Constant(Abstract):
    size = 3


class Written(Record):
    weights: object
    often: int = 2

    def __init__(self, weights):
        self.weights = np.asarray(weights)


class Inherited(Written):
    """Keeps the constructor of its parent."""


class Forgotten(Record):
    weights: object

    def __init__(self):
        pass


TREES = [
    Part([1.0, 2.0], inside=Pair(np.arange(3.0), {"b": 1.0, "a": [2.0, None]})),
    {"b": (1.0, 2.0), "a": Part([3.0])},
    OrderedDict(b=1.0, a=2.0),
    defaultdict(list, b=1.0, a=2.0),
    [np.zeros(2), None, Pair(1.0, ())],
    None,
    5.0,
]


@pytest.fixture
def without_jax(monkeypatch):
    """Trees are taken apart as they are before JAX is imported."""
    monkeypatch.setattr(records, "loaded", lambda: False)


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_trees_are_those_of_jax(tree, without_jax):
    leaves, structure = jax.tree.flatten(tree)
    assert same(tree_leaves(tree), leaves)
    theirs = [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]
    assert same(tree_paths(tree), theirs)
    doubled = tree_map(lambda one, other: one + other, tree, tree)
    assert same(doubled, jax.tree.map(lambda one, other: one + other, tree, tree))
    assert jax.tree.structure(doubled) == structure
    assert same(
        tree_leaves(tree, is_leaf=lambda node: isinstance(node, Pair)),
        jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Pair)),
    )
    for other in TREES:
        assert same_structure(tree, other) == (structure == jax.tree.structure(other))


def test_structures_differ_in_static_fields_keys_and_lengths(without_jax):
    assert same_structure(Part([1.0]), Part([2.0, 3.0]))
    assert not same_structure(Part([1.0]), Part([1.0], name="other"))
    assert not same_structure({"a": 1.0}, {"b": 1.0})
    assert not same_structure((1.0,), (1.0, 2.0))
    assert not same_structure((1.0,), [1.0])
    for one, other in (((1.0,), (1.0, 2.0)), ({"a": 1.0}, {"b": 1.0}), (Part([1.0]), Part([1.0], name="other"))):
        with pytest.raises(ValueError, match="trees differ"):
            tree_map(np.add, one, other)


def test_records_are_converted_checked_and_then_never_change():
    part = Part([1, 2])
    assert part.weights.dtype == np.float64
    with pytest.raises(ValueError, match="one axis"):
        Part(1.0)
    for change in (lambda: setattr(part, "weights", 0), lambda: setattr(part, "new", 0), lambda: delattr(part, "name")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises(TypeError, match="no field other"):
        changed(part, other=1)
    assert same(changed(part, name="other"), Part([1, 2], "other"))
    assert same(dataclasses.replace(part, name="other"), Part([1, 2], "other"))
    assert part == Part([1, 2])
    assert part != Part([1, 3])
    assert part != Part(np.array([1.0, 2.0]), "other")


def test_a_constructor_of_ones_own_is_kept_and_fills_every_field():
    assert Written([1.0]).often == 2
    assert Inherited([1.0]).often == 2
    assert len(jax.tree.leaves(Inherited([1.0]))) == 2
    with pytest.raises(TypeError, match="gave its field weights no value"):
        Forgotten()
    with pytest.raises(TypeError, match="abstract: it has no size"):
        Abstract()
    assert (Sized(4).size, Constant().size) == (4, 3)


def test_records_are_trees_to_jax_and_to_equinox():
    part = TREES[0]
    again = jax.jit(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree))(part)
    assert again.name == "part"
    np.testing.assert_array_equal(again.weights, [2.0, 4.0])
    arrays, rest = eqx.partition(part, eqx.is_array)
    assert eqx.combine(arrays, rest) == part
    row, back = raveled(Part([1.0, 2.0]))
    assert row.shape == (2,)
    np.testing.assert_array_equal(back(row).weights, [1.0, 2.0])


class Asks(Record):
    size: eqx.AbstractVar[int]
    kind: eqx.AbstractClassVar[str]


class Answers(Asks):
    kind = "an answer"

    @property
    def size(self):
        return 2


class Mixin:
    def __init__(self, weights):
        self.weights = np.asarray(weights)


class Mixed(Mixin, Record):
    weights: object


class Remembers(Record):
    weights: object

    @functools.cached_property
    def total(self):
        return self.weights.sum()


def test_classes_of_users_keep_what_dataclasses_and_modules_can():
    assert Answers().size == 2
    np.testing.assert_array_equal(Mixed([1.0]).weights, [1.0])
    with pytest.raises(TypeError, match="abstract: it has no kind, size"):
        Asks()
    part = Part([1.0, np.nan])
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(part, protocol)) == part
    assert copy.deepcopy(part) == part
    remembers = Remembers(np.ones(2))
    assert remembers.total == 2.0
    assert changed(remembers, weights=np.ones(3)).total == 3.0


def test_records_that_are_equal_have_the_same_keys_shapes_and_kinds_of_numbers():
    def part(inside):
        return Part([1.0], inside=inside)

    assert part({"a": 1, 2: 3}) == part({"a": 1, 2: 3})
    assert part({"a": 1}) != part({"b": 1})
    for one, other in itertools.combinations((jnp.ones(3), jnp.ones(1), jnp.ones(2), jnp.ones(3, int)), 2):
        assert part(one) != part(other)
        assert part(np.asarray(one)) != part(np.asarray(other))
    assert part(float("nan")) == part(float("nan"))
    assert part(np.array([np.nan])) == part(np.array([np.nan]))


def test_a_class_that_is_sent_to_a_worker_keeps_its_fields_to_jax():
    def local():
        class Sent(Record):
            weights: object

        return Sent

    script = "import jax, pickle, sys; print(len(jax.tree.leaves(pickle.load(sys.stdin.buffer))))"
    sent = cloudpickle.dumps(local()(np.ones(2)))
    assert subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True).stdout == b"1\n"


@pytest.mark.parametrize("seed", [(), (1,), (1, 2, 3), (2**40, 1), (True, False), (-1, 2), ("a", "b"), (1.5, 2)])
def test_words_that_are_no_key_are_refused(seed):
    with pytest.raises(pr.InputError, match="seed as words must be"):
        as_key(seed)


def test_annotations_can_be_evaluated():
    for function in (pr.solve, pr.evaluate, pr.solve_many, pr.Posterior.sample):
        assert {"seed", "key"} & typing.get_type_hints(function).keys()


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 5, 2**63 - 1])
def test_keys_made_of_their_words_are_those_of_jax(seed):
    with jax.enable_x64(True):
        theirs = jax.random.key(seed)

    def words(key):
        return tuple(int(word) for word in jax.random.key_data(key).ravel())

    assert as_key(seed) == as_key(theirs) == words(theirs) == words(jax_key(seed)) == words(jax_key(as_key(seed)))
    for number in (0, 1, 50, 2**20, 2**32 - 1):
        assert fold_in(as_key(seed), number) == words(jax.random.fold_in(theirs, np.uint32(number)))
    assert fold_in(as_key(seed), np.uint8(250)) == fold_in(as_key(seed), 250)
    draws = [generator(each, 3, 1).integers(2**60) for each in (seed, theirs, as_key(seed))]
    assert len(set(draws)) == 1


def test_longer_keys_are_folded_pair_by_pair():
    key = jax.random.key(5, impl="rbg")
    words = tuple(int(word) for word in jax.random.key_data(jax.random.fold_in(key, 9)))
    assert fold_in(as_key(key), 9) == words
    assert jax.random.key_impl(jax_key(words)) == jax.random.key_impl(key)


SCRIPT = """
    import json, sys
    {before}
    import prudent as pr
    pr.write_example({folder!r})
    run = pr.solve_problem({folder!r} + "/problem.toml", {folder!r} + "/run", progress=False)
    there = sorted(name for name in ("jax", "equinox") if name in sys.modules)
    import jax, jax.numpy as jnp
    leaves = jax.tree.leaves(run.solution.policy)
    print(json.dumps([there, run.solution.risk.hex(), len(leaves), str(jnp.ones(1).dtype)]))
"""


def test_a_small_solve_needs_no_jax_and_says_the_same_with_it(tmp_path):
    said = {}
    for name, before in (("without", ""), ("with", "import jax, equinox")):
        script = textwrap.dedent(SCRIPT.format(before=before, folder=str(tmp_path / name)))
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
        said[name] = json.loads(ran.stdout.splitlines()[-1])
    assert said["without"][0] == []
    assert said["with"][0] == ["equinox", "jax"]
    # Records made before JAX was there are trees to it, too, and its flag is the user's.
    assert said["without"][1:] == said["with"][1:]
    assert said["with"][3] == "float32"


LATE = """
    import prudent as pr
    from prudent.deferred import float64, loaded
    with float64():
        with float64():
            assert not loaded()
            import jax.numpy as jnp
            assert loaded()
            inner = str(jnp.ones(1).dtype)
        middle = str(jnp.ones(1).dtype)
    print(inner, middle, jnp.ones(1).dtype)
"""


def test_jax_imported_in_the_middle_of_a_call_computes_in_float64_until_its_end():
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(LATE)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["float64", "float64", "float32"]


THREADS = """
    import threading
    import numpy as np
    import prudent as pr
    from prudent.deferred import eqx, jax, jnp, lax
    wrong, ready = [], threading.Barrier(4)
    def first(module, name):
        try:
            ready.wait()
            getattr(module, name)
        except Exception as error:
            wrong.append(error)
    pairs = [(jax, "jit"), (jnp, "iinfo"), (lax, "scan"), (eqx, "filter_jit")]
    threads = [threading.Thread(target=first, args=pair) for pair in pairs]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert not wrong, wrong
"""


def test_threads_that_ask_for_jax_at_once_wait_for_the_first():
    subprocess.run([sys.executable, "-c", textwrap.dedent(THREADS)], check=True)


LOOKING = """
    import importlib.util
    from prudent import deferred, records
    assert importlib.util.find_spec("jax") is not None
    assert not deferred.loaded()
    import jax
    assert deferred.loaded()
"""


def test_looking_for_jax_is_not_importing_it():
    subprocess.run([sys.executable, "-c", textwrap.dedent(LOOKING)], check=True)


def test_a_part_shows_its_numbers():
    assert repr(pr.CVaR(0.9)) == "CVaR(level=0.9)"
