"""Every table and figure of the paper as an item: its units of work, and the records made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from prudent import CVaR, InputError
from prudent.envs import frozen_lake

from . import episodic, lake, tables
from .curves import MIMIC, convergence_records, convergence_units, mimic_records, mimic_units
from .episodic import episodic_records, episodic_units
from .lake import SETTINGS
from .tables import method_losses, setting_units, table_records, table_settings, variant_records, variant_units
from .theory import theory_records, theory_units
from .work import Backend, RunFolder, Unit, open_folder, run_units

RECONSTRUCTION = "on our reconstruction of the paper's map"
TAIL_LEVEL = 0.8


class Item(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        name: what the command calls it.
        title: what it shows.
        units: `(replications, seed)` to its units of work; items may share some.
        records: `(replications, folder)` to its rows, once the units have run.
    """

    name: str
    title: str
    units: Callable[[int, int], list[Unit]]
    records: Callable[[int, RunFolder], list[dict[str, Any]]]


def _table(name: str, title: str) -> Item:
    def units(replications: int, seed: int) -> list[Unit]:
        return [unit for setting in table_settings(name) for unit in setting_units(setting, replications, seed)]

    return Item(name, title, units, lambda replications, folder: table_records(name, replications, folder))


def histogram_records(replications: int, folder: RunFolder) -> list[dict[str, Any]]:
    """One row a method and data set of the first setting, with the method's mean and CVaR over data sets."""
    setting = SETTINGS[0]
    rows = []
    for row in method_losses(setting, replications, folder):
        about = {"escape": setting.escape, "n": setting.n, **{key: row[key] for key in ("method", "beta", "radius")}}
        losses = np.asarray(row["losses"])
        about |= {"mean": float(losses.mean()), "cvar": float(CVaR(TAIL_LEVEL)(losses).value), "level": TAIL_LEVEL}
        rows += [{**about, "replication": i, "loss": loss} for i, loss in enumerate(losses.tolist())]
    return rows


def _theory_units(replications: int, seed: int) -> list[Unit]:
    episodes, iterations = episodic.PLANS[-1]
    shared = [unit for unit in episodic_units(replications, seed) if f"{episodes}x{iterations}/brpg" in unit.name]
    return theory_units(replications, seed) + shared


ITEMS = {
    item.name: item
    for item in (
        _table("table1", "Loss under the truth, escape probability 0.02, N = 5 and 50"),
        _table("table2", "Loss under the truth, escape probability 0.7, N = 5"),
        _table("table3", "Loss under the truth, escape probability 0.7, N = 50"),
        Item(
            "episodic",
            "The same hundred iterations in 5, 10 or 20 episodes, escape probability 0.02",
            episodic_units,
            episodic_records,
        ),
        Item(
            "mimic",
            "Mimicking an expert: Kullback-Leibler divergence from its distribution of states",
            mimic_units,
            lambda replications, folder: mimic_records(folder),
        ),
        Item(
            "histograms",
            "Loss over data sets, escape probability 0.02, N = 5",
            lambda replications, seed: setting_units(SETTINGS[0], replications, seed),
            histogram_records,
        ),
        Item(
            "convergence",
            "One data set, iteration by iteration, escape probability 0.02, N = 5",
            lambda replications, seed: convergence_units(seed),
            lambda replications, folder: convergence_records(folder),
        ),
        Item(
            "theory",
            "The paper's statements, measured",
            _theory_units,
            lambda replications, folder: theory_records(folder),
        ),
        Item(
            "variants",
            "What the paper leaves open, tried on the data sets of the tables",
            variant_units,
            lambda replications, folder: variant_records(folder),
        ),
    )
}


def chosen_items(names: Sequence[str]) -> list[Item]:
    """The items named, in their order; `all` is every one."""
    import difflib

    known = [*ITEMS, "all"]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(known)}"
            raise InputError(f"there is no item {name!r} to reproduce{hint}")
    return [item for name, item in ITEMS.items() if name in names or "all" in names]


def begin(out: Any, replications: int, seed: int) -> tuple[RunFolder, list[str]]:
    """The run folder of a reproduction, new or to go on with, and what differs in versions."""
    config = {
        "replications": replications,
        "seed": seed,
        **lake.config(),
        "q_learning_updates": tables.Q_ITERATIONS,
        "block": lake.BLOCK,
        "episodic_steps": episodic.STEPS,
        "mimic_step": float(MIMIC.step),  # pyright: ignore[reportArgumentType]
        "variants": tables.variants_config(),
    }
    about = {"map": list(frozen_lake().tiles), "map_is": "our reconstruction; the paper's figure is not available"}
    return open_folder(out, config, about)


def reproduce(
    item: Item,
    folder: RunFolder,
    replications: int,
    seed: int,
    backend: Backend,
    advance: Callable[[Unit], None] = lambda unit: None,
) -> list[dict[str, Any]]:
    """Run what is left of an item, write its results as JSON and Parquet, and return them."""
    run_units(item.units(replications, seed), folder, backend, advance)
    records = item.records(replications, folder)
    folder.write_results(item.name, records)
    return records


def brpg_seconds(folder: RunFolder) -> float:
    """Seconds that the BR-PG cells of all settings took, compilation included."""
    records = [folder.record(f"{setting.name}/brpg") for setting in SETTINGS]
    return sum(record["seconds"] for record in records if record is not None)
