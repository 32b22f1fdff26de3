"""Sphinx settings; `make docs` builds with warnings as errors and without the network."""

import re
from importlib.metadata import version as installed

project = "prudent"
author = "the prudent authors"
copyright = "the prudent authors"  # noqa: A001
version = release = installed("prudent")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
default_role = "code"  # docstrings put code in single backticks

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name shapes and kinds
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = f"prudent {release}"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False


def split_fields(app, what, name, obj, options, lines):
    """One entry a name for `state, action: ...` under Attributes; Sphinx would take all but the last for a type."""
    split = []
    for line in lines:
        found = re.match(r":ivar (\w+(?:, \w+)+):(.*)", line)
        split += [f":ivar {field}:{found[2]}" for field in found[1].split(", ")] if found else [line]
    lines[:] = split


def setup(app):
    """After napoleon has turned sections into fields."""
    app.connect("autodoc-process-docstring", split_fields, priority=900)
