"""The report without a browser: what it says is what it was given, names are text, and odd input still makes a page."""

import base64
import builtins
import dataclasses
import hashlib
import html.parser
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import prudent as pr
from prudent.report import Difference, Driver, write_report
from prudent.report.canvas import faded, plan_colour
from prudent.report.distributions import loss_figure, loss_range, losses_left_out, thinned
from prudent.report.maps import arrow_figure, counts_figure, occupancy_figure, policy_figure
from prudent.report.page import figure_html, figures_script, plotly_graphs, plotly_script
from prudent.report.words import clean, compared, figure_text, number
from prudent.report.writing import report_html

from .report_examples import NAMES, NASTY, large_report, made_up, nasty_report


class Page(html.parser.HTMLParser):
    """Elements, texts and figures of a page, as a browser would split it."""

    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.values, self.figures, self.texts, self.scripts = [], [], [], [], [], 0
        # Parsing five megabytes of library a hundred times takes long, and tells nothing.
        self.feed(text.replace(str(plotly_script()), "<script></script>"))
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in self.VOID:
            self.stack.append((tag, attributes))
        if "data-name" in attributes:
            self.values.append([attributes["data-name"], attributes["data-value"], ""])
        if tag == "script" and attributes.get("type") != "application/json":
            self.scripts += 1

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag

    def handle_data(self, text):
        tag, attributes = self.stack[-1] if self.stack else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.figures.append(json.loads(text))
        elif tag not in ("script", "style"):
            self.texts.append(text)
            if "data-name" in attributes:
                self.values[-1][2] += text

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def plain():
    data = made_up(("new", "worn", "broken"), ("run", "repair"))
    return data, Page(report_html(data))


def test_the_numbers_in_the_page_are_those_given_to_the_bit(plain):
    data, page = plain
    ours = data.plans[0]
    given = {
        "status": data.status,
        "risk": ours.risk,
        "risk_standard_error": ours.risk_standard_error,
        "mean": ours.mean,
        "lower_bound": data.lower_bound,
        "known_theta_risk": data.known_theta_risk,
        "iterations": data.iterations,
        "seconds": data.seconds,
        "seed": data.seed,
        **{f"plans.{i}.risk": data.plans[i].risk for i in (1, 2)},
        **{f"plans.{i}.mean": data.plans[i].mean for i in (1, 2)},
    }
    assert {name for name, _, _ in page.values} == set(given)
    for name, value, shown in page.values:
        assert value == given[name] if name == "status" else float(value) == given[name]
        if isinstance(given[name], float):
            # What is shown is the same number, rounded.
            assert float(shown.split()[0]) == pytest.approx(given[name], rel=2e-2)


def test_the_page_says_what_was_asked_and_how_the_plans_compare(plain):
    data, page = plain
    assert "problem.toml" in page.text
    for plan in data.plans[1:]:
        assert f"{plan.name} {plan.risk:.2f} ± 0.10 {compared(plan.difference)}" in page.text, "in the table"
    best = min(data.plans[1:], key=lambda plan: plan.risk)
    said = f"the best is the {best.name} with {best.risk:.2f} ± 0.10, {compared(best.difference)}."
    assert f"Of 2 other ways to plan, judged alike, {said}" in page.text
    assert (
        f"no policy is better by more than {number(data.gap_limit, 3)} , and learning θ is worth no more" in page.text
    )
    for heading in ("The answer", "What was asked", "Losses over the posterior", "The policy", "Convergence"):
        assert heading in page.text


VERDICTS = {
    "clearly more": (Difference(0.4, 0.1, 0.2, 0.6), "0.400 more (95 % interval 0.200 to 0.600)", None),
    "clearly less": (
        Difference(-0.4, 0.1, -0.6, -0.2),
        "0.400 less (95 % interval −0.600 to −0.200)",
        "It has the lower risk: use it",
    ),
    "within error": (
        Difference(0.1, 0.1, -0.1, 0.3),
        "not clearly different (0.100 more on these draws",
        "cannot be told apart from",
    ),
    "no error known": (Difference(0.1, math.nan, math.nan, math.nan), "0.100 more on these draws, with an error", None),
    "exact": (Difference(0.4, 0.0, 0.4, 0.4), "0.400 more (exact)", None),
    "exactly the same": (Difference(0.0, 0.0, 0.0, 0.0), "the same", "cannot be told apart from"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_is_said_of_the_best_rival_follows_from_the_interval(case):
    difference, said, verdict = VERDICTS[case]
    data = made_up(("a", "b"), ("x", "y"), plans=("this policy", "robust plan"))
    plans = (data.plans[0], dataclasses.replace(data.plans[1], difference=difference))
    text = Page(report_html(dataclasses.replace(data, plans=plans, exact="exact" in case))).text
    assert said in text
    for _, _, words in VERDICTS.values():
        if words is not None:
            assert (words in text) == (words == verdict)


@pytest.mark.parametrize("case", ["more", "less", "same"])
def test_what_the_deterministic_policy_gives_up_is_said(case):
    value = {"more": 0.5, "less": -0.5, "same": 0.01}[case]
    data = made_up(("a", "b"), ("x", "y"), plans=("this policy", "deterministic policy"))
    certain = dataclasses.replace(
        data.plans[1], kind="deterministic", difference=Difference(value, 0.1, value - 0.2, value + 0.2)
    )
    text = Page(report_html(dataclasses.replace(data, plans=(data.plans[0], certain)))).text
    assert "With one action in each state and nothing left to chance, the best policy found has" in text
    assert compared(certain.difference) in text
    assert ("it has the lower risk, so use it" in text) == (case == "less")
    assert "way to plan" not in text


@pytest.mark.parametrize("level", [0.0, -3.0, 1e-13, 1e12])
def test_nothing_is_a_share_of_a_risk_that_may_be_nothing_or_negative(level):
    """Costs moved by any constant: the page compares differences, and no percentage of a risk is printed."""
    data = made_up("ab", "xy")
    plans = tuple(dataclasses.replace(plan, risk=plan.risk - data.plans[0].risk + level) for plan in data.plans)
    bound = {"known_theta_risk": plans[0].risk - 1.0, "lower_bound": plans[0].risk - 1.0, "gap": 1.0, "gap_limit": 1.2}
    text = Page(report_html(dataclasses.replace(data, plans=plans, **bound))).text
    answer = text[text.index("The answer") : text.index("What was asked")]
    assert re.findall(r"[\d.]+ %", answer.replace("95 % interval", "").replace("95 % confidence", "")) == []
    assert compared(plans[1].difference) in answer
    assert "no policy is better by more than 1.20" in answer


def test_a_posterior_used_whole_is_said_to_be_exact():
    data = made_up(("a", "b"), ("x", "y"), draws=4)
    share = np.array([0.7, 0.1, 0.1, 0.1])
    plans = tuple(
        dataclasses.replace(
            plan,
            losses=np.array([1.0, 2.0, 3.0, 4.0]),
            risk_standard_error=0.0,
            mean_standard_error=0.0,
            value_at_risk=3.0,
            difference=None if plan.difference is None else Difference(0.5, 0.0, 0.5, 0.5),
        )
        for plan in data.plans
    )
    whole = dataclasses.replace(data, plans=plans, draw_probabilities=share, exact=True, gap_limit=None)
    page = Page(report_html(whole))
    assert "exactly: the posterior is 4 points, and all are used with their weights" in page.text
    assert "No policy is better by more" in page.text
    for words in ("standard error", "confidence", "fresh posterior draw", "by chance", "explains"):
        assert words not in page.text
    bars = loss_figure(plans[0], 0, loss_range(plans, share, 1.0), "cost", True, share)
    assert sum(sum(bar.y) for bar in bars.data[:2]) == pytest.approx(100.0)
    assert sum(bars.data[1].y) == pytest.approx(10.0), "beyond VaR lies the last point alone"


def test_a_bound_on_few_draws_is_compared_on_those():
    data = made_up(("a", "b"), ("x", "y"))
    few = {"known_theta_risk": None, "lower_bound": 100.0, "gap": 0.25, "gap_limit": None, "bound_draws": 16}
    text = Page(report_html(dataclasses.replace(data, **few))).text
    assert "On the first 16 of the draws, the risk of every policy is at least 100.0" in text
    assert "0.250 less than that of this policy there." in text
    assert "Of other draws this says nothing." in text
    assert "95 % confidence" not in text
    text = Page(report_html(dataclasses.replace(data, **few | {"gap_limit": 2.5}))).text
    assert "With 95 % confidence, no policy is better by more than 2.50" in text


def test_where_there_is_no_bound_the_page_says_why():
    nothing = {"lower_bound": None, "gap": None, "gap_limit": None, "known_theta_risk": None}
    text = Page(report_html(made_up("ab", "xy", **nothing, no_bound_because="the risk is not coherent"))).text
    assert "A lower bound on the risk of every policy is not known : the risk is not coherent." in text


def test_drivers_come_with_their_error_and_none_is_said_to_be_none():
    data = made_up("ab", "xy")
    text = Page(report_html(data)).text
    assert "40 unknowns were looked at, those that this policy meets" in text
    assert "standard error by chance alone" in text
    assert "worth most" not in text
    text = Page(report_html(dataclasses.replace(data, drivers=()))).text
    assert "No unknown stands out: of 40 that this policy meets, none moves further than chance explains" in text
    text = Page(report_html(dataclasses.replace(data, drivers=(), weights=np.ones(400)))).text
    assert "No unknown does: the risk weighs all draws alike." in text
    text = Page(report_html(dataclasses.replace(data, drivers=(), drivers_considered=0))).text
    assert "No unknown was looked at." in text


def test_the_course_of_the_run_is_told_as_its_solver_runs():
    assert "draws of its own" in Page(report_html(made_up("ab", "xy", solver="brpg"))).text
    text = Page(report_html(made_up("ab", "xy", solver="sample-average"))).text
    assert "draws of its own" not in text
    assert "it jumps when another sample is taken" in text
    short = {"history_objective": np.ones(5), "history_gradient_norm": np.ones(5)}
    assert "running mean" in text
    assert "running mean" not in Page(report_html(made_up("ab", "xy", **short))).text


def test_the_library_is_inlined_once_and_nothing_is_fetched(plain):
    data, page = plain
    text = report_html(data)
    assert page.scripts == 2
    assert text.count(str(plotly_script())) == text.count(str(figures_script())) == 1
    for _, attributes in page.tags:
        assert attributes.get("src") is None
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_the_policy_names_the_hashes_of_the_scripts_as_written(plain):
    text = report_html(plain[0])
    for body in re.findall(r"<script>(.*?)</script>", text, re.DOTALL):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" in text[:2000]


def strings(value):
    """Every string in a figure's JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def test_names_are_text_in_the_page_and_inside_the_figures():
    data = nasty_report()
    text = report_html(data)
    page = Page(text)
    assert page.scripts == 2
    assert {tag for tag, _ in page.tags}.isdisjoint({"b", "i", "u", "img", "sub"})
    for name in (*NAMES, *data.actions, data.plans[1].name, data.title, data.asked[0][0], data.asked[0][1]):
        assert name in page.text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    for figure in page.figures:
        for label in strings(figure):
            # The only tag plotly gets to see is the line break between parts of a hover text.
            assert "<" not in label.replace("<br>", "")
    assert any(figure_text(NASTY) in label for figure in page.figures for label in strings(figure))


def test_the_json_of_a_figure_cannot_end_its_script():
    graphs = plotly_graphs()
    figure = graphs.Figure(graphs.Bar(x=["</script><!--<script>", "\u2028&"], y=[1, 2]))
    text = str(figure_html(figure, '"><script>'))
    assert re.findall(r"</?script", text) == ["<script", "</script"]
    assert "<!--" not in text
    assert "\u2028" not in text
    assert Page(text).figures[0]["data"][0]["x"] == ["</script><!--<script>", "\u2028&"]


def test_characters_no_page_can_show_are_replaced():
    assert clean("a\u202eb\x00\ud800c\n d") == "a\ufffdb\ufffd\ufffdc d"
    assert clean("Größe 状態 👩‍🔧") == "Größe 状態 👩‍🔧"
    report_html(nasty_report()).encode("utf-8")


def test_a_plan_has_one_colour_in_every_figure():
    data = made_up(("a", "b"), ("x", "y"))
    assert len({plan_colour(position) for position in range(40)}) == 40
    occupancy = occupancy_figure(data)
    limits = loss_range(data.plans)
    for position, plan in enumerate(data.plans):
        colour = plan_colour(position)
        assert occupancy.data[position].marker.color == colour
        assert loss_figure(plan, position, limits, "cost", True).data[1].marker.color == faded(colour, 1.0)
        assert policy_figure(data, position).data[0].colorscale[1][1] == faded(colour, 0.75)


def test_the_histogram_holds_every_finite_draw_and_says_what_it_leaves_out():
    data = made_up(("a",), ("x",))
    losses = np.append(data.plans[0].losses, [np.inf, np.nan, 1e9])
    plan = dataclasses.replace(data.plans[0], losses=losses)
    limits = loss_range((plan,))
    figure = loss_figure(plan, 0, limits, "cost", True)
    shown = sum(sum(bar.y) for bar in figure.data[:2]) / 100.0
    finite = losses[np.isfinite(losses)]
    assert shown == pytest.approx(((finite >= limits[0]) & (finite <= limits[1])).sum() / losses.size)
    tail = (finite > plan.value_at_risk) & (finite <= limits[1])
    assert sum(figure.data[1].y) / 100.0 == pytest.approx(tail.sum() / losses.size)
    assert [line.x[0] for line in figure.data[2:]] == [plan.value_at_risk, plan.tail_mean]
    assert limits[0] <= plan.value_at_risk <= plan.tail_mean <= limits[1]
    text = losses_left_out(plan, limits)
    assert "lies further right" in text
    assert "infinite or undefined" in text


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
    directions = ("left", "down", "right", "up")
    for action, (x, y) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
        data = made_up("abcdef", "ldru", grid=(2, 3), directions=directions)
        probabilities = np.zeros((6, 4))
        probabilities[4, action] = 1.0
        plan = dataclasses.replace(data.plans[0], probabilities=probabilities)
        path = arrow_figure(dataclasses.replace(data, plans=(plan,)), 0).layout.shapes[1].path
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
    shown = policy_figure(data, 0).data[0].z
    np.testing.assert_array_equal(shown, data.plans[0].probabilities[np.sort(busiest)])
    assert all(len(label) <= 60 for label in counts_figure(data).layout.yaxis.ticktext)
    assert len(json.dumps(page.figures)) < 1_500_000


def test_thin_pairs_are_ranked_by_time_for_each_row_of_the_log():
    data = made_up(("a", "b", "c"), ("x",), plans=("this policy",))
    plan = dataclasses.replace(data.plans[0], occupancy=np.array([[6.0], [3.0], [1.0]]))
    page = Page(report_html(dataclasses.replace(data, plans=(plan,), counts=np.array([[20.0], [4.0], [0.0]]))))
    assert "24 transitions. Of 3 pairs of a state and an action, 1 was never seen." in page.text
    assert "this policy spends 10 % in those never seen and 40 % in those seen fewer than 5 times" in page.text
    assert "c x 0 10 % b x 4 30 %" in page.text
    certain = np.array([[0.0], [0.0], [1.0]])
    data = dataclasses.replace(data, plans=(plan,), counts=np.array([[20.0], [4.0], [0.0]]), certain=certain)
    text = Page(report_html(data)).text
    assert "Of 2 pairs of a state and an action whose outcome is uncertain, every one was seen." in text
    assert "c x 0" not in text, "where there is one possible outcome, there is nothing to see"


ODD = {
    "one state, one action, one plan": {"states": "a", "actions": "x", "plans": ("this policy",)},
    "nothing known": {"lower_bound": None, "known_theta_risk": None, "known_theta_standard_error": None},
    "no drivers": {"drivers": ()},
    "no counts": {"counts": None},
    "an empty log": {"counts": np.zeros((2, 2))},
    "no history": {"history_objective": np.zeros(0), "history_gradient_norm": np.zeros(0)},
    "one iteration": {"history_objective": np.ones(1), "history_gradient_norm": np.ones(1)},
    "a history with holes": {
        "history_objective": np.array([1.0, np.nan, 2.0] * 40),
        "history_gradient_norm": np.array([0.0, np.inf, 1.0] * 40),
    },
    "a flat history": {"history_objective": np.ones(90), "history_gradient_norm": np.zeros(90)},
    "not usable": {"ok": False, "status": "NON_FINITE"},
    "a bound that is not finite": {"lower_bound": -math.inf, "known_theta_risk": math.nan},
}


@pytest.mark.parametrize("case", ODD)
def test_odd_reports_are_still_pages(case):
    changes = {"states": "ab", "actions": "xy", **ODD[case]}
    page = Page(report_html(made_up(changes.pop("states"), changes.pop("actions"), **changes)))
    assert "The answer" in page.text
    assert "nan" not in re.findall(r"\b\w+\b", page.text)
    assert "None" not in page.text
    if case == "nothing known":
        assert ["lower_bound", "null", "not known"] in page.values
    if case == "not usable":
        assert "Do not use this policy as it is" in page.text


@pytest.mark.parametrize(
    ("losses", "value"),
    [
        (np.full(50, 3.0), 3.0),
        (np.zeros(50), 0.0),
        (np.full(50, np.inf), np.inf),
        (np.full(50, np.nan), np.nan),
        (np.full(50, -1e12), -1e12),
        (np.array([1.0]), 1.0),
    ],
    ids=["constant", "zero", "infinite", "undefined", "huge", "one draw"],
)
def test_odd_losses_are_still_drawn_or_said(losses, value):
    data = made_up("ab", "xy")
    numbers = dict.fromkeys(("risk", "mean", "value_at_risk", "tail_mean"), value)
    plans = tuple(
        dataclasses.replace(plan, losses=losses, risk_standard_error=math.nan, **numbers) for plan in data.plans
    )
    page = Page(report_html(dataclasses.replace(data, plans=plans)))
    assert ("nothing to draw" in page.text) == (not np.isfinite(value))
    if np.isfinite(value):
        bars = loss_figure(plans[0], 0, loss_range(plans), "cost", True).data[0].y
        assert sum(bars) == pytest.approx(100.0)
    assert next(shown for name, shown, _ in page.values if name == "risk") == repr(float(value))


ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(
    losses=arrays(float, 6, elements=ANY),
    marks=st.tuples(ANY, ANY, ANY, ANY, st.none() | ANY, st.none() | ANY),
    probabilities=arrays(float, (4, 4), elements=st.floats(0.0, 1.0) | st.just(np.nan)),
    occupancy=arrays(float, (4, 4), elements=st.floats(0.0) | st.just(np.nan)),
    history=arrays(float, (2, 5), elements=ANY),
    rest=st.tuples(*[st.none() | ANY] * 3),
    driver=st.tuples(ANY, ANY, ANY, ANY),
    apart=st.tuples(ANY, ANY, ANY, ANY),
    grid=st.sampled_from([None, (2, 2)]),
)
@settings(max_examples=25, phases=[Phase.generate])
def test_whatever_the_numbers_there_is_a_page_and_no_warning(
    losses, marks, probabilities, occupancy, history, rest, driver, apart, grid
):
    data = made_up("abcd", "ldru", grid=grid, directions=("left", "down", "right", "up"))
    names = ("risk", "risk_standard_error", "mean", "mean_standard_error", "value_at_risk", "tail_mean")
    changes = dict(zip(names, marks, strict=True)) | {"losses": losses}
    plan = dataclasses.replace(data.plans[0], probabilities=probabilities, occupancy=occupancy, **changes)
    page = Page(
        report_html(
            dataclasses.replace(
                data,
                plans=(plan, dataclasses.replace(data.plans[1], difference=Difference(*apart))),
                known_theta_risk=rest[0],
                known_theta_standard_error=rest[1],
                lower_bound=rest[2],
                history_objective=history[0],
                history_gradient_norm=history[1],
                drivers=(Driver("unknown", *driver),),
                counts=np.floor(occupancy),
            )
        )
    )
    assert [value for name, value, _ in page.values if name == "risk"] == [repr(plan.risk)] * 2
    # JSON knows no NaN and no infinity: a browser would refuse the figure.
    for figure in page.figures:
        json.dumps(figure, allow_nan=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plans": ()}, "needs a plan"),
        ({"states": ()}, "needs a plan, a state"),
        ({"counts": np.zeros((3, 2))}, r"counts must be \[S, A\] = \(2, 2\), got \(3, 2\)"),
        ({"grid": (2, 2)}, "2 x 2 cannot hold 2 states"),
        ({"directions": ("left",)}, "each of 2 actions, got 1"),
        ({"draw_probabilities": np.ones(3) / 3}, r"3 probabilities of draws do not fit the plans.*\[400\] losses"),
        ({"history_objective": np.zeros(3)}, "3 objectives, 200 gradient norms"),
    ],
)
def test_records_that_do_not_belong_together_are_refused(changes, message):
    with pytest.raises(pr.InputError, match=message):
        dataclasses.replace(made_up("ab", "xy"), **changes)


def test_the_report_is_written_whole(tmp_path):
    data = made_up("ab", "xy")
    path = write_report(data, tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == report_html(data)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    before = path.read_bytes()
    with pytest.raises(pr.InputError):
        write_report(dataclasses.replace(data, plans=()), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("missing", ["plotly", "jinja2"])
def test_without_the_extra_the_error_names_it(monkeypatch, missing):
    from prudent.report import page

    imported = builtins.__import__

    def without(name, *arguments, **settings):
        if name.partition(".")[0] == missing:
            raise ImportError(name)
        return imported(name, *arguments, **settings)

    page._environment.cache_clear()
    page._library.cache_clear()
    page._script_hashes.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(pr.InputError, match=rf"{missing}.*prudent\[report\]"):
        report_html(made_up("ab", "xy"))


def test_reading_the_records_imports_neither_jax_nor_plotly():
    code = "import sys, prudent.report; print(*({'jax', 'plotly', 'jinja2', 'matplotlib'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == []
