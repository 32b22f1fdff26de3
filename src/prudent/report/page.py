"""What every page and figure shares: templates, the drawing library inlined once, figures as inert data, colours, axes.

A page makes no network request and runs no script but the two below: its content security policy names their hashes,
so that not even a name that slipped past the escaping could run.
"""

from __future__ import annotations

import base64
import colorsys
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from ..errors import InputError
from .drawing import Figure
from .words import clean, figure_text, in_lines, short_names

# What would end a script element or a line of JavaScript inside a JSON string, written so that it cannot.
INERT = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"})

# Readable on white and on near-black alike. A plan keeps its colour through the whole page.
PLANS = ("#3f7fc4", "#d9822b", "#2a9d7c", "#9a6fc0", "#a0785a", "#8c9440")
# The tail of the losses: where it begins, its mean, and what drives it.
TAIL = "#d1495b"
# Everything that belongs to no plan.
NEUTRAL = "#7d8794"

LEFT = 52  # every figure with short labels begins at the same place
BOTTOM = 44
LARGEST = 1e100  # beyond it differences overflow, and so do axes


def render(template_name: str, package: str = "prudent.report", /, **context: Any) -> str:
    """A page from a template; everything in the context is escaped unless it is `Markup`.

    Templates extend `base.html` and fill its blocks `title` and `content`. A page without figures sets
    `{% block scripts %}{% endblock %}` and is then five megabytes lighter.

    Args:
        template_name: a file in the folder `templates` of the package.
        package: whose templates; `base.html` is this one's in any case.
        context: what the template names.
    """
    return _environment(package).get_template(template_name).render(**context)


def plotly_script() -> str:
    """The offline drawing library as one script element; `base.html` puts it in once, below the content."""
    return _script(_library())


def figures_script() -> str:
    """The few lines that draw every figure of the page; `base.html` puts them in behind the library."""
    return _script(_template("figures.js"))


def figure_html(figure: Figure, label: str = "", *, aspect: float | None = None, widest: int | None = None) -> str:
    """A figure as a div that holds its data, without the library.

    Args:
        figure: its layout has a height, unless there is an aspect.
        label: what it shows, for readers that cannot see it.
        aspect: width by height, for a figure whose height follows its width.
        widest: pixels it takes at most; the width of the page when left out.
    """
    markup = _needs("markupsafe").Markup
    data = markup(figure.to_json().translate(INERT))
    # The height is kept free before the figure is drawn, so that the page does not jump.
    size = f"height:{int(figure.layout.get('height') or 400)}px" if aspect is None else f"aspect-ratio:{aspect:.4f}"
    limit = f";max-width:{widest}px" if widest is not None else ""
    return markup(
        '<div class="figure" role="img" aria-label="{}" style="{}{}"><script type="application/json">{}</script></div>'
    ).format(label, size, limit, data)


def _needs(module: str) -> Any:
    try:
        return __import__(module)
    except ImportError:
        raise InputError(f"reports need {module}; install it with: pip install 'prudent[report]'") from None


@functools.cache
def _environment(package: str) -> Any:
    jinja2 = _needs("jinja2")
    from .kept_templates import kept_templates

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((package, "prudent.report"))]),
        autoescape=True,
        bytecode_cache=kept_templates(),
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        plotly_script=plotly_script, figures_script=figures_script, script_hashes=_script_hashes, styles=_styles
    )
    return environment


def _template(name: str) -> str:
    return resources.files("prudent.report").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _library() -> str:
    _needs("plotly")
    # Read as a file: Python's side of the library takes longer to import than the page to be written.
    library = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    # Inside a string of JavaScript the two mean the same; in a page the first would end the script.
    return library.replace("</script", r"<\/script")


def _styles() -> str:
    return _needs("markupsafe").Markup(_template("styles.css"))


def _script(code: str) -> str:
    return _needs("markupsafe").Markup(f"<script>{code}</script>")


@functools.cache
def _script_hashes() -> str:
    digests = (hashlib.sha256(code.encode()).digest() for code in (_library(), _template("figures.js")))
    # The policy is no text from a file, and its quotes must stay quotes.
    return _needs("markupsafe").Markup(" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))


def drawable(values: Any) -> np.ndarray:
    """Which numbers can be drawn: those that are finite, and not so large that an axis cannot hold them."""
    return np.asarray(np.abs(np.nan_to_num(np.asarray(values, float), nan=np.inf)) < LARGEST)


def plan_colour(position: int) -> str:
    """The colour of a plan by its place in the report."""
    if position < len(PLANS):
        return PLANS[position]
    red, green, blue = colorsys.hls_to_rgb((0.618034 * position) % 1.0, 0.52, 0.45)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def faded(colour: str, strength: float) -> str:
    """A colour let through by the ground behind it, so that it is pale on white and dim on black."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{strength:.3f})"


def shades(colour: str, strongest: float = 0.75) -> list[list[Any]]:
    """A colour scale from nothing to a colour that text can still be read on."""
    return [[0.0, faded(colour, 0.0)], [1.0, faded(colour, strongest)]]


def blank(height: int | None, left: int = LEFT, right: int = 12, top: int = 10, bottom: int = BOTTOM) -> Figure:
    """An empty figure, as high as its place in the page if no height is given; a finger on it scrolls the page."""
    return Figure(
        height=height,
        margin={"l": left, "r": right, "t": top, "b": bottom, "pad": 4 if left > 8 else 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        dragmode=False,
        showlegend=False,
        hovermode="closest",
        font={"size": 12},
        hoverlabel={"align": "left", "namelength": -1},
        xaxis=axis(),
        yaxis=axis(),
    )


def axis(title: str = "", **settings: Any) -> dict[str, Any]:
    """An axis with a quiet grid; its title carries the unit."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "fixedrange": True,
        "showline": False,
        "zeroline": False,
        "gridcolor": faded(NEUTRAL, 0.25),
        "ticks": "",
        "tickangle": 0,
        "automargin": False,
        **settings,
    }


def named_places(names: Sequence[str], length: int = 23) -> tuple[dict[str, Any], int]:
    """An axis with a name at each whole number from the top down, and the pixels its names need on the left.

    A phone has 300 pixels for names and figure together, so a long name takes two lines, and what is longer still is
    cut; hover texts have it whole.
    """
    labels = [in_lines(name, length) for name in short_names(names, 2 * length)]
    settings = axis(
        tickvals=list(range(len(names))),
        ticktext=["<br>".join(figure_text(line) for line in lines) for lines in labels],
        range=[len(names) - 0.5, -0.5],
        showgrid=False,
    )
    if any(len(lines) > 1 for lines in labels):
        settings["tickfont"] = {"size": 10}
    return settings, max(len(line) for lines in labels for line in lines) * 7 + 18
