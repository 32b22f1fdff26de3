"""The package beside the library: its modules' order, its commands, and the page of its stored run."""

import ast
import importlib.util
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

import prudent_studies
from prudent.cli import app, plugins

PACKAGE = Path(prudent_studies.__file__).parent
ROOT = Path(__file__).parents[2]

# A module imports only from those before it.
ORDER = [
    "work",
    "lake",
    "families",
    "gymnasium",
    "optimisers",
    "worlds",
    "simulated",
    "fit",
    "proofs",
    "limits",
    "worth",
    "known",
    "promise",
    "promise_tables",
    "spi_worlds",
    "spi_methods",
    "spi",
    "descent_ascent",
    "q_learning",
    "theorem",
    "estimators",
    "tables",
    "curves",
    "episodic",
    "theory",
    "linear",
    "reproduction",
    "panels",
    "pictures",
    "interactive",
    "pages",
    "commands",
    "solver_commands",
    "simulated_commands",
    "spi_commands",
]


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_imports_from_earlier_ones_and_through_the_doors_of_the_library(path):
    if path.stem == "__init__":
        return
    assert path.stem in ORDER, f"{path.stem} has no place; add it to ORDER"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            others = [node.module] if node.module else [alias.name for alias in node.names]
            assert node.level == 1
            assert all(ORDER.index(other) < ORDER.index(path.stem) for other in others), (path.stem, others)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prudent"):
            assert node.module.count(".") <= 1, f"{path.stem} reaches past a package's door: {node.module}"


def test_the_library_knows_the_commands_that_it_may_lack():
    offers = [offer for offer in entry_points(group=plugins.GROUP) if offer.dist.name == "prudent-studies"]
    assert sorted(offer.name for offer in offers) == sorted(plugins.STUDIES)
    for offer in offers:
        assert offer.load().__name__ == offer.name.replace("-", "_")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "table1", "--replications", "0"), "replications"),
        (("families", "--family", "gardening"), "river swim"),
    ],
)
def test_bad_input_exits_with_2_and_says_why(arguments, message):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.stderr


def test_the_tables_of_the_reproduction_are_those_of_its_stored_run():
    spec = importlib.util.spec_from_file_location("write_reproduction", ROOT / "docs" / "write_reproduction.py")
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert writer.filled(page, writer.stored) == page
    for picture in re.findall(r"\]\((images/reproduction/[^)]+)\)", page):
        assert (ROOT / "docs" / picture).exists()
