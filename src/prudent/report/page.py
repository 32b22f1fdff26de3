"""What every page shares: templates, the drawing library inlined once, and figures as inert data.

A page makes no network request and runs no script but the two below: its content security policy names their hashes,
so that not even a name that slipped past the escaping could run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from typing import Any

from ..errors import InputError
from .words import clean

# What would end a script element or a line of JavaScript inside a JSON string, written so that it cannot.
INERT = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"})


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


def figure_html(figure: Any, label: str = "", *, aspect: float | None = None, widest: int | None = None) -> str:
    """A plotly figure as a div that holds its data, without the library.

    Args:
        figure: a `plotly.graph_objects.Figure`; its layout has a height, unless there is an aspect.
        label: what it shows, for readers that cannot see it.
        aspect: width by height, for a figure whose height follows its width.
        widest: pixels it takes at most; the width of the page when left out.
    """
    markup = _needs("markupsafe").Markup
    data = markup(figure.to_json(engine="json").translate(INERT))
    # The height is kept free before the figure is drawn, so that the page does not jump.
    size = f"height:{int(figure.layout.height or 400)}px" if aspect is None else f"aspect-ratio:{aspect:.4f}"
    limit = f";max-width:{widest}px" if widest is not None else ""
    return markup(
        '<div class="figure" role="img" aria-label="{}" style="{}{}"><script type="application/json">{}</script></div>'
    ).format(label, size, limit, data)


def plotly_graphs() -> Any:
    """`plotly.graph_objects`, or an error that names the extra."""
    _needs("plotly")
    import plotly.graph_objects

    return plotly.graph_objects


def _needs(module: str) -> Any:
    try:
        return __import__(module)
    except ImportError:
        raise InputError(f"reports need {module}; install it with: pip install 'prudent[report]'") from None


@functools.cache
def _environment(package: str) -> Any:
    jinja2 = _needs("jinja2")
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in dict.fromkeys((package, "prudent.report"))]),
        autoescape=True,
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
    from plotly.offline import get_plotlyjs

    # Inside a string of JavaScript the two mean the same; in a page the first would end the script.
    return get_plotlyjs().replace("</script", r"<\/script")


def _styles() -> str:
    return _needs("markupsafe").Markup(_template("styles.css"))


def _script(code: str) -> str:
    return _needs("markupsafe").Markup(f"<script>{code}</script>")


@functools.cache
def _script_hashes() -> str:
    digests = (hashlib.sha256(code.encode()).digest() for code in (_library(), _template("figures.js")))
    # The policy is no text from a file, and its quotes must stay quotes.
    return _needs("markupsafe").Markup(" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
