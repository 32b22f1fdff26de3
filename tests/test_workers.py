"""Work fanned out by joblib: the numbers of one process, on any backend, through deaths of workers, on two devices."""

import logging
import os
import signal
import subprocess
import sys
import textwrap

import joblib
import numpy as np
import pytest

import prudent as pr
from prudent.workers import mapped, workers

LAKE = pr.envs.frozen_lake("SF\nHG")


def squared(shared, item):
    return shared * item**2, os.getpid()


def dying(folder, item):
    """The third item kills its process, once."""
    marker = os.path.join(folder, "died")
    if item == 3 and not os.path.exists(marker):
        with open(marker, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2


def failing(_, item):
    raise ValueError(f"item {item}")


def test_outside_a_config_nothing_is_fanned_out():
    assert workers() == 1
    assert {process for _, process in mapped(squared, 2.0, range(5))} == {os.getpid()}


def test_items_go_to_workers_in_order_and_workers_fan_nothing_out():
    with joblib.parallel_config("loky", n_jobs=2):
        assert workers() == 2
        found = list(mapped(squared, 2.0, list(range(7))))
    assert [value for value, _ in found] == [2.0 * k**2 for k in range(7)]
    assert os.getpid() not in {process for _, process in found}


def test_what_fails_in_a_worker_fails_here():
    with joblib.parallel_config("loky", n_jobs=2), pytest.raises(ValueError, match="item"):
        list(mapped(failing, None, [1, 2]))


def test_a_worker_that_is_killed_costs_its_items_only(tmp_path, caplog):
    with joblib.parallel_config("loky", n_jobs=2), caplog.at_level(logging.WARNING, "prudent"):
        assert list(mapped(dying, str(tmp_path), list(range(8)))) == [k**2 for k in range(8)]
    assert "done again" in caplog.text and "3" in caplog.text


DEVICES = """
import jax, numpy as np, prudent as pr
from prudent.objectives import losses_on, slopes_on
assert len(jax.devices()) == 2
lake = pr.envs.frozen_lake("SF\\nHG")
points = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4))
thetas = lake.prior.sample(0, 16)
found = slopes_on(lake.objective(), points, thetas, np.repeat([0, 1], 16), np.tile(np.arange(16), 2))
print(repr(losses_on(lake.objective(), points, thetas).ravel().tolist()))
print(repr(found.slopes.ravel().tolist()))
"""


def test_several_devices_share_a_chunk():
    """In a process of its own, with two devices made of one processor."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DEVICES)],
        env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    from prudent.objectives import losses_on, slopes_on

    losses, slopes = (np.array(eval(line)) for line in ran.stdout.splitlines())
    points = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 4))
    thetas = LAKE.prior.sample(0, 16)
    found = slopes_on(LAKE.objective(), points, thetas, np.repeat([0, 1], 16), np.tile(np.arange(16), 2))
    np.testing.assert_allclose(losses, losses_on(LAKE.objective(), points, thetas).ravel(), rtol=1e-12)
    np.testing.assert_allclose(slopes, found.slopes.ravel(), rtol=1e-12, atol=1e-12)


SETTINGS = {"solver": pr.SampleAverage(samples=16, largest=16, starts=2, evaluation=64), "certify": False}


def many(count, loss=None):
    beliefs = [LAKE.prior.update(LAKE.trials(n=5, truth=(0.3, 0.1), seed=s)) for s in range(count)]
    return [row[0].risk for row in pr.solve_many(LAKE, beliefs, [pr.CVaR(0.5)], loss=loss, **SETTINGS)]


class Lethal:
    """The expected cost, of which the first process other than this to trace it dies."""

    def __init__(self, folder):
        self.here, self.marker = os.getpid(), os.path.join(folder, "died")

    def __call__(self, occupancy, mdp):
        if os.getpid() != self.here and not os.path.exists(self.marker):
            with open(self.marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return (occupancy * mdp.cost).sum()


# Ray forks to start its servers, of which JAX warns.
forks = pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")


@forks
@pytest.mark.long
@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_backends_give_the_numbers_of_the_serial_run(backend):
    serial = many(33)
    with cluster(backend), joblib.parallel_config(backend, n_jobs=2):
        assert many(33) == serial


@forks
@pytest.mark.long
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_on_a_cluster_a_killed_worker_costs_its_items_only(backend, tmp_path, caplog):
    with cluster(backend), joblib.parallel_config(backend, n_jobs=2), caplog.at_level(logging.WARNING, "prudent"):
        assert list(mapped(dying, str(tmp_path), list(range(8)))) == [k**2 for k in range(8)]
    said = [record.getMessage() for record in caplog.records if record.name == "prudent"]
    assert len(said) == 1 and "a worker died" in said[0] and "3" in said[0].split("items")[1]


@forks
@pytest.mark.long
@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_a_worker_killed_while_it_solves_changes_no_number(backend, tmp_path, caplog):
    loss = Lethal(tmp_path)
    serial = many(33, loss)
    with cluster(backend), joblib.parallel_config(backend, n_jobs=2), caplog.at_level(logging.WARNING, "prudent"):
        assert many(33, loss) == serial
    assert os.path.exists(loss.marker)
    assert any("a worker died" in record.getMessage() for record in caplog.records if record.name == "prudent")


def cluster(name):
    """Two workers on this machine, by the engine's own means."""
    import contextlib

    if name == "dask":
        distributed = pytest.importorskip("dask.distributed")
        local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0")
        return distributed.Client(local)
    if name == "ray":
        ray = pytest.importorskip("ray")
        from ray.util.joblib import register_ray

        register_ray()
        ray.init(address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
        stack = contextlib.ExitStack()
        stack.callback(ray.shutdown)
        return stack
    return contextlib.nullcontext()
