"""The reproduction's runner: records that survive a kill, refusals, and the rows made of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent_studies import episodic, reproduction, tables, theory
from prudent_studies.curves import curve_rows
from prudent_studies.lake import LEVELS, ROBUST_RADII, SETTINGS
from prudent_studies.pages import item_table, write_index, write_item
from prudent_studies.panels import draw_picture
from prudent_studies.pictures import pictures_of
from prudent_studies.work import Backend, Unit, open_folder, run_units

COMMAND = Path(sys.executable).with_name("prudent")


def square(number):
    return {"square": number**2 + 0.1}


def units(numbers, compiled=False):
    return [Unit(f"squares/{n}", square, {"number": n}, compiled, 1.0) for n in numbers]


@pytest.fixture
def folder(tmp_path):
    return open_folder(tmp_path / "run", {"seed": 0}, {"map": ["SG"]})[0]


def test_a_record_comes_back_bit_for_bit(folder):
    values = {"losses": np.random.default_rng(0).normal(size=20).tolist(), "missing": None}
    assert folder.record("a/b") is None
    folder.keep("a/b", values, 1.5)
    assert folder.record("a/b")["values"] == values
    with pytest.raises(pr.InputError, match=r"other.json is missing; run the same command again"):
        folder.values("other")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"unit": 1}', '{"config": "other", "values": {}}'])
def test_a_record_of_something_else_is_refused(folder, text):
    folder.keep("a", {}, 0.0)
    (folder.path / "units" / "a.json").write_text(text)
    with pytest.raises(pr.InputError, match=r"a.json is not a record of this run; delete it"):
        folder.record("a")


def test_a_changed_config_is_refused_with_the_difference(tmp_path):
    config = {"seed": 0, "levels": [0.5], "replications": 50}
    open_folder(tmp_path / "run", config, {})
    same, warnings = open_folder(tmp_path / "run", dict(reversed(config.items())), {})
    assert warnings == [] and same.path == tmp_path / "run"
    with pytest.raises(
        pr.InputError, match=r"levels was \[0.5\], now \[0.9\]; replications was 50, now 5. Give the old"
    ):
        open_folder(tmp_path / "run", {"seed": 0, "levels": [0.9], "replications": 5}, {})


def test_a_folder_of_another_kind_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(pr.InputError, match=r"no manifest.json, so it is not a run folder"):
        open_folder(tmp_path, {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(pr.InputError, match="is not a manifest of a run"):
        open_folder(tmp_path, {}, {})


def test_another_version_is_told(tmp_path):
    open_folder(tmp_path / "run", {}, {})
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["versions"]["jax"] = "0.0.1"
    path.write_text(json.dumps(manifest))
    _, [warning] = open_folder(tmp_path / "run", {}, {})
    assert "the folder was begun with 0.0.1" in warning


def test_what_a_dead_process_left_half_written_is_cleared(tmp_path):
    open_folder(tmp_path / "run", {}, {})
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = (tmp_path / "run" / f".a.json.{process}.partial" for process in (ended.pid, os.getpid()))
    dead.write_text("half")
    alive.write_text("half")
    open_folder(tmp_path / "run", {}, {})
    assert not dead.exists() and alive.exists()


def test_finished_units_do_not_run_again_and_shared_ones_run_once(folder):
    done = []
    run_units(units([1, 2, 2], compiled=True), folder, Backend(), lambda unit: done.append(unit.name))
    assert done == ["squares/1", "squares/2"]
    folder.keep("squares/1", {"square": "kept"}, 0.0)
    run_units(units([1, 2, 3], compiled=True), folder, Backend())
    assert [folder.values(f"squares/{n}")["square"] for n in (1, 2, 3)] == ["kept", 4.1, 9.1]
    with pytest.raises(pr.InputError, match="backend must be one of loky, dask, ray, got 'slurm'"):
        run_units(units([4]), folder, Backend("slurm"))


def test_workers_give_what_this_process_gives(tmp_path):
    folders = [open_folder(tmp_path / name, {}, {})[0] for name in ("here", "there")]
    run_units(units(range(4), compiled=True), folders[0], Backend())
    run_units(units(range(4)), folders[1], Backend("loky", 2))
    for n in range(4):
        assert folders[0].values(f"squares/{n}") == folders[1].values(f"squares/{n}")


@pytest.mark.long
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_gives_the_numbers_of_loky(backend, tmp_path):
    pytest.importorskip(backend)
    parts = [unit for unit in tables.setting_units(SETTINGS[2], 4, 0) if not unit.compiled]
    folders = {name: open_folder(tmp_path / name, {}, {})[0] for name in ("loky", backend)}
    for name, folder in folders.items():
        run_units(parts, folder, Backend(name, 2))
    for unit in parts:
        assert folders["loky"].values(unit.name) == folders[backend].values(unit.name), unit.name


def invented_records(folder, replications=6):
    """Units of the first setting as if they had run."""
    random, setting = np.random.default_rng(0), SETTINGS[0]
    losses = random.gamma(2.0, size=(len(LEVELS), replications)) + 32.0
    folder.keep(f"{setting.name}/brpg", {"losses": losses.tolist()}, 2.0)
    folder.keep(f"{setting.name}/plug-in-steps", {"losses": losses[0].tolist()}, 0.0)

    def actions(count):
        return random.integers(4, size=(count, 25)).tolist()

    folder.keep(f"{setting.name}/plug-in", {"actions": actions(replications)}, 0.0)
    for radius in ROBUST_RADII:
        folder.keep(f"{setting.name}/robust-{radius:g}", {"actions": actions(replications)}, 0.0)
        folder.keep(f"{setting.name}/q-learning-{radius:g}-0", {"actions": actions(replications)}, 0.0)
    return losses


def test_the_rows_of_a_table_stand_beside_the_published_figures(folder, monkeypatch):
    losses = invented_records(folder)
    monkeypatch.setattr(tables, "SETTINGS", SETTINGS[:1])
    rows = tables.table_records("table1", 6, folder)
    by_name = {(row["method"], row["beta"], row["radius"]): row for row in rows}
    assert len(rows) == len(by_name) == 12
    ours = by_name["BR-PG", 0.9, None]
    assert ours["mean"] == losses[2].mean() and ours["published"] == 32.854
    assert ours["se"] == pytest.approx(losses[2].std(ddof=1) / np.sqrt(6))
    above = np.maximum(losses[2] - losses[2].mean(), 0)
    assert ours["psv"] == pytest.approx((above**2).mean())
    assert ours["z"] == pytest.approx((losses[2].mean() - 32.854) / np.hypot(ours["se"], 0.0641))
    assert by_name["DRQL", None, 1.0]["published"] == by_name["KL-robust, exact", None, 1.0]["published"] == 35.216
    assert by_name["plug-in, exact", None, None]["published"] == 37.057
    assert by_name["optimum", None, None]["z"] is None
    assert by_name["optimum", None, None]["mean"] == pytest.approx(32.440, abs=1e-3)
    robust = folder.values(f"{SETTINGS[0].name}/robust-1")["actions"]
    exact = pr.loss_at(
        [np.eye(4)[np.array(row)] for row in robust],
        pr.envs.frozen_lake(),
        (0.3, 0.02),
        occupancy=pr.Truncated(horizon=130),
    )
    assert by_name["KL-robust, exact", None, 1.0]["mean"] == pytest.approx(exact.mean())
    folder.write_results("table1", rows)
    read = pyarrow.parquet.read_table(folder.path / "table1.parquet").to_pylist()
    assert read == rows == json.loads((folder.path / "table1.json").read_text())
    # The pages and pictures of such rows.
    [*pictures, page] = write_item(folder.path, "table1", "A <b>title</b>", rows)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    text = page.read_text()
    assert "A &lt;b&gt;title" in text and "reconstruction" in text and "32.854" in text
    columns, cells = item_table("table1", rows)
    assert len(columns) == len(cells[0]["cells"]) == 10
    index = write_index(folder.path, [("table1", "the first table")]).read_text()
    assert "table1.html" in index and "S" in index and "reconstruction" in index


def test_curves_have_a_band_of_95_percent():
    curves = np.random.default_rng(0).normal(size=(400, 3))
    rows = curve_rows({"method": "m"}, curves)
    assert [row["iteration"] for row in rows] == [0, 1, 2]
    assert rows[1]["high"] - rows[1]["low"] == pytest.approx(2 * 1.96 * curves[:, 1].std(ddof=1) / 20, rel=1e-4)
    assert curve_rows({}, curves[:1])[0]["se"] is None


def test_a_slope_and_its_interval_are_those_of_a_known_law():
    x = np.array([5.0, 20.0, 80.0, 320.0])
    noise = np.random.default_rng(0).lognormal(sigma=0.3, size=(300, 4))
    fit = theory.fitted_slope(x, 7.0 * x**-0.5 * noise)
    assert fit.low < -0.5 < fit.high and fit.high - fit.low < 0.1
    assert theory.fitted_slope(x, np.exp(-0.03 * x)[None], logarithmic=False).value == pytest.approx(-0.03)


def curve(name, value, **about):
    return [
        {"method": name, "beta": None, "radius": None, "iteration": t, "mean": value - t, "se": 0.1,
         "low": value - t - 0.2, "high": value - t + 0.2, **about}
        for t in range(40)
    ]  # fmt: skip


INVENTED = {
    "convergence": curve("BR-PG", 50.0, escape=0.02, n=5),
    "mimic": curve("BR-PG", 50.0, escape=0.2, n=5) + curve("plug-in, 100 steps", 60.0, escape=0.2, n=5),
    "episodic": curve(
        "BR-PG", 90.0, episodes=5, iterations=20, escape=0.02, above_optimum=1.0, trials=3.0, loss_gap=1.0,
        gradient_gap=1.0,
    ),
    "histograms": [
        {"method": "BR-PG", "beta": 0.5, "radius": None, "escape": 0.02, "n": 5, "mean": 2.0, "cvar": 3.0, "level": 0.8,
         "replication": i, "loss": float(i)}
        for i in range(5)
    ],
    "theory": [
        {"statement": "gradient error", "quantity": "squared error", "setting": "r, draws", "x": x, "mean": 1 / x,
         "se": 0.01 / x, "slope": -1.0, "slope_low": -1.1, "slope_high": -0.9, "slope_per": "power", "claimed": "-1"}
        for x in (1.0, 10.0, 100.0)
    ],
}  # fmt: skip


@pytest.mark.parametrize("item", INVENTED)
def test_every_kind_of_item_has_a_picture_and_a_table(item, tmp_path):
    records = INVENTED[item]
    columns, rows = item_table(item, records)
    assert rows and all(len(row["cells"]) == len(columns) for row in rows)
    for picture in pictures_of(item, records):
        assert all(panel.title and panel.x_label for panel in picture.panels)
        draw_picture(picture, tmp_path / "one.png")
        assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    *_, page = write_item(tmp_path, item, "title", records)
    assert page.read_text().count('class="figure"') == sum(len(p.panels) for p in pictures_of(item, records))


def test_every_item_has_units_whose_functions_workers_can_import():
    for item in reproduction.ITEMS.values():
        for unit in item.units(12, 0):
            assert getattr(sys.modules[unit.function.__module__], unit.function.__name__) is unit.function
    names = [unit.name for item in reproduction.ITEMS.values() for unit in item.units(12, 0)]
    assert len(set(names)) < len(names), "the histograms share the units of the first table"


def test_bad_requests_are_refused_before_any_work(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "tabel1", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2 and "did you mean table1?" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("in the way")
    result = CliRunner().invoke(app, ["reproduce", "table1", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2 and "Traceback" not in result.stderr


@pytest.mark.long
def test_twenty_kills_at_random_moments_change_no_byte(tmp_path):
    """Killed by signal 9 and run again, twenty times; then left alone."""
    arguments = [COMMAND, "reproduce", "table2", "--replications", "4", "--jobs", "2", "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    clock = time.perf_counter()
    subprocess.run([*arguments, whole], check=True, capture_output=True)
    length, random, kills = time.perf_counter() - clock, np.random.default_rng(0), 0
    while kills < 20:
        process = subprocess.Popen([*arguments, killed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=float(random.uniform(0.1, 1.0)) * length)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        kills += 1
    subprocess.run([*arguments, killed], check=True, capture_output=True)
    for name in ("table2.parquet", "table2.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    assert not list(killed.rglob("*.partial"))


@pytest.mark.long
def test_the_statements_hold_in_a_small_run():
    errors = theory.gradient_errors(0)
    fit = theory.fitted_slope(theory.SAMPLES, np.array(errors["squared_errors"]))
    assert -1.15 < fit.value < -0.9
    gaps = theory.consistency(0, 10)
    for name in ("loss_gap", "gradient_gap"):
        assert theory.fitted_slope(theory.DATA_SIZES, np.array(gaps[name])).high < -0.1


@pytest.mark.long
def test_the_episodic_study_ends_better_than_it_began(tmp_path, monkeypatch):
    monkeypatch.setattr(episodic, "PLANS", ((2, 20), (4, 10)))
    monkeypatch.setattr(episodic, "LEVELS", (0.5,))
    folder, _ = open_folder(tmp_path / "run", {}, {})
    run_units(episodic.episodic_units(4, 0), folder, Backend())
    rows = episodic.episodic_records(4, folder)
    assert len(rows) == 2 * 6 * 41, "two plans, six methods, forty iterations and the start"
    starts = [row for row in rows if row["iteration"] == 0]
    assert np.ptp([row["mean"] for row in starts]) < 1e-9, "all start at the uniform policy"
    for episodes in (2, 4):
        ours = [row for row in rows if row["episodes"] == episodes and row["method"] == "BR-PG"]
        assert ours[-1]["mean"] < ours[0]["mean"] - 10 and 0 < ours[-1]["above_optimum"] < ours[0]["above_optimum"]
        assert ours[-1]["gradient_gap"] < 0.5 * ours[0]["gradient_gap"]
        assert 0 < ours[-1]["trials"] <= 10 * episodes
        assert ours[1]["trials"] is None, "only at the end of an episode"
