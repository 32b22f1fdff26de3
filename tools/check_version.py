"""The version a release is tagged with is that of the package, of its citation and of its recipe."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """The version that each file states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    recipe = re.search(r"^  version: (\S+)$", (ROOT / "tools/recipe.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation and recipe
    return {"pyproject.toml": project, "CITATION.cff": citation[1], "tools/recipe.yaml": recipe[1].strip('"')}


if __name__ == "__main__":
    found = versions()
    wanted = sys.argv[1] if len(sys.argv) > 1 else found["pyproject.toml"]
    wrong = {name: version for name, version in found.items() if version != wanted}
    if wrong:
        sys.exit(f"the release is {wanted}, but {wrong}")
    print(wanted)
