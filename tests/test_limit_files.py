"""Limits in problem files: solved into a folder, asked more of there, shown on the page; and what is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import prudent as pr
from prudent.cli import app
from prudent.report.distributions import frontier_curve, limit_figure
from prudent.report.limits import CautionRecord, FrontierRecord, LevelRecord, frontier_rows

from .report_examples import drawn

# Running wears; what is broken stays so until it is replaced, which is dear.
PROBLEM = """
states = ["fine", "broken"]
actions = ["run", "replace"]
discount = 0.9
start = "fine"
[data]
transitions = "log.csv"
costs = { fine = { run = 0, replace = 3 }, broken = { run = 1, replace = 4 } }
[posterior]
kind = "dirichlet"
[solver]
samples = 32
largest = 32
starts = 1
iterations = 60
evaluation = 400
"""
LIMIT = """
[[limit]]
name = "breakdowns"
unit = "periods broken a year"
visits = ["broken"]
per = 52
at_most = 20
"""
LOG = """state,action,next_state,count
fine,run,fine,40
fine,run,broken,14
broken,run,broken,20
broken,replace,fine,30
"""


def written(folder, text):
    (folder / "log.csv").write_text(LOG)
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def asked(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limited")
    done = asked("solve", written(folder, PROBLEM + LIMIT), "--out", folder / "run", "--quiet")
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_a_limit_of_a_file_is_kept_and_said(run):
    record = json.loads((run / "solution.json").read_text())
    assert record["status"] == "CONVERGED_WITHIN_LIMITS"
    [limit] = record["limits"]
    assert limit["name"] == "breakdowns" and limit["at_most"] == 20.0 and limit["verdict"] == "kept"
    # The same number from Python, on other draws.
    arguments = pr.read_problem(run.parent / "problem.toml").arguments()
    policy = pr.TabularPolicy(pr.read_record(run).probabilities)
    again = pr.evaluate(policy, arguments["model"], arguments["belief"], loss=pr.Visits([1], per=52), seed=3)
    assert abs(again.risk - limit["value"]) < 5 * again.risk_standard_error
    assert limit["upper"] <= 20.0
    # One action in every state is not enough: replacing what is broken at once is dear, leaving it breaks the limit.
    assert 0.0 < np.asarray(policy.probabilities)[1, 1] <= 1.0
    page = (run / "report.html").read_text()
    assert "breakdowns" in page and "periods broken a year" in page


def test_the_frontier_of_a_run_is_in_its_record_and_on_its_page(run):
    before = (run / "policy.csv").read_bytes()
    done = asked("frontier", run, "--points", "2", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["limit"], said["unit"], len(said["levels"])) == ("breakdowns", "periods broken a year", 2)
    tight, loose = said["levels"]
    assert said["least"] < tight["at_most"] < loose["at_most"] and tight["risk"] > loose["risk"]
    assert tight["kept"] and loose["kept"]
    assert pr.read_record(run).frontier.model_dump(mode="json") == said
    page = (run / "report.html").read_text()
    assert 'id="frontier"' in page and f"{loose['risk']:.4g}"[:4] in page
    assert (run / "policy.csv").read_bytes() == before
    refused = asked("frontier", run, "--limit", "noise")
    assert refused.exit_code == 2 and "has no limit 'noise'; its limits are breakdowns" in refused.output


def test_the_worth_of_data_of_a_run_is_in_its_record_and_on_its_page(run):
    done = asked("worth", run, "--pairs", "1", "--replications", "2", "--observations", "5", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["observations"] == 5 and len(said["rows"]) == 1
    assert said["rows"][0]["name"] in ("fine, run", "broken, run", "broken, replace")
    assert pr.read_record(run).worth.model_dump(mode="json") == said
    assert 'id="worth"' in (run / "report.html").read_text()


def level(at_most, kept, interval, prices=(0.5, 0.6)):
    return LevelRecord(
        at_most=at_most,
        status="CONVERGED_WITHIN_LIMITS" if kept else "INFEASIBLE",
        kept=kept,
        risk=-at_most,
        interval=interval,
        multiplier=0.55,
        prices=prices,
        chance=0.9,
    )


def test_the_figure_of_a_frontier_has_every_level_and_its_interval():
    """Ends that are 0 or not known, crosses for what is not kept, the shade where nothing is; labels that fit."""
    levels = (level(1.0, False, (None, None)), level(2.0, True, (-3.0, 0.0)), level(3.0, True, (None, -2.0)))
    record = FrontierRecord(limit="l" * 80, unit="u" * 80, levels=levels, least=1.5)
    figure = drawn(frontier_curve(record, "CVaR 0.9"))
    curve, crosses = figure.data[0], figure.data[-1]
    assert list(curve.x) == [2.0, 3.0] and list(crosses.x) == [1.0]
    assert list(curve.error_y.array) == [2.0, 1.0] and list(curve.error_y.arrayminus) == [1.0, 0.0]
    assert figure.layout.shapes[0].x1 == 1.5
    assert len(figure.layout.xaxis.title.text) < 50
    names = ("least CVaR 0", "plug-in", "theta known")
    caution = [
        CautionRecord(
            name=name, mean=1.0, mean_standard_error=0.1, tail=None if k == 1 else 2.0, tail_standard_error=0.1
        )
        for k, name in enumerate(names)
    ]
    cautious = FrontierRecord(tail_name="CVaR 0.9", caution=tuple(caution))
    assert list(drawn(frontier_curve(cautious, "")).data[0].text) == ["1", "3"]
    assert [row[0] for row in frontier_rows(cautious)[1]] == ["1 least CVaR 0", "2 plug-in", "3 theta known"]


def test_no_bar_of_a_limit_is_on_both_sides_of_it(run):
    limit = pr.read_record(run).limits[0]
    within, beyond = drawn(limit_figure(limit, np.full(len(limit.losses), 1.0 / len(limit.losses)))).data[:2]
    half = 0.5 * within.width / 0.94
    assert all(x + half <= 20.0 + 1e-9 for x, y in zip(within.x, within.y, strict=True) if y > 0)
    assert all(x - half >= 20.0 - 1e-9 for x, y in zip(beyond.x, beyond.y, strict=True) if y > 0)
    assert sum(within.y) + sum(beyond.y) == pytest.approx(100.0)


REFUSED = {
    "nothing that could break it": ("at_most = 20", "at_most = 52", "never above 52 periods broken a year, so at_most"),
    "nothing that could keep it": ("at_most = 20", "at_most = -1", "never below 0 periods broken a year, so at_most"),
    "no number": ("at_most = 20", "at_most = inf", "at_most: input should be a finite number"),
    "an unknown state": ('["broken"]', '["brokn"]', "limit 1, visits: state 'brokn' is not declared; did you mean"),
    "an unknown action": (
        "per = 52",
        'per = 52\nactions = ["mend"]',
        "actions: action 'mend' is not declared",
    ),
    "a chance of 1": ("per = 52", "per = 52\nchance = 1", "a chance of 1 cannot be shown from draws"),
    "a chance of 0": ("per = 52", "per = 52\nchance = 0", "chance: input should be greater than 0"),
    "both": ("per = 52", 'per = 52\nchance = 0.9\nrisk = { kind = "worst-case" }', "in a risk or with a chance"),
    "confidence": ("per = 52", "per = 52\nconfidence = 1", "confidence: input should be less than 1"),
    "a multiplier": ("per = 52", "per = 52\nmultiplier = -1", "unknown key 'multiplier'"),
    "a unit": ('"periods broken a year"', "3", "unit: input should be a valid string"),
    "a unit of two lines": ('"periods broken a year"', '"a\\nb"', "unit must be a line of at most 80"),
    "periods": ("per = 52", "per = 0", "per: input should be greater than 0"),
    "costs, too": ("per = 52", "costs = { broken = { run = 1 } }", "a limit is on visits or on costs; give one"),
    "no cost": ('visits = ["broken"]', "costs = { broken = { run = 0 } }", "all its costs are 0, so that it limits"),
    "nothing": ('visits = ["broken"]', "", "a limit is on visits or on costs; give one of the two"),
    "twice": ("at_most = 20", "at_most = 20" + LIMIT, "two limits are called 'breakdowns'"),
    "the same": (
        "at_most = 20",
        "at_most = 20" + LIMIT.replace("breakdowns", "other").replace("20", "19"),
        "breakdowns and other limit the same loss in the same way, to 20 and 19",
    ),
    "the paper's solver": (
        "samples = 32\nlargest = 32\nstarts = 1",
        'kind = "brpg"',
        "needs the solver sample-average",
    ),
    "a proof": ("[[limit]]", "[certificate]\nprove = true\n[[limit]]", "certificate.prove knows no limits"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_refused_before_anything_is_solved(what, tmp_path):
    old, new, words = REFUSED[what]
    whole = PROBLEM + LIMIT
    assert whole.count(old) == 1
    done = asked("check", written(tmp_path, whole.replace(old, new)))
    assert done.exit_code == 2 and words in " ".join(done.output.split()), done.output
