"""Print the licence of everything that any extra installs: `make licences`."""

import importlib.metadata
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "constraints"
LONGEST = 60


def licence_of(name):
    """As the package itself declares it: an expression, a line of text, or its classifiers."""
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here"
    text = said.get("License-Expression") or ""
    classified = [line.split(" :: ")[-1] for line in said.get_all("Classifier") or [] if line.startswith("License ::")]
    line = (said.get("License") or "").strip().split("\n")[0]
    return text or "; ".join(classified) or line[:LONGEST] or "none declared"


def main():
    """One line a package: the first level that brings it, name, version, licence."""
    known = set()
    for path in sorted(FOLDER.glob("*.txt")):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name in known:
                continue
            known.add(name)
            print(f"{path.stem:8}  {name:28} {version:14} {licence_of(name)}")


if __name__ == "__main__":
    main()
