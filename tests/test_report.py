"""The report without a browser: what it says is what it was given, names are text, and odd input still makes a page."""

import base64
import builtins
import hashlib
import re

import numpy as np
import pytest

import prudent as pr
from prudent.report import Figure, bar, compared, figure_html, figure_text, number, write_report
from prudent.report.distributions import loss_figure, loss_range
from prudent.report.page import figures_script, plotly_script
from prudent.report.rendering import report_html
from prudent.report.words import clean

from .report_examples import NAMES, NASTY, Page, apart, certificate, changed, drawn, made_up, nasty_report


@pytest.fixture(scope="module")
def plain():
    data = made_up(("new", "worn", "broken"), ("run", "repair"))
    return data, Page(report_html(data))


def test_the_numbers_in_the_page_are_those_given_to_the_bit(plain):
    data, page = plain
    given = {
        "status": data.status,
        "risk": data.risk,
        "risk_standard_error": data.risk_standard_error,
        "mean": data.mean,
        "lower_bound": data.lower_bound,
        "known_theta_risk": data.known_theta_risk,
        "iterations": data.iterations,
        "seconds": data.seconds,
        "seed": data.seed,
        **{f"rivals.{i}.risk": data.rivals[i].risk for i in (0, 1)},
        **{f"rivals.{i}.mean": data.rivals[i].mean for i in (0, 1)},
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
    for heading in ("The promise", "What was asked", "Losses over the posterior", "The policy", "Convergence"):
        assert heading in page.text


VERDICTS = {
    "clearly more": (apart(0.4, 0.1, 0.2, 0.6), "0.400 more (95 % interval 0.200 to 0.600)", None),
    "clearly less": (
        apart(-0.4, 0.1, -0.6, -0.2),
        "0.400 less (95 % interval −0.600 to −0.200)",
        None,
    ),
    "within error": (
        apart(0.1, 0.1, -0.1, 0.3),
        "not clearly different (0.100 more on these draws",
        "cannot be told apart from",
    ),
    "no error known": (apart(0.1, None, None, None), "0.100 more on these draws, with an error", None),
    "exact": (apart(0.4, 0.0, 0.4, 0.4), "0.400 more (exact)", None),
    "exactly the same": (apart(0.0, 0.0, 0.0, 0.0), "the same", "cannot be told apart from"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_is_said_of_the_best_rival_follows_from_the_interval(case):
    difference, said, verdict = VERDICTS[case]
    data = made_up(("a", "b"), ("x", "y"), plans=("this policy", "robust plan"))
    rivals = (changed(data.rivals[0], difference=difference),)
    text = Page(report_html(changed(data, rivals=rivals, exact="exact" in case))).text
    assert said in text
    for _, _, words in VERDICTS.values():
        if words is not None:
            assert (words in text) == (words == verdict)


@pytest.mark.parametrize("case", ["more", "less", "same"])
def test_what_the_deterministic_policy_gives_up_is_said(case):
    value = {"more": 0.5, "less": -0.5, "same": 0.01}[case]
    data = made_up(("a", "b"), ("x", "y"), plans=("this policy", "deterministic policy"))
    difference = apart(value, 0.1, value - 0.2, value + 0.2)
    certain = changed(data.rivals[0], kind="deterministic", difference=difference)
    text = Page(report_html(changed(data, deterministic=certain, rivals=()))).text
    assert "With one action in each state and nothing left to chance, the best policy found has" in text
    assert compared(certain.difference) in text
    assert "use it" not in text
    assert "way to plan" not in text


@pytest.mark.parametrize("level", [0.0, -3.0, 1e-13, 1e12])
def test_nothing_is_a_share_of_a_risk_that_may_be_nothing_or_negative(level):
    """Costs moved by any constant: the page compares differences, and no percentage of a risk is printed."""
    data = made_up("ab", "xy")
    rivals = tuple(changed(plan, risk=plan.risk - data.risk + level) for plan in data.rivals)
    bound = {"known_theta_risk": level - 1.0, "lower_bound": level - 1.0, "gap": 1.0, "gap_limit": 1.2}
    text = Page(report_html(changed(data, risk=level, rivals=rivals, **bound))).text
    answer = text[text.index("The promise") : text.index("Where the log is thin")]
    assert re.findall(r"[\d.]+ %", answer.replace("95 % interval", "").replace("95 % confidence", "")) == []
    assert compared(rivals[0].difference) in answer
    assert "no policy is better by more than 1.20" in answer


def test_a_posterior_used_whole_is_said_to_be_exact():
    data = made_up(("a", "b"), ("x", "y"), draws=4)
    share, none = np.array([0.7, 0.1, 0.1, 0.1]), {"risk_standard_error": 0.0, "mean_standard_error": 0.0}
    known = none | {
        "losses": np.array([1.0, 2.0, 3.0, 4.0]),
        "value_at_risk": 3.0,
        "exact": True,
        "confidence": "exact",
    }
    rivals = tuple(changed(plan, **known, difference=apart(0.5, 0.0, 0.5, 0.5)) for plan in data.rivals)
    whole = changed(data, **known, rivals=rivals, draw_probabilities=share, gap_limit=None)
    page = Page(report_html(whole))
    assert "exactly: the posterior is 4 points, and all are used with their weights" in page.text
    assert "No policy is better by more" in page.text
    for words in ("standard error", "confidence", "fresh posterior draw", "by chance", "explains"):
        assert words not in page.text
    bars = drawn(loss_figure(whole, 0, loss_range(whole)))
    assert sum(sum(bar.y) for bar in bars.data[:2]) == pytest.approx(100.0)
    assert sum(bars.data[1].y) == pytest.approx(10.0), "beyond VaR lies the last point alone"


def test_a_bound_on_few_draws_is_compared_on_those():
    data = made_up(("a", "b"), ("x", "y"))
    few = {"known_theta_risk": None, "lower_bound": 100.0, "gap": 0.25, "gap_limit": None}
    few["certificate"] = certificate(draws=16)
    text = Page(report_html(changed(data, **few))).text
    assert "On the first 16 of the draws, the risk of every policy is at least 100.0" in text
    assert "0.250 less than that of this policy there." in text
    assert "Of other draws this says nothing." in text
    assert "95 % confidence" not in text
    text = Page(report_html(changed(data, **few | {"gap_limit": 2.5}))).text
    assert "With 95 % confidence, no policy is better by more than 2.50" in text


def test_where_there_is_no_bound_the_page_says_why():
    nothing = {"lower_bound": None, "gap": None, "gap_limit": None, "known_theta_risk": None}
    because = certificate(no_bound_because="the risk is not coherent")
    text = Page(report_html(made_up("ab", "xy", **nothing, certificate=because))).text
    assert "A lower bound on the risk of every policy is not known : the risk is not coherent." in text


def test_drivers_come_with_their_error_and_none_is_said_to_be_none():
    data = made_up("ab", "xy")
    text = Page(report_html(data)).text
    assert "40 unknowns were looked at, those that this policy meets" in text
    assert "standard error by chance alone" in text
    assert "worth most" not in text
    text = Page(report_html(changed(data, drivers=()))).text
    assert "No unknown stands out: of 40 that this policy meets, none moves further than chance explains" in text
    text = Page(report_html(changed(data, drivers=(), weights=np.ones(400)))).text
    assert "No unknown does: the risk weighs all draws alike." in text
    text = Page(report_html(changed(data, drivers=(), certificate=certificate(drivers_considered=0)))).text
    assert "No unknown was looked at." in text


def test_the_course_of_the_run_is_told_as_its_solver_runs():
    assert "draws of its own" in Page(report_html(made_up("ab", "xy", solver="brpg"))).text
    text = Page(report_html(made_up("ab", "xy", solver="sample-average"))).text
    assert "draws of its own" not in text
    assert "it jumps when another sample is taken" in text
    short = {"objective": np.ones(5), "gradient_norm": np.ones(5)}
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
    figure = Figure()
    figure.add_trace(bar(x=["</script><!--<script>", "\u2028&"], y=[1, 2]))
    text = str(figure_html(figure, '"><script>'))
    assert re.findall(r"</?script", text) == ["<script", "</script"]
    assert "<!--" not in text
    assert "\u2028" not in text
    assert Page(text).figures[0]["data"][0]["x"] == ["</script><!--<script>", "\u2028&"]


def test_characters_no_page_can_show_are_replaced():
    assert clean("a\u202eb\x00\ud800c\n d") == "a\ufffdb\ufffd\ufffdc d"
    assert clean("Größe 状態 👩‍🔧") == "Größe 状態 👩‍🔧"
    report_html(nasty_report()).encode("utf-8")


def test_the_report_is_written_whole(tmp_path):
    data = made_up("ab", "xy")
    path = write_report(data, tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8") == report_html(data)
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    before = path.read_bytes()
    with pytest.raises(AttributeError):
        write_report(None, path)
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
