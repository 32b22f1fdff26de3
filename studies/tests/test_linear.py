"""The linear study at a small size: the same numbers again, ours not worse, and a table of them."""

import numpy as np
from typer.testing import CliRunner

from prudent.cli import app
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
