"""The linear study at a small size: the same numbers again, ours not worse, a table of them, and the rates."""

import numpy as np
import pytest
from typer.testing import CliRunner

from prudent.cli import app
from prudent_studies import linear, theory
from prudent_studies.linear import compare, run_one, summarised


def test_one_log_and_its_table():
    first, again = run_one(60, 1), run_one(60, 1)
    assert first.risks == again.risks and first.bound == again.bound
    assert first.bound <= first.risks[2] <= first.risks[0]
    row = next(iter(compare((60,), 1, seed=1)))
    np.testing.assert_allclose(row.gap, 1.0 - first.bound / first.risks[2])
    lost = first._replace(risks=(np.inf, np.inf, np.inf), bound=np.nan)
    both = summarised(60, [first, lost])
    assert both.finite == (1, 1, 1) and both.worse == 0
    np.testing.assert_allclose(both.risks, [first.risks[0], first.risks[2]])
    printed = CliRunner().invoke(app, ["linear", "--replications", "1", "--size", "60", "--seed", "1"])
    assert printed.exit_code == 0, printed.output
    assert f"{first.risks[2]:.2f}" in printed.output


def test_shares_of_iterates_make_the_mean_over_the_first():
    places = theory.interpolated()
    np.testing.assert_allclose(places.shares.sum(axis=1), 1.0)
    falling = 1.0 / (1.0 + np.arange(theory.STATIONARY_ITERATIONS[-1]))
    means = [falling[:most].mean() for most in theory.STATIONARY_ITERATIONS]
    np.testing.assert_allclose(places.shares @ falling[places.needed], means, rtol=0.01)
    even = theory.evenly_spaced()
    np.testing.assert_allclose(even.shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(even.shares @ even.needed, (np.array(theory.STATIONARY_ITERATIONS) - 1) / 2, rtol=0.05)


def test_rates_of_another_log_are_refused():
    refused = CliRunner().invoke(app, ["linear", "--rates", "--size", "60"])
    assert refused.exit_code == 2 and "leave --size out" in refused.output


@pytest.mark.long
def test_rates_fall(monkeypatch):
    for name, value in (
        ("SAMPLES", (10, 160)), ("ESTIMATES", 30), ("STATIONARY_SAMPLES", (4, 8)), ("STATIONARY_ITERATIONS", (4, 16)),
    ):  # fmt: skip
        monkeypatch.setattr(theory, name, value)
    monkeypatch.setattr(linear, "RATES_REFERENCE", 2**12)
    records = linear.rates(0, 2)
    monkeypatch.setattr(linear, "rates", lambda seed, replications: records)
    printed = CliRunner().invoke(app, ["linear", "--rates"])
    assert printed.exit_code == 0, printed.output
    slopes = {row["statement"]: row["slope"] for row in records}
    assert -1.3 < slopes["gradient error"] < -0.7
    assert slopes["stationarity, r = 4"] < -0.3
    assert f"{slopes['gradient error']:.3f}" in printed.output
