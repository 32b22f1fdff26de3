"""The figures of the report, whatever the numbers; and records that are refused before anything is drawn."""

import json
import math
import re

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import prudent as pr
from prudent.report import DriverRecord, arrays_of, record_from
from prudent.report.distributions import loss_figure, loss_range, losses_left_out, thinned
from prudent.report.maps import arrow_figure, counts_figure, occupancy_figure, policy_figure
from prudent.report.page import faded, named_places, plan_colour
from prudent.report.rendering import report_html

from .report_examples import Page, apart, changed, drawn, large_report, made_up

DIRECTIONS = ("left", "down", "right", "up")


def test_a_plan_has_one_colour_in_every_figure():
    data = made_up(("a", "b"), ("x", "y"))
    assert len({plan_colour(position) for position in range(40)}) == 40
    occupancy = drawn(occupancy_figure(data))
    limits = loss_range(data)
    for position in range(len(data.plans)):
        colour = plan_colour(position)
        assert occupancy.data[position].marker.color == colour
        assert drawn(loss_figure(data, position, limits)).data[1].marker.color == faded(colour, 1.0)
        assert drawn(policy_figure(data, position)).data[0].colorscale[1][1] == faded(colour, 0.75)


def test_plotly_knows_every_setting_of_every_figure():
    plain = made_up(("new", "worn", "broken"), ("run", "repair"))
    grid = made_up("abcd", DIRECTIONS, grid=(2, 2), directions=DIRECTIONS)
    for page in (Page(report_html(data)) for data in (plain, grid)):
        assert len(page.figures) > 5
        for figure in page.figures:
            assert drawn(figure).data
    with pytest.raises(ValueError, match="colour"):
        drawn({"data": [{"type": "bar", "colour": "red"}]})


def test_the_histogram_holds_every_draw_and_says_what_it_leaves_out():
    data = made_up(("a",), ("x",), plans=("this policy",))
    losses = np.append(data.losses[1:], 1e9)
    data = changed(data, losses=losses)
    limits = loss_range(data)
    figure = drawn(loss_figure(data, 0, limits))
    shown = sum(sum(bar.y) for bar in figure.data[:2]) / 100.0
    assert shown == pytest.approx(((losses >= limits[0]) & (losses <= limits[1])).sum() / losses.size)
    tail = (losses > data.value_at_risk) & (losses <= limits[1])
    assert sum(figure.data[1].y) / 100.0 == pytest.approx(tail.sum() / losses.size)
    assert [line.x[0] for line in figure.data[2:]] == [data.value_at_risk, data.tail_mean]
    assert limits[0] <= data.value_at_risk <= data.tail_mean <= limits[1]
    assert "lies further right" in losses_left_out(data, data.draw_probabilities, limits)


def test_one_outlying_rival_does_not_squash_the_others():
    data = made_up(("a", "b"), ("x", "y"))
    alone = loss_range(changed(data, rivals=data.rivals[:1]))
    far = {name: getattr(data.rivals[1], name) + 1e4 for name in ("losses", "mean", "value_at_risk", "tail_mean")}
    squashing = changed(data, rivals=(data.rivals[0], changed(data.rivals[1], **far)))
    assert loss_range(squashing) == alone
    said = losses_left_out(squashing.rivals[1], squashing.draw_probabilities, alone)
    assert said == "100 % of the posterior lies further right"
    # Its marks are not drawn where they are not.
    assert len(drawn(loss_figure(squashing, 2, alone)).data) == 2


def test_a_long_name_takes_two_lines_and_is_not_cut():
    name = "a rather long name of some state"
    settings, room = named_places([name, "short"])
    assert settings["ticktext"][0].replace("<br>", " ") == name and "…" not in settings["ticktext"][0]
    assert room <= 23 * 7 + 18


def test_a_long_curve_is_thinned_to_means_of_blocks():
    values = np.arange(4001.0)
    places, means, block = thinned(values)
    assert block == 3
    assert len(means) == 1334
    assert means[:2].tolist() == [1.0, 4.0]
    assert places[:2].tolist() == [2.0, 5.0]
    assert (means[-1], places[-1]) == (3999.5, 4000.5)


def test_arrows_point_where_actions_aim():
    """One state in the middle of the map and one sure action: the arrow's tip is on the side it aims at."""
    for action, (x, y) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
        data = made_up("abcdef", "ldru", grid=(2, 3), directions=DIRECTIONS)
        probabilities = np.zeros((6, 4))
        probabilities[4, action] = 1.0
        path = drawn(arrow_figure(changed(data, probabilities=probabilities), 0)).layout.shapes[1].path
        points = np.array([float(n) for n in re.findall(r"-?\d+\.\d+", path)]).reshape(-1, 2) - (1.0, 1.0)
        tip = points[3]
        np.testing.assert_allclose(tip, 0.325 * np.array([x, y]), atol=1e-3)
        assert np.abs(points).max() <= 0.5
        np.testing.assert_allclose(points[:3] @ (x, y), points[4:][::-1] @ (x, y), atol=2e-3)


def test_a_grid_without_directions_is_a_heat_map():
    page = Page(report_html(made_up("abcd", ("x", "y"), grid=(2, 2))))
    assert "The chance of each action" in page.text
    page = Page(report_html(made_up("abcd", ("x", "y"), grid=(2, 2), directions=("left", "right"))))
    assert "An arrow points where an action aims" in page.text


def test_hundreds_of_states_are_cut_down_and_the_page_says_so():
    data = large_report()
    page = Page(report_html(data))
    assert "40 states of 500 shown" in page.text
    assert "The other 485 are left out here" in page.text
    assert "Each point is the mean of 27 iterations" in page.text
    busiest = np.argsort(-data.plans[0].occupancy.sum(axis=1))[:40]
    shown = drawn(policy_figure(data, 0)).data[0].z
    np.testing.assert_array_equal(shown, data.plans[0].probabilities[np.sort(busiest)])
    assert all(len(label) <= 60 for label in drawn(counts_figure(data)).layout.yaxis.ticktext)
    assert len(json.dumps(page.figures)) < 1_500_000


def test_thin_pairs_are_ranked_by_time_for_each_row_of_the_log():
    known = {"occupancy": np.array([[6.0], [3.0], [1.0]]), "counts": np.array([[20.0], [4.0], [0.0]])}
    page = Page(report_html(made_up(("a", "b", "c"), ("x",), plans=("this policy",), **known)))
    assert "24 transitions. Of 3 pairs of a state and an action, 1 was never seen." in page.text
    assert "this policy spends 10 % in those never seen and 40 % in those seen fewer than 5 times" in page.text
    assert "c x 0 10 % b x 4 30 %" in page.text
    known["certain"] = np.array([[False], [False], [True]])
    text = Page(report_html(made_up(("a", "b", "c"), ("x",), plans=("this policy",), **known))).text
    assert "Of 2 pairs of a state and an action whose outcome is uncertain, every one was seen." in text
    assert "c x 0" not in text, "where there is one possible outcome, there is nothing to see"


ODD = {
    "one state, one action, one plan": {"states": "a", "actions": "x", "plans": ("this policy",)},
    "nothing known": {"lower_bound": None, "known_theta_risk": None, "known_theta_risk_standard_error": None},
    "no drivers": {"drivers": ()},
    "no counts": {"counts": None},
    "an empty log": {"counts": np.zeros((2, 2))},
    "no history": {"objective": np.zeros(0), "gradient_norm": np.zeros(0)},
    "one iteration": {"objective": np.ones(1), "gradient_norm": np.ones(1)},
    "a history with holes": {
        "objective": np.array([1.0, np.nan, 2.0] * 40),
        "gradient_norm": np.array([0.0, np.inf, 1.0] * 40),
    },
    "a flat history": {"objective": np.ones(90), "gradient_norm": np.zeros(90)},
    "not usable": {"usable": False, "status": "NON_FINITE"},
    "a bound that is not finite": {"lower_bound": -math.inf, "known_theta_risk": math.nan},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_reports_are_still_pages(case):
    changes = {"states": "ab", "actions": "xy", **ODD[case]}
    page = Page(report_html(made_up(changes.pop("states"), changes.pop("actions"), **changes)))
    assert "The promise" in page.text
    assert "nan" not in re.findall(r"\b\w+\b", page.text)
    assert "None" not in page.text
    if case == "nothing known":
        assert ["lower_bound", "null", "not known"] in page.values
    if case == "not usable":
        assert "Do not use this policy as it is" in page.text


@pytest.mark.parametrize("value", [3.0, 0.0, -1e12, 1e200], ids=["constant", "zero", "huge", "too large to draw"])
def test_odd_losses_are_still_drawn_or_said(value):
    numbers = dict.fromkeys(("risk", "mean", "value_at_risk", "tail_mean"), value)
    data = made_up("ab", "xy", plans=("this policy",))
    data = changed(data, losses=np.full(400, value), risk_standard_error=None, **numbers)
    page = Page(report_html(data))
    assert ("nothing to draw" in page.text) == (abs(value) > 1e100)
    if abs(value) < 1e100:
        assert sum(drawn(loss_figure(data, 0, loss_range(data))).data[0].y) == pytest.approx(100.0)
    assert next(shown for name, shown, _ in page.values if name == "risk") == repr(value)


ANY = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(
    losses=arrays(float, 400, elements=FINITE, fill=FINITE),
    marks=st.tuples(ANY, ANY, ANY, ANY, st.none() | ANY, st.none() | ANY),
    probabilities=arrays(float, (4, 4), elements=st.floats(0.0, 1.0)),
    history=arrays(float, (2, 5), elements=ANY),
    rest=st.tuples(*[st.none() | ANY] * 3),
    driver=st.tuples(ANY, ANY, ANY, ANY),
    difference=st.tuples(ANY, ANY, ANY, ANY),
    grid=st.sampled_from([None, (2, 2)]),
)
@settings(max_examples=12, phases=[Phase.generate])
def test_whatever_the_numbers_there_is_a_page_and_no_warning(
    losses, marks, probabilities, history, rest, driver, difference, grid
):
    data = made_up("abcd", "ldru", plans=("this policy", "robust plan"), grid=grid, directions=DIRECTIONS)
    names = ("risk", "risk_standard_error", "mean", "mean_standard_error", "value_at_risk", "tail_mean")
    keys = ("name", "plain", "weighted", "shift", "standard_error")
    changes = dict(zip(names, marks, strict=True)) | {"losses": losses, "probabilities": probabilities}
    changes |= {"rivals": (changed(data.rivals[0], difference=apart(*difference)),)}
    changes |= dict(zip(("known_theta_risk", "known_theta_risk_standard_error", "lower_bound"), rest, strict=True))
    changes |= {"objective": history[0], "gradient_norm": history[1]}
    changes["drivers"] = (DriverRecord(**dict(zip(keys, ("unknown", *driver), strict=True))),)
    page = Page(report_html(changed(data, **changes)))
    shown = repr(marks[0]) if np.isfinite(marks[0]) else "null"
    assert [value for name, value, _ in page.values if name == "risk"] == [shown] * 2
    # JSON knows no NaN and no infinity: a browser would refuse the figure.
    for figure in page.figures:
        json.dumps(figure, allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": ()}, r"'this policy' needs probabilities and occupancy of its pairs \(0, 2\)"),
        ({"probabilities": None}, "needs probabilities and occupancy"),
        ({"probabilities": np.full((2, 2), 1.5)}, r"probabilities of 'this policy' must be in \[0, 1\]"),
        ({"occupancy": -np.ones((2, 2))}, "occupancy of 'this policy' must be 0 or more"),
        ({"counts": np.zeros((3, 2))}, r"counts must be \[S, A\] = \(2, 2\), got \(3, 2\)"),
        ({"grid": (2, 2)}, "2 x 2 cannot hold 2 states"),
        ({"directions": ("left",)}, "each of 2 actions, got 1"),
        ({"draw_probabilities": np.ones(3) / 3}, r"a probability for each of 400 draws, got \(3,\)"),
        ({"losses": np.zeros(3)}, r"losses of 'this policy' must be \[M\] = \(400,\), got \(3,\)"),
        ({"losses": np.full(400, np.nan)}, "losses: should be finite numbers"),
        ({"losses": [1.0]}, "losses: should be an array of numbers"),
        ({"objective": np.zeros(3)}, r"\(3,\) objectives, \(200,\) gradient norms"),
        ({"tail_level": 1.0}, "tail_level: Input should be less than 1"),
        ({"kind": "best"}, "kind: Input should be 'policy', 'deterministic' or 'rival'"),
        ({"seconds": np.nan}, "seconds: Input should be"),
        ({"iterations": True}, "iterations: Input should be a valid integer"),
    ],
)
def test_records_that_do_not_belong_together_are_refused(changes, message):
    data = made_up("ab", "xy")
    with pytest.raises(pr.InputError, match=message):
        changed(data, **changes)


@pytest.mark.parametrize("state", ["a", 1])
def test_a_record_is_its_json_and_its_arrays(state):
    """Also where nothing is finite, and where states have no names."""
    data = made_up("ab", "xy")
    data = changed(data, risk=np.inf, objective=np.full(200, np.nan), states=("a", "b") if state == "a" else 2)
    said = json.loads(json.dumps(data.model_dump(mode="json"), allow_nan=False))
    assert said["risk"] is None
    back = record_from(said, dict(arrays_of(data)))
    assert report_html(back) == report_html(data)
    assert back.model_dump() == data.model_dump()
