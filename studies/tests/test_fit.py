"""The study of the tests of a log at a small size, and their level on many logs."""

import numpy as np
import pytest
from typer.testing import CliRunner

from prudent.cli import app
from prudent_studies.fit import KINDS, Kind, shares, simulated


def test_logs_are_as_they_are_said_to_be(monkeypatch):
    rows = simulated(Kind(steps=40, units=4), 1)
    assert len(rows) == 40 and (rows.previous() >= 0).sum() == 36
    assert np.array_equal(rows.next_state, simulated(Kind(steps=40, units=4), 1).next_state)
    assert shares(Kind(cost=3.0, steps=100, units=2), 4, 0)[3] >= 0.75
    monkeypatch.setattr("prudent_studies.fit.KINDS", {"right": KINDS["right: 60 steps of one unit, 3 states"]})
    printed = CliRunner().invoke(app, ["fit", "--logs", "4"])
    assert printed.exit_code == 0, printed.output
    assert "right" in printed.output and "–" in printed.output
    refused = CliRunner().invoke(app, ["fit", "--only", "left"])
    assert refused.exit_code == 2 and "no kind of log begins with" in refused.output


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in KINDS if name.startswith("right")])
def test_the_level_is_held(name):
    order, time, unit, cost, _ = shares(KINDS[name], 500, 0)
    assert 0.03 <= order <= 0.07 and 0.03 <= time <= 0.07
    # The others within what chance leaves open of 5 % in 500 logs, at three standard errors.
    assert all(0.02 <= share <= 0.08 for share in (unit, cost) if share == share)
