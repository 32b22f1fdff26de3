"""Reports in a real browser: drawn, readable at every width and in both schemes, silent, and nobody's script runs."""

import base64
import os
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.support.ui import WebDriverWait

from prudent.report import write_report

from ..report_examples import NAMES, NASTY, changed, large_report, machine_report, made_up, nasty_report
from .chromium import Visit, chromium

pytestmark = pytest.mark.browser

PICTURES = os.environ.get("PRUDENT_PICTURES")  # a folder to keep pictures of the pages in, to look at


@pytest.fixture(scope="module")
def driver():
    if not (Path("/usr/bin/chromium").exists() and Path("/usr/bin/chromedriver").exists()):
        pytest.skip("there is no /usr/bin/chromium with /usr/bin/chromedriver; make test-browser installs them")
    with chromium() as browser:
        yield browser


REPORTS = {
    "machine": machine_report,
    "nasty": nasty_report,
    "large": large_report,
    "grid": lambda: made_up(
        [str(state) for state in range(600)], "ldru", grid=(20, 30), directions=("left", "down", "right", "up")
    ),
    "one": lambda: made_up(("only",), ("wait",), plans=("this policy",), drivers=(), counts=None),
}

WIDTHS = [
    *((name, width) for name in ("machine", "nasty", "large") for width in (360, 1280)),
    ("grid", 360),
    ("one", 360),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The data and the file of each report, made once."""
    folder, made = tmp_path_factory.mktemp("reports"), {}

    def page(name):
        if name not in made:
            data = REPORTS[name]()
            made[name] = (data, write_report(data, folder / f"{name}.html"))
        return made[name]

    return page


CLIPPED = """
const clipped = [];
document.querySelectorAll(".figure").forEach(function (figure) {
  const frame = figure.getBoundingClientRect();
  figure.querySelectorAll("svg text").forEach(function (text) {
    const box = text.getBoundingClientRect();
    if (!box.width) return;
    const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1
      && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
    if (!inside) clipped.push(text.textContent);
  });
});
return clipped;
"""
OVERLAPPING = """
const pairs = [];
document.querySelectorAll(".figure").forEach(function (figure) {
  const boxes = Array.from(figure.querySelectorAll(".xtick text, .ytick text, .xtitle, .ytitle")).map(function (text) {
    return [text.textContent, text.getBoundingClientRect()];
  }).filter(function (pair) { return pair[1].width; });
  boxes.forEach(function ([name, box], i) {
    boxes.slice(i + 1).forEach(function ([other, rival]) {
      if (Math.min(box.right, rival.right) - Math.max(box.left, rival.left) > 1
          && Math.min(box.bottom, rival.bottom) - Math.max(box.top, rival.top) > 3) pairs.push([name, other]);
    });
  });
});
return pairs;
"""


@pytest.mark.parametrize(("name", "width"), WIDTHS)
def test_a_page_is_drawn_fits_its_width_cuts_no_label_and_is_silent(driver, pages, name, width):
    data, path = pages(name)
    visit = Visit(driver, path, width).drawn()
    if PICTURES:
        for dark in (False, True):
            visit.scheme(dark)
            visit.picture(Path(PICTURES) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    figures = visit.run(
        """return Array.from(document.querySelectorAll(".figure")).map(function (figure) {
          const box = figure.querySelector("svg.main-svg").getBoundingClientRect();
          const marks = figure.querySelectorAll(".trace, .hm image, .point, .shapelayer path");
          return [box.width, box.height, marks.length];
        })"""
    )
    # Risks, occupancy, two curves; a distribution and a policy for each plan; drivers and counts where there are any.
    assert len(figures) == 4 + 2 * len(data.plans) + bool(data.drivers) + (data.counts is not None)
    assert all(across > 100 and down > 30 and marks for across, down, marks in figures)
    assert visit.run("return document.documentElement.scrollWidth") == width
    beyond = visit.run(
        """return Array.from(document.querySelectorAll("main *")).filter(function (element) {
          return !element.closest(".scroll, .figure") && element.getBoundingClientRect().right > innerWidth + 0.5;
        }).map(function (element) { return element.outerHTML.slice(0, 200); })"""
    )
    assert beyond == []
    # What does not fit scrolls in a box of its own, with a shadow where more is hidden.
    boxes = visit.run(
        """return Array.from(document.querySelectorAll(".scroll")).map(function (box) {
          return [box.scrollWidth > box.clientWidth + 1, getComputedStyle(box).backgroundImage.includes("gradient")];
        })"""
    )
    assert all(shadow for _, shadow in boxes)
    if name in ("machine", "nasty") and width == 360:
        assert any(hidden for hidden, _ in boxes)
    assert visit.run(CLIPPED) == []
    assert visit.run(OVERLAPPING) == []
    assert visit.console == []
    assert visit.requests == []


CONTRAST = """
function rgb(text) { return text.match(/[\\d.]+/g).map(Number); }
function light(colour) {
  const parts = colour.slice(0, 3).map(function (part) {
    part /= 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}
const ground = light(rgb(getComputedStyle(document.querySelector("section")).backgroundColor));
const ratio = function (colour) {
  const other = light(rgb(colour));
  return (Math.max(ground, other) + 0.05) / (Math.min(ground, other) + 0.05);
};
const words = Array.from(document.querySelectorAll("section p, section dt, section dd, section td, section th"));
const labels = Array.from(document.querySelectorAll(".figure svg text"));
return {
  ground: ground,
  words: Math.min(...words.map(function (element) { return ratio(getComputedStyle(element).color); })),
  labels: Math.min(...labels.map(function (element) { return ratio(getComputedStyle(element).fill); })),
};
"""


def test_dark_and_light_are_both_readable_and_follow_the_system(driver, pages):
    visit = Visit(driver, pages("machine")[1], dark=True).drawn()
    dark = visit.run(CONTRAST)
    visit.scheme(dark=False)  # while the page is open
    light = visit.run(CONTRAST)
    assert dark["ground"] < 0.05
    assert light["ground"] > 0.9
    assert min(dark["words"], light["words"], dark["labels"], light["labels"]) > 4.5
    assert (
        visit.run("return getComputedStyle(document.querySelector('.main-svg')).backgroundColor") == "rgba(0, 0, 0, 0)"
    )


def test_the_numbers_on_the_screen_are_those_given(driver, pages):
    data, path = pages("machine")
    shown = Visit(driver, path).run(
        """return Array.from(document.querySelectorAll("[data-name]")).map(function (element) {
          return [element.dataset.name, element.dataset.value, element.innerText];
        })"""
    )
    given = {"risk": data.risk, "risk_standard_error": data.risk_standard_error, "seconds": data.seconds}
    given |= {"iterations": data.iterations, "seed": data.seed}
    for key, value in given.items():
        found = [(exact, text) for name, exact, text in shown if name == key]
        assert found
        assert all(float(exact) == value for exact, _ in found)
        assert all(float(text.split()[0]) == pytest.approx(value, rel=0.05) for _, text in found)
    assert [float(exact) for name, exact, _ in shown if name == "lower_bound"] == [data.lower_bound]
    assert [exact for name, exact, _ in shown if name == "status"] == [data.status]


def test_names_are_text_everywhere_and_nothing_of_theirs_runs(driver, pages):
    data, path = pages("nasty")
    visit = Visit(driver, path).drawn()
    assert visit.run("return document.querySelector('h1').innerText") == data.title
    texts = visit.run("return Array.from(document.querySelectorAll('.name')).map(e => e.innerText.trim())")
    assert set(NAMES) <= set(texts)
    labels = visit.run("return Array.from(document.querySelectorAll('.ytick text')).map(e => e.textContent)")
    assert "<script>window.pwned=1</script>" in labels
    assert "<b>bold</b> & <i>it</i>" in labels
    assert "%{x} $x^2$ &lt;" in labels
    assert visit.run("return document.querySelectorAll('main b, main i, main u, main img, svg a').length") == 0
    # A hover text is made when it is needed: in the cell of the first state and the first action.
    x, y = visit.run(
        """const figure = document.querySelector("#policy .figure");
        figure.scrollIntoView();
        const box = figure.querySelector(".nsewdrag").getBoundingClientRect();
        return [box.left + 5, box.top + 5];"""
    )
    for step in (3, 0):
        driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x + step, "y": y})
    WebDriverWait(driver, 10).until(lambda _: visit.run("return document.querySelector('.hovertext')"))
    hover = visit.run("return document.querySelector('.hovertext').textContent")
    assert NASTY in hover
    assert "<b>go</b>" in hover
    assert visit.run("return typeof window.pwned") == "undefined"
    assert visit.console == []


def test_were_a_name_not_escaped_the_policy_would_still_keep_it_from_running(driver, tmp_path):
    """And what these tests look at does notice: a script run, an error, a request."""
    text = write_report(made_up("ab", "xy"), tmp_path / "report.html").read_text(encoding="utf-8")
    hole = "<script>window.pwned = 1; console.error('ran')</script><img src='http://localhost:9/x' onerror='pwned = 2'>"
    (tmp_path / "hole.html").write_text(text.replace("<h1>", f"<h1>{hole}"), encoding="utf-8")
    visit = Visit(driver, tmp_path / "hole.html").drawn()
    assert visit.run("return typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in message for message in visit.console)
    start = text.index('<meta http-equiv="Content-Security-Policy"')
    unguarded = text[:start] + text[text.index(">", start) + 1 :]
    (tmp_path / "open.html").write_text(unguarded.replace("<h1>", f"<h1>{hole}"), encoding="utf-8")
    visit = Visit(driver, tmp_path / "open.html").drawn()
    assert visit.run("return window.pwned") in (1, 2)
    assert any("ran" in message for message in visit.console)
    assert visit.requests == ["http://localhost:9/x"]


def test_the_page_prints_light_whole_and_without_the_contents(driver, pages):
    visit = Visit(driver, pages("machine")[1], dark=True).drawn()
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    document = base64.b64decode(printed["data"])
    assert document.startswith(b"%PDF")
    assert 3 <= document.count(b"/Type /Page\n") + document.count(b"/Type /Page ") <= 12
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert visit.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert visit.run("return getComputedStyle(document.querySelector('.ytick text')).fill") == "rgb(91, 102, 117)"


def test_a_report_of_odd_numbers_is_drawn_without_a_complaint(driver, tmp_path):
    odd = {"risk": np.inf, "value_at_risk": None, "tail_mean": np.nan, "lower_bound": -np.inf}
    data = changed(made_up("ab", "xy", counts=np.zeros((2, 2))), losses=np.full(400, 3.0), **odd)
    data = changed(data, objective=np.array([1.0, np.nan, np.inf]), gradient_norm=np.zeros(3))
    visit = Visit(driver, write_report(data, tmp_path / "odd.html"), 360).drawn()
    assert visit.console == []
    assert visit.run("return document.documentElement.scrollWidth") == 360


def test_a_policy_that_is_no_table_has_a_page_without_tables(driver, tmp_path):
    gone = {"probabilities": None, "occupancy": None}
    data = made_up("ab", "xy")
    rivals = tuple(changed(rival, **gone) for rival in data.rivals)
    data = changed(data, **gone, states=0, actions=0, rivals=rivals, counts=None, coverage=None)
    visit = Visit(driver, write_report(data, tmp_path / "function.html"), 360).drawn()
    assert visit.run("return document.querySelectorAll('#policy, #occupancy, #log').length") == 0
    # Risks, drivers, two curves, and a distribution for each plan.
    assert visit.run("return document.querySelectorAll('.figure svg.main-svg').length") >= 4 + len(data.plans)
    dead = visit.run(
        """return Array.from(document.querySelectorAll("nav a")).filter(
          a => !document.querySelector(a.getAttribute("href"))).length"""
    )
    assert dead == 0
    assert visit.console == []
    assert visit.run("return document.documentElement.scrollWidth") == 360
