"""A release tried as a stranger would: in an empty folder and an environment of its own, by each Python that is named.

    python tools/try_release.py dist python3.11 python3.13

Installs the wheel with what it needs from the registry, runs the demo, an example problem and the page that begins in
an empty folder, and then the same demo from the source archive. Says what it ran and how long that took; ends with exit
code 1 at the first thing that fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(python: str, wheel: Path, source: Path) -> list[tuple[str, list[str]]]:
    """What is run, by name; the first makes the environment in the folder where all are run."""
    own = "venv/bin/python"
    pip = [own, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    prudent = [own, "-m", "prudent"]
    return [
        ("environment", [python, "-m", "venv", "venv"]),
        ("install the wheel", [*pip, f"{wheel}[report]"]),
        ("demo", [*prudent, "demo", "--out", "demo"]),
        ("init", [*prudent, "init", "machine"]),
        ("check", [*prudent, "check", "machine/problem.toml"]),
        ("solve", [*prudent, "solve", "machine/problem.toml", "--out", "run"]),
        ("first policy", [own, "first_policy.py"]),
        ("install the source archive", [*pip, "--no-deps", "--force-reinstall", str(source)]),
        ("demo", [*prudent, "demo", "--out", "demo"]),
        ("verifier", [own, "-c", "import prudent_verifier"]),
    ]


def tried(python: str, wheel: Path, source: Path) -> None:
    """Everything by one Python; ends the process where something fails."""
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    # What the caller has on its path is not there for a stranger.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        code = FENCE.search((ROOT / "docs" / "first-policy.md").read_text(encoding="utf-8"))
        assert code is not None
        Path(folder, "first_policy.py").write_text(code[1], encoding="utf-8")
        shutil.copy(ROOT / "docs" / "data" / "pumps.csv", folder)
        for name, command in steps(python, wheel, source):
            began = time.perf_counter()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=alone)
            print(f"{version}: {name}, {time.perf_counter() - began:.0f} s, exit code {done.returncode}", flush=True)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}{done.stderr}")
        made = ("demo/loss-distributions.png", "run/report.html", "policy.json")
        missing = [name for name in made if not Path(folder, name).exists()]
        if missing:
            sys.exit(f"{version}: {', '.join(missing)} not written")


def main(dist: str, *pythons: str) -> None:
    """Try the release in a folder by each Python, or by this one."""
    wheel, source = (sorted(Path(dist).resolve().glob(name)) for name in ("prudent-*.whl", "prudent-*.tar.gz"))
    if len(wheel) != 1 or len(source) != 1:
        sys.exit(f"{dist} holds {len(wheel)} wheels and {len(source)} source archives of prudent; make release first")
    for python in pythons or (sys.executable,):
        tried(python, wheel[0], source[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
