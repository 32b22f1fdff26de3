"""Pin what every `make` target installs, with the hashes of all files of each release: `make constraints`.

A level is installed by its file and those of the levels it stands on; a package has one version in all of them.
Versions stay as they are unless a requirement changed or `--upgrade` is given. The resolver is uv, asked for versions
that every Python from 3.11.0 on can install, on every system.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "constraints"
OWN = ("prudent", "prudent-studies")

# By level: the one it stands on, as the Makefile installs them, of both packages the extras, and what is needed beside
# them. Packages of the first build the two.
LEVELS = {
    "base": (None, {"prudent": ["report"]}, ["editables"]),
    "dev": ("base", {"prudent": ["dev"], "prudent-studies": ["gym"]}, []),
    "bench": ("dev", {"prudent": ["bench"]}, []),
    "cluster": ("dev", {"prudent-studies": ["dask", "ray"]}, []),
    "release": ("base", {}, ["cyclonedx-bom>=7", "uv>=0.9"]),
}


def projects():
    """What the two packages declare, by name."""
    texts = [
        path.read_text(encoding="utf-8") for path in (ROOT / "pyproject.toml", ROOT / "studies" / "pyproject.toml")
    ]
    return {each["project"]["name"]: each for each in map(tomllib.loads, texts)}


def needed(known, name, extras):
    """Requirements of a package with its extras; those on our own packages are followed."""
    project = known[name]["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    for line in lines:
        own, inside = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?.*", line).groups()
        if own in OWN:
            yield from needed(known, own, inside.split(",") if inside else [])
        else:
            yield line


def requirements():
    """By level, all that it and the levels it stands on need."""
    known, found = projects(), {}
    for level, (below, extras, beside) in LEVELS.items():
        found[level] = {*beside, *found.get(below, ())}
        for name, some in extras.items():
            found[level] |= set(needed(known, name, some)) | set(known[name]["build-system"]["requires"])
    return found


def compiled(lines, pins, *options):
    """What uv makes of requirements: entries by name, as they stand in a file of pip's."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pinned.txt"
        out.write_text(pins, encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--output-file", out, "--quiet", "--no-header"]
        command += ["--no-annotate", "--universal", "--python-version", "3.11", *options]
        subprocess.run(command, input="\n".join(lines), text=True, check=True)
        text = out.read_text(encoding="utf-8")
    return {re.match(r"[\w.-]+", entry)[0]: entry for entry in re.split(r"\n(?=\S)", text.strip())}


def main():
    """Write a file for each level."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that are allowed")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    FOLDER.mkdir(exist_ok=True)
    before = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.txt")))
    levels = requirements()
    pinned = compiled(sorted(set().union(*levels.values())), before, "--generate-hashes", *upgrade)
    plain = "\n".join(re.sub(r"\s*\\\n\s*--hash=\S+", "", entry) for entry in pinned.values())
    placed = {None: set()}
    for level, lines in levels.items():
        placed[level] = set(compiled(sorted(lines), plain))
        here = sorted(placed[level] - placed[LEVELS[level][0]])
        text = "".join(f"{pinned[name]}\n" for name in here)
        (FOLDER / f"{level}.txt").write_text(f"# Written by `make constraints`.\n{text}", encoding="utf-8")
        print(f"constraints/{level}.txt: {len(here)} packages")


if __name__ == "__main__":
    main()
