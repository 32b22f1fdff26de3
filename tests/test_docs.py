"""The words are true: the examples run and print what the pages say, and every public name is documented."""

import contextlib
import enum
import inspect
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import prudent as pr

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")


def fences(page):
    """The (language, content) of each fenced block of a page that names a language."""
    return FENCE.findall((ROOT / page).read_text(encoding="utf-8"))


def run(code, names):
    """Run a block in a namespace; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<fence>", "exec"), names)
    return printed.getvalue()


def words(line):
    """A line without its numbers and spaces."""
    return "".join(NUMBER.sub("#", line).split())


def assert_prints(stated, printed):
    """Same words, and numbers alike; seconds are nobody's promise, and neither is the last digit."""
    stated, printed = (
        [line for line in text.splitlines() if not line.startswith("seconds")] for text in (stated, printed)
    )
    assert [words(line) for line in stated] == [words(line) for line in printed]
    for ours, theirs in zip(stated, printed, strict=True):
        np.testing.assert_allclose(
            [float(number) for number in NUMBER.findall(ours)],
            [float(number) for number in NUMBER.findall(theirs)],
            rtol=0.02,
            atol=0.02,
            err_msg=f"the page says {ours!r}, the code prints {theirs!r}",
        )


def run_page(blocks):
    """Run Python blocks in order in one namespace, and hold each `text` block against the output before it."""
    names, printed = {"__name__": "page"}, None
    for language, content in blocks:
        if language == "python":
            printed = run(content, names)
        elif language == "text" and printed is not None:
            assert_prints(content, printed)
    return names


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        pytest.param("CONTRIBUTING.md", marks=pytest.mark.long),
        pytest.param("docs/quickstart.md", marks=pytest.mark.long),
        pytest.param("docs/deploying.md", marks=pytest.mark.long),
        "docs/command-line.md",
        pytest.param("docs/linear.md", marks=pytest.mark.long),
        "docs/limits-inventory.md",
        "docs/limits-maintenance.md",
        "docs/watching.md",
        pytest.param("docs/gallery/own-risk.md", marks=pytest.mark.long),
        pytest.param("docs/gallery/own-loss.md", marks=pytest.mark.long),
        "docs/gallery/own-belief.md",
        pytest.param("docs/gallery/gymnasium.md", marks=pytest.mark.long),
        pytest.param("docs/cluster.md", marks=pytest.mark.long),
        pytest.param("docs/comparing.md", marks=pytest.mark.long),
        pytest.param("docs/frontier.md", marks=pytest.mark.long),
        pytest.param("docs/events.md", marks=pytest.mark.long),
        pytest.param("docs/families.md", marks=pytest.mark.long),
        pytest.param("docs/proofs.md", marks=pytest.mark.long),
        pytest.param("docs/simulated.md", marks=pytest.mark.long),
        pytest.param("docs/limits.md", marks=pytest.mark.long),
        pytest.param("docs/parts.md", marks=pytest.mark.long),
    ],
)
def test_the_examples_of_a_page_run_in_order(page):
    blocks = fences(page)
    first = next(position for position, (language, _) in enumerate(blocks) if language == "python")
    names = run_page(blocks[first:])
    assert all(value.status.ok for value in names.values() if isinstance(value, pr.Solution))


def test_a_stranger_comes_from_an_empty_folder_to_a_policy_at_work(tmp_path, monkeypatch):
    blocks = fences("docs/first-policy.md")
    lines = [line for language, code in blocks if language in ("sh", "python") for line in code.splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= 15
    data = ROOT / "docs" / "data" / "pumps.csv"
    (head,) = (code for language, code in blocks if language == "none")
    assert data.read_text(encoding="utf-8").startswith(head)
    shutil.copy(data, tmp_path)
    monkeypatch.chdir(tmp_path)
    solution = run_page(blocks)["solution"]
    assert solution.status.ok
    assert pr.load_policy(tmp_path / "policy.json").act("worn", seed=1) in ("run", "service", "replace")


def test_the_version_is_the_same_everywhere():
    from importlib import util

    spec = util.spec_from_file_location("check_version", ROOT / "tools" / "check_version.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(set(module.versions().values())) == 1, module.versions()


def test_the_first_example_of_the_readme_is_ten_lines_from_data_to_a_policy():
    code = next(code for language, code in fences("README.md") if language == "python")
    assert code.startswith("import prudent as pr\n\nlake ")
    assert "pr.solve(" in code
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 10


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_links_between_pages_lead_somewhere():
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} points at {target}"


PUBLIC = sorted(pr.__all__)


def test_every_public_name_is_in_the_reference():
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\.\. auto\w+:: prudent\.(\w+)$", reference, re.MULTILINE))
    assert not set(PUBLIC) - shown, "add these to docs/api.md"


def test_every_public_name_has_a_docstring():
    texts = {name: getattr(pr, name).__doc__ or "" for name in PUBLIC}
    # Without one of its own, dataclasses and enum put a generated signature there.
    assert not [name for name, text in texts.items() if not text or text.startswith(f"{name}(")]


def untyped(name):
    thing = getattr(pr, name)
    if inspect.isclass(thing) and not issubclass(thing, enum.Enum):
        thing = thing.__init__
    given = inspect.signature(thing).parameters.values() if inspect.isfunction(thing) else ()
    return [each.name for each in given if each.name != "self" and each.annotation is each.empty]


def test_the_arguments_of_every_public_name_have_types():
    assert not {name: untyped(name) for name in PUBLIC if untyped(name)}


def called_by_users(name):
    thing = getattr(pr, name)
    return inspect.isfunction(thing) or (inspect.isclass(thing) and not inspect.isabstract(thing))


def test_every_public_function_or_class_shows_an_example():
    assert not [name for name in PUBLIC if called_by_users(name) and ">>>" not in getattr(pr, name).__doc__]
