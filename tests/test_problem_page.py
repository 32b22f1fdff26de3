"""The page on the problem file lists every key there is, with its default and its meaning; its examples are read."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

import prudent as pr
from prudent.problems import rules, schema, sections

PAGE = Path(__file__).resolve().parent.parent / "docs" / "problem-file.md"
SECTIONS = {
    "": schema.ProblemFile,
    "data": schema.Data,
    "posterior": schema.PosteriorSection,
    "posterior.rule": rules.Rule,
    "limit": schema.LimitSection,
    "rivals": schema.Rivals,
    "certificate": schema.CertificateSection,
    "layout": schema.Layout,
}
# The tables are documented below their own headings.
TABLES = {*SECTIONS, "risk", "loss", "solver"}
KINDS = schema.RISKS | schema.LOSSES | schema.SOLVERS


def default(field):
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ("", [], {}):
        return "none"
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"`{shown}`".replace("'", '"')


def rows(section):
    """The lines of the page that a section's keys make."""
    return [
        f"| `{name}` | {default(field)} | {field.description} |"
        for name, field in section.model_fields.items()
        if name != "kind" and not (section is schema.ProblemFile and name in TABLES)
    ]


@pytest.mark.parametrize("section", [*SECTIONS.values(), *KINDS.values(), sections.MixturePart])
def test_every_key_is_on_the_page_with_its_default(section):
    page = PAGE.read_text(encoding="utf-8")
    for row in rows(section):
        assert row in page
    for kind in KINDS:
        assert re.search(rf"^\| `{kind}` \| \w.* \|$", page, re.MULTILINE), kind


def test_every_example_on_the_page_is_a_problem_file(tmp_path):
    pr.write_example(tmp_path)
    (tmp_path / "visits.csv").write_text("state,probability\nnew,0.5\nused,0.5\n")
    base = tomllib.loads((tmp_path / "problem.toml").read_text())
    examples = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 5
    for example in examples:
        content = tomllib.loads(example)
        whole = content if {"start", "family"} & content.keys() else {**base, **content}
        checked = schema.ProblemFile.model_validate(whole)
        assert checked.discount is not None or checked.family is not None
