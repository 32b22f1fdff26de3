"""Records and their trees, which are also trees to JAX once `autodiff` is imported; and seeds."""

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
from prudent.arrays import as_float
from prudent.autodiff import raveled
from prudent.records import (
    AbstractVar,
    Record,
    changed,
    field,
    same,
    same_structure,
    tree_leaves,
    tree_map,
    tree_paths,
)
from prudent.seeds import as_seed, child, generator


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
    eqx.nn.Linear(2, 1, key=jax.random.key(0)),
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_trees_are_those_of_jax(tree):
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


def test_structures_differ_in_static_fields_keys_and_lengths():
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


@pytest.mark.parametrize("seed", [(), (1, 2), "a", 1.5, True, -1, 2**64, np.ones(2, int), jax.random.key(0), None])
def test_what_is_no_whole_number_is_no_seed(seed):
    with pytest.raises(pr.InputError, match="seed must be a whole number"):
        as_seed(seed)


def test_annotations_can_be_evaluated():
    for function in (pr.solve, pr.evaluate, pr.solve_many, pr.Posterior.sample):
        assert {"seed", "key"} & typing.get_type_hints(function).keys()


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 5, 2**63 - 1, 2**64 - 1])
def test_children_of_a_seed_differ_and_stay_what_they_are(seed):
    numbers = (0, 1, 50, 2**20, 2**32 - 1)
    children = [child(seed, number) for number in numbers]
    assert len({seed, *children}) == len(numbers) + 1
    # Results of many runs rest on this mixing, Threefry-2x32, which `jax.random.fold_in` has, too.
    with jax.enable_x64(True):
        key = jax.random.wrap_key_data(np.array([seed >> 32, seed % 2**32], np.uint32), impl="threefry2x32")
        for number, ours in zip(numbers, children, strict=True):
            high, low = (int(word) for word in jax.random.key_data(jax.random.fold_in(key, np.uint32(number))))
            assert ours == high << 32 | low
    assert child(seed, np.uint8(250)) == child(seed, 250)
    assert generator(seed, 3, 1).integers(2**60) == generator(np.uint64(seed), 3, 1).integers(2**60)


SCRIPT = """
    import json, sys
    {before}
    import prudent as pr
    pr.write_example({folder!r})
    run = pr.solve_problem({folder!r} + "/problem.toml", {folder!r} + "/run", progress=False)
    there = sorted(name for name in ("jax", "equinox") if name in sys.modules)
    import prudent.autodiff, jax, jax.numpy as jnp
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
    # Records made before `autodiff` was there are trees to JAX, too, and its flag is the user's.
    assert said["without"][1:] == said["with"][1:]
    assert said["with"][3] == "float32"


LATE = """
    import prudent as pr
    def loss(occupancy, mdp):
        import jax.numpy as jnp  # for the first time
        said.add(str(jnp.asarray(1.0).dtype))
        return (occupancy**2).sum()
    said = set()
    lake = pr.envs.frozen_lake("SF\\nHG")
    pr.solve(lake, lake.prior, loss=loss, solver=pr.BRPG(iterations=2))
    import jax.numpy as jnp
    print(*said, jnp.ones(1).dtype)
"""


def test_users_functions_compute_in_float64_though_jax_is_imported_in_the_middle_of_a_call():
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(LATE)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["float64", "float32"]


MODULE = """
    import equinox as eqx, jax.numpy as jnp, prudent as pr
    class Shift(eqx.Module):
        at: object
    start = Shift(jnp.zeros(1))
    objective = pr.FunctionObjective(lambda shift, theta: (shift.at[0] - theta[0]) ** 2, start=start)
    found = pr.solve(objective, pr.Draws([[-1.0], [3.0]]), risk=pr.CVaR(0.5)).policy
    print(type(found).__name__, found.at.dtype)
"""


def test_parameters_may_be_a_module_of_equinoxs_from_the_first():
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(MODULE)], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["Shift", "float64"]


THREADS = """
    import threading
    import prudent as pr
    wrong, ready = [], threading.Barrier(4)
    lake = pr.envs.frozen_lake("SF\\nHG")
    def one():
        try:
            ready.wait()
            pr.solve(lake, lake.prior, loss=lambda occupancy, mdp: (occupancy**2).sum(), solver=pr.BRPG(iterations=2))
        except Exception as error:
            wrong.append(error)
    threads = [threading.Thread(target=one) for _ in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert not wrong, wrong
"""


def test_threads_that_need_jax_at_once_wait_for_the_first():
    subprocess.run([sys.executable, "-c", textwrap.dedent(THREADS)], check=True)


WITHOUT = """
    import sys
    for name in ("jax", "equinox", "optax"):
        sys.modules[name] = None
    import prudent as pr
    envs = pr.envs
    for family in (envs.frozen_lake("SF\\nHG"), envs.river_swim(), envs.machine_replacement(), envs.inventory()):
        for solver in (pr.SampleAverage(), pr.BRPG(iterations=5)):
            assert pr.solve(family, family.prior, solver=solver).risk > 0
    try:
        pr.solve(family, family.prior, loss=lambda occupancy, mdp: (occupancy**2).sum())
    except pr.InputError as error:
        print(error)
    try:
        pr.SimulatedFamily
    except pr.InputError as error:
        print(error)
"""


def test_without_jax_the_librarys_own_parts_run_and_what_needs_it_names_the_extra():
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(WITHOUT)], capture_output=True, text=True, check=True)
    assert ran.stdout.count("prudent[jax]") == 2


def test_a_part_shows_its_numbers():
    assert repr(pr.CVaR(0.9)) == "CVaR(level=0.9)"
